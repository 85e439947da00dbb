// Finds the point under the pointer among many: a grid of cells over the drawing, each with the points in it.
const CELL = 18;

export class Grid {
  // x and y are pixels by place; NaN stands for a point that is not drawn.
  constructor(x, y, width, height) {
    this.x = x;
    this.y = y;
    this.columns = Math.max(1, Math.ceil(width / CELL));
    this.rows = Math.max(1, Math.ceil(height / CELL));
    const start = new Int32Array(this.columns * this.rows + 1);
    const cells = new Int32Array(x.length);
    for (let i = 0; i < x.length; i++) {
      const column = Math.floor(x[i] / CELL), row = Math.floor(y[i] / CELL);
      const inside = column >= 0 && column < this.columns && row >= 0 && row < this.rows;
      cells[i] = inside ? row * this.columns + column : -1;
      if (inside) start[cells[i] + 1]++;
    }
    for (let i = 1; i < start.length; i++) start[i] += start[i - 1];
    const next = start.slice();
    this.items = new Int32Array(start[start.length - 1]);
    for (let i = 0; i < x.length; i++) if (cells[i] >= 0) this.items[next[cells[i]]++] = i;
    this.start = start;
  }

  // The nearest point within a distance, or -1; of equally near ones the one that is drawn last.
  nearest(x, y, within, allowed = null) {
    let best = -1, least = within * within;
    const low = Math.max(0, Math.floor((x - within) / CELL)), high = Math.min(this.columns - 1, Math.floor((x + within) / CELL));
    const top = Math.max(0, Math.floor((y - within) / CELL)), bottom = Math.min(this.rows - 1, Math.floor((y + within) / CELL));
    for (let row = top; row <= bottom; row++) {
      for (let column = low; column <= high; column++) {
        const cell = row * this.columns + column;
        for (let i = this.start[cell]; i < this.start[cell + 1]; i++) {
          const item = this.items[i];
          if (allowed && !allowed[item]) continue;
          const distance = (this.x[item] - x) ** 2 + (this.y[item] - y) ** 2;
          if (distance <= least) { least = distance; best = item; }
        }
      }
    }
    return best;
  }
}

// Parallel coordinates: an axis for each parameter and figure, a line for each trial; a range on an axis filters all.
import { Frame, textWidth } from "./frame.js";
import { STATES } from "./model.js";
import { Scale, airy, axisOf, range, wantsLog } from "./scale.js";
import { make, saveCsv } from "./words.js";

const TOP = 54, BOTTOM = 18, SIDE = 46, NEAREST = 78, MOST = 1200, FIRST = 240, PORTION = 200;
const HELP = "Each axis has two handles: arrow keys move them and so keep only the trials between them.";

export class ParallelChart extends Frame {
  constructor(host, model, { kind, title }) {
    super(host, { label: "Parallel coordinates of all trials", height: 340, name: "parallel-coordinates", help: HELP });
    this.box.removeAttribute("tabindex");
    // Words stand over the lines here, not below them.
    this.box.insertBefore(this.base, this.svg);
    this.box.classList.add("parallel");
    Object.assign(this, { model, kind, title, brushes: new Map(), weights: {}, drag: null, painting: 0 });
    this.handles = make("div", { class: "plot-handles" });
    this.box.append(this.handles);
    this.box.addEventListener("pointermove", (event) => this._move(event));
    this.box.addEventListener("pointerdown", (event) => this._down(event));
    this.box.addEventListener("pointerup", (event) => this._up(event));
    this.box.addEventListener("pointerleave", () => { if (!this.drag) model.point(-1); });
    model.addEventListener("data", () => { this._build(); this.redraw(); });
    model.addEventListener("filter", () => this.redraw());
    model.addEventListener("hover", () => this.mark());
    model.addEventListener("choose", () => this.mark());
    this._build();
  }

  // shares: how much each parameter explains; the axes stand in that order.
  setWeights(effects) {
    this.weights = Object.fromEntries(effects.map((one) => [one.parameter, one.weight]));
    this._build();
    this.redraw();
  }

  // ------------------------------------------------------------------ axes

  _build() {
    const { model } = this;
    const parameters = model.parameters.map(({ name, words }) => ({
      id: `p ${name}`, name, categories: words, kind: "number", read: () => model.parameter(name).values,
    }));
    parameters.sort((a, b) => (this.weights[b.name] ?? -1) - (this.weights[a.name] ?? -1));
    const figures = [
      ...(this.kind === "number" ? [{ id: "objective", name: model.metric, kind: "number", read: () => model.columns.objective }] : []),
      { id: "runtime", name: "run time", kind: "time", read: () => model.columns.runtime },
      { id: "cost", name: "cost", kind: "money", read: () => model.columns.cost },
    ];
    for (const axis of [...parameters, ...figures]) axis.values = axis.read();
    const old = new Map((this.all ?? []).map((axis) => [axis.id, axis]));
    this.all = [...parameters, ...figures].filter((axis) => axis.categories?.length > 1 || varies(axis.values));
    for (const axis of this.all) {
      const found = axis.categories ? null : range(axis.values);
      axis.log = !axis.categories && wantsLog(found, 30) && wantsLog(middle(axis.values), 30);
      axis.limits = axis.categories ? [-0.5, axis.categories.length - 0.5] : airy(found, axis.log);
      axis.handles = old.get(axis.id)?.handles;
    }
    for (const id of [...this.brushes.keys()]) if (!this.all.some((axis) => axis.id === id)) this.setBrush(id, null);
    this._rank();
  }

  // The fifth of the objective that each trial is in: it gives a line its colour, the best fifth the strongest.
  _rank() {
    const { model } = this, rows = [];
    for (let row = 0; row < model.n; row++) {
      if (model.state[row] === 0 && model.whole(row) && !Number.isNaN(model.columns.objective[row])) rows.push(row);
    }
    const sign = model.maximise ? -1 : 1, values = model.columns.objective;
    rows.sort((a, b) => sign * (values[a] - values[b]));
    this.fifth = new Int8Array(model.n).fill(-1);
    rows.forEach((row, place) => { this.fifth[row] = Math.floor((5 * place) / rows.length); });
    this.ranked = rows;
  }

  layout() {
    const gaps = Math.max(1, this.all.length - 1);
    // On a phone the drawing is as wide as its axes need, and scrolls within its place.
    this.box.style.minWidth = `${SIDE * 2 + NEAREST * gaps}px`;
    this.step = (this.width - SIDE * 2) / gaps;
    this.all.forEach((axis, place) => {
      axis.x = SIDE + this.step * place;
      axis.scale = new Scale(...axis.limits, this.height - BOTTOM, TOP, { log: axis.log });
      axis.about = axisOf(axis.kind, axis.name, axis.limits[1]);
      axis.scale.unit = axis.about.unit;
    });
    this._placeHandles();
  }

  axes(pen) {
    for (const axis of this.all) {
      pen.line(axis.x, TOP, axis.x, this.height - BOTTOM, "axis");
      const right = axis.x > this.width - SIDE - 1;
      pen.text(axis.x, 14, fitted(axis.about.title, this.step - 8, 12.5), "strong", "middle");
      if (axis.categories) {
        const every = Math.ceil(axis.categories.length / 14);
        axis.categories.forEach((word, place) => {
          if (place % every) return;
          pen.text(axis.x + (right ? -6 : 6), axis.scale.at(place) + 4, fitted(word, Math.min(this.step, 110) - 14, 12), "tick", right ? "end" : "start");
        });
      } else {
        for (const value of axis.scale.ticks(5)) {
          pen.line(axis.x - 3, axis.scale.at(value), axis.x + 3, axis.scale.at(value), "axis");
          pen.text(axis.x + (right ? -6 : 6), axis.scale.at(value) + 4, axis.about.words(value), "tick", right ? "end" : "start");
        }
      }
    }
  }

  // ------------------------------------------------------------------ lines

  _rows(passing) {
    const { model } = this, rows = [];
    for (let row = 0; row < model.n; row++) if (model.mask[row] === passing && model.state[row] < STATES.indexOf("running")) rows.push(row);
    return rows;
  }

  // Of very many trials the best ones and some of all others: more lines than these cannot be told apart.
  _chosen() {
    const rows = this._rows(1);
    if (rows.length <= MOST) return rows;
    const first = this.ranked.filter((row) => this.model.mask[row]).slice(0, FIRST), known = new Set(first);
    return [...first, ...spread(rows.filter((row) => !known.has(row)), MOST - first.length)];
  }

  _y(axis, row) {
    const value = axis.values[row];
    if (Number.isNaN(value) || (axis.log && value <= 0)) return NaN;
    // Trials with the same word, or the same small number, would hide each other: they are spread a little.
    const spread = axis.categories ? (((row * 7919) % 101) / 101 - 0.5) * 0.5 : 0;
    return axis.scale.at(value + spread);
  }

  trace(context, row) {
    let pen = false;
    for (const axis of this.all) {
      const y = this._y(axis, row);
      if (Number.isNaN(y)) { pen = false; continue; }
      if (pen) context.lineTo(axis.x, y);
      else context.moveTo(axis.x, y);
      pen = true;
    }
  }

  paint(context, colours, atOnce = false) {
    cancelAnimationFrame(this.painting);
    const { model } = this, lines = [];
    if (model.filtered) for (const row of spread(this._rows(0), Math.floor(MOST / 3))) lines.push([row, colours.faint, 0.35, 1]);
    const chosen = this._chosen();
    const alpha = Math.max(0.16, Math.min(0.75, 120 / Math.max(1, chosen.length)));
    // The best are drawn last, over all others.
    chosen.sort((a, b) => (this.fifth[b] < 0 ? 9 : this.fifth[b]) - (this.fifth[a] < 0 ? 9 : this.fifth[a]));
    for (const row of chosen) lines.push([row, this.fifth[row] < 0 ? colours.faint : colours[`ramp${this.fifth[row]}`], alpha, 1.2]);
    if (model.best >= 0 && model.mask[model.best]) lines.push([model.best, colours.best, 1, 2.6]);
    this.host.dispatchEvent(new CustomEvent("thinned", { detail: { drawn: chosen.length, of: model.passing } }));
    let next = 0;
    const portion = () => {
      const end = atOnce ? lines.length : Math.min(lines.length, next + PORTION);
      for (; next < end; next++) {
        const [row, colour, opacity, width] = lines[next];
        context.globalAlpha = opacity;
        context.strokeStyle = colour;
        context.lineWidth = width;
        context.beginPath();
        this.trace(context, row);
        context.stroke();
      }
      context.globalAlpha = 1;
      if (next < lines.length) this.painting = requestAnimationFrame(portion);
      else performance.mark("lines-drawn");
    };
    portion();
  }

  highlight(context, colours) {
    for (const axis of this.all) {
      const brush = this.brushes.get(axis.id);
      if (!brush) continue;
      const top = axis.scale.at(brush[1]), bottom = axis.scale.at(brush[0]);
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.22;
      context.fillRect(axis.x - 7, top, 14, bottom - top);
      context.globalAlpha = 1;
    }
    const { model } = this;
    for (const [row, width] of [[model.chosen, 3], [model.hover, 2]]) {
      if (row < 0 || row >= model.n) continue;
      context.strokeStyle = colours.ink;
      context.lineWidth = width;
      context.beginPath();
      this.trace(context, row);
      context.stroke();
    }
    const at = this.at;
    this.showTip(at?.x ?? 0, at?.y ?? 0, at && model.hover >= 0 ? model.lines(model.hover) : null);
  }

  // ------------------------------------------------------------------ ranges

  setBrush(id, brush) {
    const axis = this.all.find((one) => one.id === id);
    if (brush) {
      this.brushes.set(id, brush);
      const [low, high] = brush, { read } = axis;
      this.model.filter(`axis ${id}`, (row) => read()[row] >= low && read()[row] <= high);
    } else {
      this.brushes.delete(id);
      this.model.filter(`axis ${id}`, null);
    }
    this._placeHandles();
    this.mark();
  }

  clear() {
    for (const id of [...this.brushes.keys()]) this.setBrush(id, null);
  }

  // Two handles an axis, for the mouse, for fingers and for keys; without a range they stand at its ends.
  _placeHandles() {
    for (const axis of this.all) {
      if (!axis.scale) continue;
      axis.handles ??= [0, 1].map((end) => this._handle(axis.id, end));
      const brush = this.brushes.get(axis.id) ?? axis.limits;
      axis.handles.forEach((handle, end) => {
        if (!handle.isConnected) this.handles.append(handle);
        handle.style.transform = `translate(${axis.x - 12}px, ${axis.scale.at(brush[end]) - (end ? 24 : 0)}px)`;
        const value = axis.categories ? Math.round(Math.min(axis.categories.length - 1, Math.max(0, brush[end] + (end ? -0.5 : 0.5)))) : brush[end];
        const words = axis.categories ? axis.categories[value] : (axis.about.exact ?? axis.about.words)(value);
        handle.setAttribute("aria-valuenow", value);
        handle.setAttribute("aria-valuemin", axis.categories ? 0 : axis.limits[0]);
        handle.setAttribute("aria-valuemax", axis.categories ? axis.categories.length - 1 : axis.limits[1]);
        handle.setAttribute("aria-valuetext", this.brushes.has(axis.id) ? words : `${words}, no limit`);
        handle.setAttribute("aria-label", `${axis.name}, ${end ? "greatest" : "least"}`);
        handle.classList.toggle("set", this.brushes.has(axis.id));
      });
    }
    const known = new Set(this.all.flatMap((axis) => axis.handles ?? []));
    for (const handle of [...this.handles.children]) if (!known.has(handle)) handle.remove();
  }

  _handle(id, end) {
    const handle = make("div", { class: `plot-handle ${end ? "top" : "bottom"}`, role: "slider", tabindex: "0", "aria-orientation": "vertical" });
    handle.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      handle.setPointerCapture(event.pointerId);
      this.drag = { id, end };
    });
    handle.addEventListener("pointermove", (event) => {
      if (this.drag?.id !== id || this.drag.end !== end) return;
      event.stopPropagation();
      this._pull(id, end, this._place(event).y);
    });
    handle.addEventListener("pointerup", (event) => { event.stopPropagation(); this.drag = null; });
    handle.addEventListener("keydown", (event) => this._key(event, id, end));
    return handle;
  }

  _key(event, id, end) {
    const axis = this.all.find((one) => one.id === id), brush = [...(this.brushes.get(id) ?? axis.limits)];
    const way = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5 }[event.key];
    if (event.key === "Escape" || event.key === "Delete") this.setBrush(id, null);
    else if (event.key === "Home" || event.key === "End") this._set(axis, end, event.key === "Home" ? axis.limits[0] : axis.limits[1]);
    else if (way && axis.categories) this._set(axis, end, brush[end] + Math.sign(way));
    else if (way) this._pull(id, end, axis.scale.at(brush[end]) - way * (axis.scale.start - axis.scale.end) / 40);
    else return;
    event.preventDefault();
  }

  _pull(id, end, y) {
    const axis = this.all.find((one) => one.id === id);
    let value = axis.scale.value(Math.min(axis.scale.start, Math.max(axis.scale.end, y)));
    if (axis.categories) value = Math.round(value - 0.5) + 0.5;
    this._set(axis, end, value);
  }

  _set(axis, end, value) {
    const [low, high] = axis.limits, brush = [...(this.brushes.get(axis.id) ?? axis.limits)];
    brush[end] = Math.min(high, Math.max(low, value));
    if (axis.categories) brush[end] = end ? Math.max(brush[end], brush[0] + 1) : Math.min(brush[end], brush[1] - 1);
    else if (brush[0] > brush[1]) brush[end] = brush[1 - end];
    const all = Math.abs(brush[0] - low) < 1e-9 * Math.abs(low) + 1e-12 && Math.abs(brush[1] - high) < 1e-9 * Math.abs(high) + 1e-12;
    this.setBrush(axis.id, all ? null : brush);
  }

  // ------------------------------------------------------------------ pointing

  _place(event) {
    const bounds = this.box.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }

  _axisNear(x) {
    return this.all.reduce((best, axis) => (Math.abs(axis.x - x) < Math.abs((best?.x ?? 1e9) - x) ? axis : best), null);
  }

  _down(event) {
    const { x, y } = this._place(event), axis = this._axisNear(x);
    if (event.button || event.pointerType === "touch" || !axis || Math.abs(axis.x - x) > 12 || y < TOP) return;
    this.box.setPointerCapture(event.pointerId);
    this.drag = { id: axis.id, from: y };
  }

  _move(event) {
    const { x, y } = this._place(event);
    if (this.drag?.from !== undefined) {
      const axis = this.all.find((one) => one.id === this.drag.id);
      const ends = [Math.max(y, this.drag.from), Math.min(y, this.drag.from)].map((at) => axis.scale.value(Math.min(axis.scale.start, Math.max(axis.scale.end, at))));
      if (axis.categories) { ends[0] = Math.round(ends[0]) - 0.5; ends[1] = Math.round(ends[1]) + 0.5; }
      return this.setBrush(axis.id, ends);
    }
    this.box.classList.toggle("on-axis", Math.abs((this._axisNear(x)?.x ?? 1e9) - x) < 12 && y > TOP);
    this.at = { x, y };
    this.model.point(this._nearest(x, y));
  }

  _up(event) {
    const { x, y } = this._place(event), drag = this.drag;
    this.drag = null;
    if (drag?.from !== undefined) {
      if (Math.abs(y - drag.from) < 4) this.setBrush(drag.id, null);
      return;
    }
    const row = this._nearest(x, y);
    if (row >= 0) this.model.choose(row);
  }

  // The trial whose line passes nearest, of those that pass the filters.
  _nearest(x, y) {
    const right = this.all.findIndex((axis) => axis.x >= x), a = this.all[right - 1], b = this.all[right];
    if (!a || !b) return -1;
    const part = (x - a.x) / (b.x - a.x);
    let best = -1, least = 8;
    for (let row = 0; row < this.model.n; row++) {
      if (!this.model.mask[row]) continue;
      const from = this._y(a, row), to = this._y(b, row), distance = Math.abs(from + (to - from) * part - y);
      if (distance < least) { least = distance; best = row; }
    }
    return best;
  }

  saveCsv() {
    const { model } = this, rows = [];
    for (let row = 0; row < model.n; row++) {
      if (!model.mask[row]) continue;
      rows.push([model.number[row], model.stateWord(row), ...this.all.map((axis) => (axis.categories ? axis.categories[axis.values[row]] : axis.values[row]))]);
    }
    saveCsv("parallel-coordinates.csv", ["trial", "outcome", ...this.all.map((axis) => axis.name)], rows);
  }
}

function varies(values) {
  const found = range(values);
  return !!found && found[1] > found[0];
}

// At most so many of some rows, evenly spread over them.
function spread(rows, most) {
  if (rows.length <= most) return rows;
  return Array.from({ length: most }, (_, place) => rows[Math.floor((place * rows.length) / most)]);
}

// The range without the lowest and the highest twentieth: single small values ask for no logarithmic axis.
function middle(values) {
  const known = Array.from(values).filter(Number.isFinite).sort((a, b) => a - b);
  return known.length ? [known[Math.floor(known.length * 0.05)], known[Math.ceil(known.length * 0.95) - 1]] : null;
}

function fitted(words, room, size) {
  if (textWidth(words, size) <= room) return words;
  let length = words.length;
  while (length > 1 && textWidth(words.slice(0, length) + "…", size) > room) length--;
  return words.slice(0, length) + "…";
}

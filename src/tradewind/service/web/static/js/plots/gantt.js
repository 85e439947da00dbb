// A Gantt chart on a canvas: machines downwards, time to the right, what was planned above what happened.
import { Frame, textWidth } from "./frame.js";
import { Scale, axisOf } from "./scale.js";
import { duration, figure } from "./words.js";

const STRIP = 56, TOP = 6, AXIS = 40, GAP = 6, RIGHT = 12;
const HELP = "Left and right move in time, plus and minus zoom, 0 shows all. The table below has every task.";

export class GanttChart extends Frame {
  // data: as tradewind.reporting.workflow_layout.page_document tells it; running: tasks that run now.
  constructor(host, data, { name }) {
    super(host, { label: `Gantt chart of ${data.title}`, height: 400, name, help: HELP });
    this.window = null;
    this.only = null;
    this.pointed = null;
    this.drag = null;
    this.renew(data);
    this._listen();
  }

  renew(data) {
    this.data = data;
    this.running = new Set(data.running);
    const rows = data.lanes.reduce((sum, lane) => sum + lane.planned_rows + lane.actual_rows, 0);
    this.rowHeight = rows > 240 ? 4 : rows > 120 ? 7 : rows > 60 ? 11 : 17;
    this.gap = this.rowHeight > 8 ? GAP : 2;
    let top = TOP + STRIP + 10;
    this.lanes = data.lanes.map((lane) => {
      const place = { lane, top, middle: top + this.rowHeight * lane.planned_rows };
      top = place.bottom = place.middle + this.rowHeight * lane.actual_rows;
      top += this.gap;
      return place;
    });
    this.slots = data.lanes.reduce((sum, lane) => sum + lane.slots, 0) || 1;
    this.setHeight(Math.ceil(top + AXIS));
    this.left = Math.min(150, Math.ceil(Math.max(60, ...data.lanes.map((lane) => textWidth(lane.name))) + 14));
    this.redraw();
  }

  setWindow(window) {
    const end = this.data.end;
    if (window) {
      const span = Math.min(end, Math.max(end / 20000, window[1] - window[0])), start = Math.min(Math.max(0, window[0]), end - span);
      this.window = span >= end * 0.999 ? null : [start, start + span];
    } else this.window = null;
    this.host.dispatchEvent(new CustomEvent("zoomed", { detail: !!this.window }));
    this.redraw();
  }

  zoomBy(factor, around = null) {
    const [from, to] = this.window ?? [0, this.data.end], middle = around ?? (from + to) / 2;
    this.setWindow([middle - (middle - from) * factor, middle + (to - middle) * factor]);
  }

  // Show one activity only; null shows all.
  choose(activity) {
    this.only = activity;
    this.redraw();
  }

  point(task) {
    if (task === this.pointed) return;
    this.pointed = task;
    this.mark();
  }

  // ------------------------------------------------------------------ drawing

  layout() {
    const [from, to] = this.window ?? [0, this.data.end];
    this.about = axisOf("time", "time since tasks could begin", this.data.end);
    this.x = new Scale(from, to, this.left, this.width - RIGHT, { unit: this.about.unit });
    this.bottom = this.height - AXIS + 4;
  }

  axes(pen) {
    for (const value of this.x.ticks(Math.max(3, Math.round(this.width / 120)))) {
      const at = this.x.at(value);
      if (at < this.x.start - 1 || at > this.x.end + 1) continue;
      pen.line(at, TOP, at, this.bottom, "grid");
      const words = this.about.words(value);
      if (at + textWidth(words) / 2 <= this.width) pen.text(at, this.bottom + 15, words, "tick", "middle");
    }
    pen.text((this.x.start + this.x.end) / 2, this.height - 4, this.about.title, "label", "middle");
    pen.text(this.left - 8, TOP + STRIP / 2 + 4, "slots in use", "tick", "end");
    pen.text(this.left - 8, TOP + 10, figure(this.slots), "tick", "end");
    let last = -Infinity;
    for (const { lane, top, bottom } of this.lanes) {
      const middle = (top + bottom) / 2 + 4;
      if (middle - last < 12) continue;
      last = middle;
      pen.text(this.left - 8, middle, shortened(lane.name, this.left - 14), "tick", "end");
    }
  }

  paint(context, colours) {
    this._strip(context, colours);
    context.save();
    context.beginPath();
    context.rect(this.x.start, 0, this.x.end - this.x.start, this.height);
    context.clip();
    this.lanes.forEach(({ lane, top, middle, bottom }, place) => {
      if (place % 2) {
        context.fillStyle = colours.line;
        context.globalAlpha = 0.28;
        context.fillRect(this.x.start, top - this.gap / 2, this.x.end - this.x.start, bottom - top + this.gap);
        context.globalAlpha = 1;
      }
      const both = lane.actual.length > 0;
      for (const bar of lane.planned) this._bar(context, colours, bar, top, both ? "planned" : "actual");
      for (const bar of lane.actual) this._bar(context, colours, bar, middle, "actual");
    });
    context.restore();
  }

  _bar(context, colours, [task, activity, start, finish, row, rows, critical], top, kind) {
    const [from, to] = this.window ?? [0, this.data.end];
    if (finish < from || start > to) return;
    const x = this.x.at(start), width = Math.max(1, this.x.at(finish) - x - 0.5), inset = this.rowHeight > 8 ? 1.5 : 0.5;
    const y = top + row * this.rowHeight, height = Math.max(1, rows * this.rowHeight - inset);
    const off = this.only !== null && this.only !== activity;
    context.globalAlpha = off ? 0.1 : kind === "planned" ? 0.42 : 1;
    context.fillStyle = this.data.activities[activity].colour;
    context.fillRect(x, y, width, height);
    if (critical && !off) {
      context.globalAlpha = 1;
      context.strokeStyle = colours.ink;
      context.lineWidth = 1.5;
      context.strokeRect(x + 0.75, y + 0.75, Math.max(0.5, width - 1.5), Math.max(0.5, height - 1.5));
    }
    if (kind === "actual" && this.running.has(task) && !off) {
      context.globalAlpha = 1;
      context.fillStyle = colours.work;
      context.fillRect(x + width - 2, y, 2, height);
    }
    context.globalAlpha = off ? 0.2 : 1;
    const shown = Math.min(x + width, this.x.end) - Math.max(x, this.x.start);
    if (height >= 12 && shown > 24 && textWidth(task, 11) < shown - 8) {
      context.font = `11px ${colours.font}`;
      context.textAlign = "start";
      context.fillStyle = kind === "planned" ? colours.ink : dark(this.data.activities[activity].colour) ? "#fff" : "#10151b";
      context.fillText(task, Math.max(x, this.x.start) + 4, y + height / 2 + 4);
    }
    context.globalAlpha = 1;
  }

  // How many slots are in use: planned as an area, what happened as a line.
  _strip(context, colours) {
    const { planned, actual } = this.data.usage, bottom = TOP + STRIP;
    context.save();
    context.beginPath();
    context.rect(this.x.start, 0, this.x.end - this.x.start, this.height);
    context.clip();
    for (const [steps, kind] of [[planned, "area"], [actual, "line"]]) {
      if (steps.length < 2) continue;
      context.beginPath();
      let before = 0;
      context.moveTo(this.x.start, bottom);
      for (const [at, used] of steps) {
        const x = this.x.at(at);
        context.lineTo(x, bottom - (STRIP * before) / this.slots);
        context.lineTo(x, bottom - (STRIP * used) / this.slots);
        before = used;
      }
      context.lineTo(this.x.end, bottom - (STRIP * before) / this.slots);
      if (kind === "area") {
        context.lineTo(this.x.end, bottom);
        context.fillStyle = colours.work;
        context.globalAlpha = 0.22;
        context.fill();
        context.globalAlpha = 1;
      } else {
        context.strokeStyle = colours.ink;
        context.lineWidth = 1.4;
        context.stroke();
      }
    }
    context.restore();
    context.strokeStyle = colours.edge;
    context.lineWidth = 1;
    context.strokeRect(this.x.start + 0.5, TOP + 0.5, this.x.end - this.x.start - 1, STRIP);
  }

  highlight(context, colours) {
    if (this.drag?.to !== undefined) {
      const low = Math.min(this.drag.x, this.drag.to), high = Math.max(this.drag.x, this.drag.to);
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.14;
      context.fillRect(low, TOP, high - low, this.bottom - TOP);
      context.globalAlpha = 1;
    }
    if (this.pointed === null) return this.showTip(0, 0, null);
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    for (const { lane, top, middle } of this.lanes) {
      for (const [bars, from] of [[lane.planned, top], [lane.actual, middle]]) {
        for (const [task, , start, finish, row, rows] of bars) {
          if (task !== this.pointed) continue;
          const x = Math.max(this.x.start, this.x.at(start)), end = Math.min(this.x.end, this.x.at(finish));
          if (end > x) context.strokeRect(x, from + row * this.rowHeight, end - x, rows * this.rowHeight);
        }
      }
    }
    this.showTip(this.at?.x ?? 0, this.at?.y ?? 0, this.at ? this.lines(this.pointed) : null);
  }

  lines(task) {
    const found = [task];
    for (const [kind, key] of [["planned", "planned"], ["really", "actual"]]) {
      for (const lane of this.data.lanes) {
        const bar = lane[key].find(([name]) => name === task);
        if (!bar) continue;
        if (found.length === 1) found.push(this.data.activities[bar[1]].name);
        const more = key === "actual" && this.running.has(task) ? ", running" : "";
        found.push(`${kind}: ${exact(bar[2])} to ${exact(bar[3])} on ${lane.name}, ${duration(bar[3] - bar[2])}${more}`);
        if (bar[6]) found.push("on the critical path");
      }
    }
    return found;
  }

  // ------------------------------------------------------------------ pointing

  _listen() {
    const box = this.box;
    box.addEventListener("pointermove", (event) => this._move(event));
    box.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType === "touch") return;
      this.drag = this._place(event);
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointerup", (event) => this._up(event));
    box.addEventListener("pointerleave", () => { if (!this.drag) this._point(null); });
    box.addEventListener("dblclick", () => this.setWindow(null));
    box.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    box.addEventListener("keydown", (event) => this._key(event));
  }

  _place(event) {
    const bounds = this.box.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }

  _move(event) {
    const { x, y } = this._place(event);
    if (this.drag && (this.drag.to !== undefined || Math.abs(x - this.drag.x) > 6)) {
      this.drag.to = Math.min(this.x.end, Math.max(this.x.start, x));
      return this.mark();
    }
    this.at = { x, y };
    this._point(this._under(x, y));
  }

  _up(event) {
    const { drag } = this, { x, y } = this._place(event);
    this.drag = null;
    if (drag?.to !== undefined && Math.abs(drag.to - drag.x) > 6) {
      const ends = [drag.x, drag.to].map((at) => this.x.value(Math.min(this.x.end, Math.max(this.x.start, at)))).sort((a, b) => a - b);
      return this.setWindow(ends);
    }
    this.at = { x, y };
    this._point(this._under(x, y));
    this.mark();
  }

  _point(task) {
    if (task === null) this.at = null;
    this.point(task);
    this.mark();
    this.host.dispatchEvent(new CustomEvent("pointed", { detail: task }));
  }

  _under(x, y) {
    if (x < this.x.start || x > this.x.end) return null;
    const place = this.lanes.find(({ top, bottom }) => y >= top && y < bottom);
    if (!place) return null;
    const really = y >= place.middle, bars = really ? place.lane.actual : place.lane.planned;
    const row = Math.floor((y - (really ? place.middle : place.top)) / this.rowHeight), at = this.x.value(x), near = this.x.value(x + 2) - at;
    return bars.find((bar) => at >= bar[2] - near && at <= bar[3] + near && row >= bar[4] && row < bar[4] + bar[5])?.[0] ?? null;
  }

  _wheel(event) {
    const across = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (event.ctrlKey || event.metaKey) this.zoomBy(event.deltaY > 0 ? 1.25 : 0.8, this.x.value(this._place(event).x));
    else if (across && this.window) this._pan((event.deltaX || event.deltaY) / (this.x.end - this.x.start));
    else return;
    event.preventDefault();
  }

  _pan(share) {
    const [from, to] = this.window ?? [0, this.data.end];
    this.setWindow([from + (to - from) * share, to + (to - from) * share]);
  }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = { ArrowLeft: () => this._pan(-0.2), ArrowRight: () => this._pan(0.2), "+": () => this.zoomBy(0.6), "=": () => this.zoomBy(0.6), "-": () => this.zoomBy(1 / 0.6), 0: () => this.setWindow(null), Escape: () => this._point(null) };
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  }
}

function exact(seconds) {
  return seconds < 60 ? `${seconds.toFixed(2)} s` : duration(seconds);
}

function shortened(words, room) {
  let text = words;
  while (text.length > 3 && textWidth(text) > room) text = text.slice(0, -2) + "…";
  return text;
}

// Whether white words can be read better on a colour than black ones.
function dark(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue < 140;
}

// A chart of one point for each trial: zoom by dragging, pointing with mouse, finger or keys, linked with all others.
import { Frame, textWidth } from "./frame.js";
import { Grid } from "./grid.js";
import { scatter, ink, trace } from "./marks.js";
import { Scale, airy, axisOf, range, wantsLog } from "./scale.js";
import { saveCsv } from "./words.js";

const TOP = 26, BOTTOM = 44, RIGHT = 14;
const HELP = "Arrow keys go from trial to trial, Enter opens one, plus and minus zoom, 0 shows all.";

export class PointChart extends Frame {
  // x and y: {kind, title, values(model), log?, near?(): values that are to be on the axis if they are near}
  constructor(host, model, { label, height, name, x, y, zero = false }) {
    super(host, { label, height, name, help: HELP });
    this.model = model;
    this.specs = { x, y };
    this.logs = { x: null, y: null };
    this.zoom = null;
    this.zero = zero;
    this.drag = null;
    this._listen();
    model.addEventListener("data", () => this.renew());
    model.addEventListener("filter", () => this.redraw());
    model.addEventListener("hover", () => this.mark());
    model.addEventListener("choose", () => this.mark());
    this.renew();
  }

  renew() {
    this.values = { x: this.specs.x.values(this.model), y: this.specs.y.values(this.model) };
    this.redraw();
  }

  setLog(axis, on) {
    this.logs[axis] = on;
    this.setZoom(null);
  }

  isLog(axis) {
    return this.logs[axis] ?? (this.specs[axis].log ? wantsLog(range(this.values[axis], true, this.shown)) : false);
  }

  setZoom(zoom) {
    this.zoom = zoom;
    this.host.dispatchEvent(new CustomEvent("zoomed", { detail: !!zoom }));
    this.redraw();
  }

  // ------------------------------------------------------------------ drawing

  layout() {
    const { x, y } = this.values, n = this.model.n;
    this.shown = new Uint8Array(n);
    for (let i = 0; i < n; i++) this.shown[i] = Number.isNaN(x[i]) || Number.isNaN(y[i]) ? 0 : 1;
    const bottom = this.height - BOTTOM;
    this.y = this._scale("y", bottom, TOP);
    this.yAxis = axisOf(this.specs.y.kind, this.specs.y.title, this.y.high);
    this.y.unit = this.yAxis.unit;
    this.yTicks = this.y.ticks(Math.max(3, Math.round(this.height / 62)));
    const left = Math.ceil(Math.max(30, ...this.yTicks.map((value) => textWidth(this.yAxis.words(value))))) + 12;
    this.x = this._scale("x", left, this.width - RIGHT);
    this.xAxis = axisOf(this.specs.x.kind, this.specs.x.title, this.x.high);
    this.x.unit = this.xAxis.unit;
    this.px = new Float64Array(n).fill(NaN);
    this.py = new Float64Array(n).fill(NaN);
    for (let i = 0; i < n; i++) {
      if (!this.shown[i] || (this.x.log && x[i] <= 0) || (this.y.log && y[i] <= 0)) continue;
      const across = this.x.at(x[i]), down = this.y.at(y[i]);
      if (across < left - 1 || across > this.width - RIGHT + 1 || down < TOP - 1 || down > bottom + 1) continue;
      this.px[i] = across;
      this.py[i] = down;
    }
    this.grid = new Grid(this.px, this.py, this.width, this.height);
  }

  _scale(axis, start, end) {
    const log = this.isLog(axis), spec = this.specs[axis];
    if (this.zoom) return new Scale(...this.zoom[axis], start, end, { log });
    const found = range(this.values[axis], log, this.shown) ?? (log ? [0.1, 1] : [0, 1]);
    for (const value of spec.near?.() ?? []) {
      if (value < 8 * found[1] && (!log || value > 0)) { found[0] = Math.min(found[0], value); found[1] = Math.max(found[1], value); }
    }
    return new Scale(...airy(found, log, spec.zero), start, end, { log });
  }

  axes(pen) {
    const { x, y } = this;
    for (const value of this.yTicks) {
      pen.line(x.start, y.at(value), x.end, y.at(value), "grid");
      pen.text(x.start - 8, y.at(value) + 4, this.yAxis.words(value), "tick", "end");
    }
    let after = -Infinity;
    for (const value of x.ticks(Math.max(3, Math.round(this.width / 110)))) {
      const words = this.xAxis.words(value), half = textWidth(words) / 2;
      pen.line(x.at(value), y.start, x.at(value), y.start + 5, "axis");
      if (x.at(value) - half < after + 6 || x.at(value) + half > this.width) continue;
      after = x.at(value) + half;
      pen.text(x.at(value), y.start + 19, words, "tick", "middle");
    }
    pen.line(x.start, y.start, x.end, y.start, "axis");
    pen.text((x.start + x.end) / 2, y.start + 38, this.xAxis.title + (x.log ? " (log)" : ""), "label", "middle");
    pen.text(2, 13, this.yAxis.title + (y.log ? " (log)" : ""), "label");
  }

  paint(context, colours) {
    const { model, px, py } = this;
    context.save();
    context.beginPath();
    context.rect(this.x.start - 6, this.y.end - 6, this.x.end - this.x.start + 12, this.y.start - this.y.end + 12);
    context.clip();
    this.under(context, colours);
    const size = model.n < 300 ? 4.2 : model.n < 3000 ? 3.2 : 2.5;
    if (model.filtered) {
      context.fillStyle = colours.faint;
      for (let i = 0; i < model.n; i++) if (!model.mask[i] && !Number.isNaN(px[i])) context.fillRect(px[i] - 1, py[i] - 1, 2, 2);
    }
    scatter(context, colours, px, py, model.state, model.mask, size);
    this.above(context, colours);
    if (model.best >= 0 && !Number.isNaN(px[model.best])) {
      context.beginPath();
      trace(context, "best", px[model.best], py[model.best], 5);
      ink(context, "best", colours.best);
      context.strokeStyle = colours.card;
      context.lineWidth = 1;
      context.stroke();
    }
    context.restore();
  }

  under() {}
  above() {}

  highlight(context, colours) {
    const { model } = this;
    if (this.drag?.box) {
      const { x, y, width, height } = this.drag.box;
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.12;
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
      context.strokeStyle = colours.accent;
      context.strokeRect(x + 0.5, y + 0.5, width, height);
    }
    for (const [row, width] of [[model.chosen, 2.5], [model.hover, 1.8]]) {
      if (row < 0 || row >= this.px.length || Number.isNaN(this.px[row])) continue;
      context.beginPath();
      context.arc(this.px[row], this.py[row], 8, 0, Math.PI * 2);
      context.strokeStyle = colours.ink;
      context.lineWidth = width;
      context.stroke();
    }
    const own = this.pointing && model.hover >= 0 && !Number.isNaN(this.px[model.hover]);
    this.showTip(this.px[model.hover], this.py[model.hover], own ? model.lines(model.hover) : null);
  }

  // ------------------------------------------------------------------ pointing

  _listen() {
    const box = this.box;
    box.addEventListener("pointermove", (event) => this._move(event));
    box.addEventListener("pointerleave", () => { if (!this.drag) this._leave(); });
    box.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType === "touch") return;
      this.drag = { ...this._place(event), box: null };
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointerup", (event) => this._up(event));
    box.addEventListener("pointercancel", () => { this.drag = null; this.mark(); });
    box.addEventListener("dblclick", () => this.setZoom(null));
    box.addEventListener("keydown", (event) => this._key(event));
    box.addEventListener("blur", () => this._leave());
  }

  _place(event) {
    const bounds = this.box.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }

  _move(event) {
    const { x, y } = this._place(event);
    if (this.drag && (this.drag.box || Math.hypot(x - this.drag.x, y - this.drag.y) > 6)) {
      const left = Math.max(this.x.start, Math.min(x, this.drag.x)), right = Math.min(this.x.end, Math.max(x, this.drag.x));
      const top = Math.max(this.y.end, Math.min(y, this.drag.y)), bottom = Math.min(this.y.start, Math.max(y, this.drag.y));
      this.drag.box = { x: left, y: top, width: right - left, height: bottom - top };
      return this.mark();
    }
    this.pointing = true;
    this.model.point(this.nearest(x, y, event.pointerType === "touch" ? 30 : 20));
  }

  nearest(x, y, within) {
    return this.grid?.nearest(x, y, within, this.model.mask) ?? -1;
  }

  _up(event) {
    const drag = this.drag, { x, y } = this._place(event);
    this.drag = null;
    if (drag?.box && drag.box.width > 8 && drag.box.height > 8) {
      const { box } = drag;
      this.setZoom({ x: [this.x.value(box.x), this.x.value(box.x + box.width)], y: [this.y.value(box.y + box.height), this.y.value(box.y)] });
    } else if (!drag?.box) {
      const row = this.nearest(x, y, event.pointerType === "touch" ? 30 : 20);
      if (row >= 0) this.model.choose(row);
    }
    this.mark();
  }

  _leave() {
    this.pointing = false;
    this.model.point(-1);
    this.mark();
  }

  _key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) this._step(steps[event.key]);
    else if (event.key === "Enter" && this.model.hover >= 0) this.model.choose(this.model.hover);
    else if (event.key === "+" || event.key === "=") this._zoomBy(0.6);
    else if (event.key === "-") this._zoomBy(1 / 0.6);
    else if (event.key === "0") this.setZoom(null);
    else if (event.key === "Escape") this._leave();
    else return;
    event.preventDefault();
  }

  // The next trial along the axis across, of those that are in sight and pass the filters.
  _step(way) {
    const { model, px } = this, from = model.hover;
    let best = -1, least = Infinity;
    for (let i = 0; i < px.length; i++) {
      if (Number.isNaN(px[i]) || !model.mask[i] || i === from) continue;
      const ahead = from < 0 || Number.isNaN(px[from]) ? (way > 0 ? px[i] : -px[i]) : (px[i] - px[from]) * way || (i - from) * way * 1e-6;
      if (ahead > 0 && ahead < least) { least = ahead; best = i; }
    }
    if (best < 0) return;
    this.pointing = true;
    model.point(best);
    this.say(model.lines(best).join(", "));
  }

  _zoomBy(factor) {
    const row = this.model.hover, known = row >= 0 && !Number.isNaN(this.px[row]);
    const zoom = {};
    for (const [axis, scale, at] of [["x", this.x, known ? this.px[row] : NaN], ["y", this.y, known ? this.py[row] : NaN]]) {
      const middle = Number.isNaN(at) ? (scale.start + scale.end) / 2 : at;
      zoom[axis] = [scale.value(middle - (middle - scale.start) * factor), scale.value(middle + (scale.end - middle) * factor)];
    }
    this.setZoom(zoom);
  }

  saveCsv() {
    const { model } = this, rows = [];
    for (let i = 0; i < model.n; i++) {
      if (this.shown[i] && model.mask[i]) rows.push([model.number[i], model.stateWord(i), this.values.x[i], this.values.y[i]]);
    }
    saveCsv(`${this.name}.csv`, ["trial", "outcome", this.specs.x.title, this.specs.y.title], rows);
  }
}

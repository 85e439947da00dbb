// Parallel coordinates: an axis for each parameter and figure, a line for each trial; a range on an axis filters all.
import { written } from "./chart.js";
import { colour } from "./theme.js";
import { View } from "./view.js";
import { make, saveCsv } from "./words.js";

const SIDE = 50, NEAREST = 92;

export class ParallelView extends View {
  // ranged(id, low, high, words): a range was chosen on an axis, of places among its words where it has some; null, null
  // for all of it.
  constructor(host, { ranged = null, sliders = null, ...options }) {
    super(host, options);
    Object.assign(this, { ranged, sliders, ranges: new Map() });
  }

  option(text) {
    const { axes, rows, ranks, keys, best } = this.document, width = SIDE * 2 + NEAREST * (axes.length - 1);
    // On a phone the drawing is as wide as its axes need, and scrolls within its place.
    this.box.style.minWidth = `${width}px`;
    this.shown = [[], [], [], [], [], [], []];
    keys.forEach((key, at) => {
      if (!this.passes || this.passes(key)) this.shown[key === best ? 6 : 5 - ranks[at]].push(at);
    });
    const many = this.shown.reduce((sum, one) => sum + one.length, 0), thin = Math.max(0.16, Math.min(0.75, 120 / Math.max(1, many)));
    const looks = ["faint", "ramp-4", "ramp-3", "ramp-2", "ramp-1", "ramp-0", "best"];
    const step = Math.max(width, this.box.clientWidth) / axes.length;
    return {
      parallel: { left: SIDE, right: SIDE, top: 40, bottom: 16 },
      parallelAxis: axes.map((axis, dim) => ({
        dim, id: axis.id, name: axis.title, type: axis.labels ? "category" : axis.log ? "log" : "value", data: axis.labels, scale: true, nameGap: 14, nameTruncate: { maxWidth: step - 8 },
        nameTextStyle: { ...text, color: colour("ink"), fontWeight: 600 }, axisLine: { lineStyle: { color: colour("edge") } }, axisTick: { lineStyle: { color: colour("edge") } }, splitNumber: 4,
        axisLabel: { ...text, hideOverlap: true, width: Math.min(110, step) - 14, overflow: "truncate", formatter: axis.labels ? undefined : (value) => written[axis.kind](value), textBorderColor: colour("card"), textBorderWidth: 3 },
        areaSelectStyle: { width: 16, borderColor: colour("accent"), color: colour("accent"), opacity: 0.25 },
      })),
      series: this.shown.map((places, at) => ({
        type: "parallel", data: places.map((row) => rows[row].map((value) => value ?? "-")), lineStyle: { color: colour(looks[at]), width: at === 6 ? 2.8 : 1.2, opacity: at === 6 ? 1 : thin },
        inactiveOpacity: 0.03, activeOpacity: at === 6 ? 1 : thin, progressive: 400, emphasis: { lineStyle: { width: 3, opacity: 1, color: colour("ink") } },
      })),
    };
  }

  drawn() {
    for (const [id, range] of this.ranges) this._select(id, range);
    if (this.sliders && this.sliders.dataset.axes !== JSON.stringify(this.document.axes)) this._makeSliders();
  }

  listen() {
    this.chart.on("axisareaselected", ({ parallelAxisId: id, intervals }) => {
      const range = intervals?.[0] ?? null;
      if (String(this.ranges.get(id) ?? "") === String(range ?? "")) return;
      this._set(id, range);
    });
    this.chart.on("mouseover", ({ seriesIndex, dataIndex }) => this.hover?.(this._keyOf(seriesIndex, dataIndex)));
    this.chart.on("mouseout", () => this.hover?.(null));
    this.chart.on("click", ({ seriesIndex, dataIndex }) => this.open?.(this._keyOf(seriesIndex, dataIndex)));
  }

  about({ seriesIndex, dataIndex }) {
    const key = this._keyOf(seriesIndex, dataIndex);
    return this.lines?.(key) ?? [`Trial ${key}`];
  }

  _keyOf(series, at) {
    return this.document.keys[this.shown[series][at]];
  }

  point() {}

  // ------------------------------------------------------------------ ranges

  _select(id, range) {
    this.chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: id, intervals: range ? [range] : [] });
  }

  _set(id, range) {
    if (range) this.ranges.set(id, range);
    else this.ranges.delete(id);
    const axis = this.document.axes.find((one) => one.id === id), [low, high] = range ?? [null, null];
    this.ranged?.(id, low === null ? null : low * (axis.unit ?? 1), high === null ? null : high * (axis.unit ?? 1), axis.labels);
    this._tellSliders();
  }

  clear() {
    for (const id of [...this.ranges.keys()]) { this._select(id, null); this._set(id, null); }
  }

  _ends(axis, at) {
    if (axis.labels) return [0, axis.labels.length - 1];
    const values = this.document.rows.map((row) => row[at]).filter((value) => value !== null && (!axis.log || value > 0));
    return [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
  }

  // Two sliders for each axis: the same ranges for fingers, keys and screen readers.
  _makeSliders() {
    const { axes } = this.document;
    this.sliders.dataset.axes = JSON.stringify(axes);
    this.pairs = axes.map((axis, at) => {
      const ends = this._ends(axis, at), steps = axis.labels ? axis.labels.length - 1 : 100;
      const value = (step) => (axis.labels ? step : axis.log ? ends[0] * (ends[1] / ends[0]) ** (step / steps) : ends[0] + ((ends[1] - ends[0]) * step) / steps);
      const step = (of) => (axis.labels ? of : Math.round(steps * (axis.log ? Math.log(of / ends[0]) / Math.log(ends[1] / ends[0]) : (of - ends[0]) / (ends[1] - ends[0]))));
      const [least, most] = ["least", "greatest"].map((end) => make("input", { type: "range", min: 0, max: steps, step: 1, "aria-label": `${axis.title}, ${end}` }));
      const said = make("span", { class: "soft" });
      const change = (moved) => {
        if (Number(least.value) > Number(most.value)) (moved === least ? most : least).value = moved.value;
        const [low, high] = [Number(least.value), Number(most.value)];
        // A little beyond the ends: what stands on them is within.
        const range = low === 0 && high === steps ? null : axis.labels ? [low - 0.4, high + 0.4] : [value(low) * (1 - 1e-6), value(high) * (1 + 1e-6)];
        this._select(axis.id, range);
        this._set(axis.id, range);
      };
      for (const input of [least, most]) {
        input.addEventListener("input", () => change(input));
        input.addEventListener("keydown", (event) => { if (event.key === "Escape") { least.value = 0; most.value = steps; change(input); } });
      }
      return { axis, least, most, said, steps, step, words: (of) => (axis.labels ? axis.labels[of] : written[axis.kind](value(of))) };
    });
    this.sliders.replaceChildren(...this.pairs.map(({ axis, least, most, said }) => make("div", { class: "plot-range" }, make("span", {}, axis.title, " ", said), least, most)));
    this._tellSliders();
  }

  _tellSliders() {
    for (const { axis, least, most, said, steps, step, words } of this.pairs ?? []) {
      const range = this.ranges.get(axis.id);
      least.value = range ? Math.max(0, axis.labels ? Math.ceil(range[0]) : step(range[0])) : 0;
      most.value = range ? Math.min(steps, axis.labels ? Math.floor(range[1]) : step(range[1])) : steps;
      const [low, high] = [words(Number(least.value)), words(Number(most.value))];
      said.textContent = range ? `${low} to ${high}` : "";
      least.setAttribute("aria-valuetext", range ? low : `${low}, no limit`);
      most.setAttribute("aria-valuetext", range ? high : `${high}, no limit`);
    }
  }

  saveCsv() {
    const { axes, rows, keys, name } = this.document;
    const cells = (row) => row.map((value, at) => (axes[at].labels && value !== null ? axes[at].labels[value] : value));
    saveCsv(`${name}.csv`, ["number", ...axes.map((axis) => axis.title)], this.shown.flat().map((at) => [keys[at], ...cells(rows[at])]));
  }
}

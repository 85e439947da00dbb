// Draws a chart document with two axes, as tradewind.reporting.charts.document describes it: zoomed by dragging and by
// keys, pointed at with mouse, finger and keys.
import { colour } from "./theme.js";
import { View } from "./view.js";
import { figure, money, saveCsv } from "./words.js";

const HELP = "Arrow keys go from one to the next, Enter opens one, plus and minus zoom, 0 shows all.";
const CROSS = "path://M0 2L2 0L6 4L10 0L12 2L8 6L12 10L10 12L6 8L2 12L0 10L4 6Z", PLUS = "path://M5 0H7V5H12V7H7V12H5V7H0V5H5Z";
const STAR = "path://M12 0L15 8.4L24 8.7L16.8 14L19.4 22.6L12 17.5L4.6 22.6L7.2 14L0 8.7L9 8.4Z";
// The mark of each look, with its size in pixels.
const MARKS = { feasible: ["circle", 7], infeasible: ["emptyTriangle", 9], failed: [CROSS, 9], aborted: ["emptyDiamond", 10], lost: [PLUS, 9], best: [STAR, 18], front: ["emptyCircle", 14], cheapest: ["emptyCircle", 20], fastest: ["triangle", 14], try: ["diamond", 17] };
const HOLLOW = ["infeasible", "aborted", "front", "cheapest"], OWN_SIZE = ["front", "cheapest", "fastest", "try"];

export const written = { money, number: figure };

// Round values of a logarithmic axis: 1, 2 and 5 of each power of ten, or fewer where there are many powers.
function logTicks([low, high]) {
  const first = Math.floor(Math.log10(low)), powers = Math.ceil(Math.log10(high)) - first;
  const factors = powers <= 1 ? [1, 1.5, 2, 3, 4, 5, 7] : powers <= 3 ? [1, 2, 5] : powers <= 5 ? [1, 3] : [1], every = Math.ceil(powers / 12);
  const found = [];
  for (let power = 0; power <= powers; power += every) for (const factor of factors) found.push(Number(`${factor}e${first + power}`));
  return found.filter((value) => value >= low && value <= high);
}

export class Chart extends View {
  constructor(host, options = {}) {
    super(host, { help: HELP, ...options });
    this.box.tabIndex = 0;
    this.logs = {};
    this.zoom = null;
    this.at = null;
    this.box.addEventListener("keydown", (event) => this._key(event));
    this.box.addEventListener("blur", () => this._leave());
    this.box.addEventListener("dblclick", () => this.setZoom(null));
  }

  isLog(axis) {
    return this.logs[axis] ?? !!this.document[axis].log;
  }

  setLog(axis, on) {
    this.logs[axis] = on;
    this.setZoom(null);
    this.draw();
  }

  // ------------------------------------------------------------------ drawing

  option(text) {
    const { layers, bound } = this.document, legend = this.host.hasAttribute("data-legend");
    this.shown = [];
    const faint = [], series = [];
    for (const layer of layers) {
      const rows = [];
      layer.rows.forEach((row, at) => {
        if (this.passes && layer.keys && !this.passes(layer.keys[at])) faint.push(row);
        else rows.push(at);
      });
      this.shown.push({ layer, rows });
      series.push({ ...this._series(layer, rows), z: layer.faint ? 2 : 3, name: layer.name });
    }
    if (faint.length) series.push({ ...this._series({ kind: faint[0].length > 2 ? "boxes" : "points", look: "faint", rows: faint }, faint.map((_, at) => at)), silent: true, z: 1 });
    if (bound) series.push(...this._bound(bound));
    return {
      // Charts of the same time stand below each other: their axes begin at the same place.
      grid: this.document.x.kind === "none" ? { left: 4, right: 4, top: 2, bottom: 2 } : { ...(this.document.zooms ? { left: 112, outerBoundsMode: "none" } : { left: 14 }), right: 18, top: this.document.y.title ? 30 : 10, bottom: (this.document.x.title ? 26 : 6) + (this.document.zooms ? 20 : 0) }, xAxis: this._axis("x", text), yAxis: this._axis("y", text),
      dataZoom: ["x", "y"].map((axis) => ({ type: "inside", [`${axis}AxisIndex`]: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: false, moveOnMouseWheel: axis === "x" ? "shift" : false, preventDefaultMouseMove: false })),
      toolbox: { left: -99, itemSize: 0, feature: { dataZoom: { yAxisIndex: this.document.zooms ? "none" : 0, filterMode: "none", brushStyle: { color: colour("accent"), opacity: 0.15 } } } },
      legend, series,
    };
  }

  // The range of an axis: as the document says, or all values with a little air.
  _range(axis) {
    const { [axis]: about, layers, bound } = this.document, log = this.isLog(axis), values = [];
    for (const { kind, rows } of layers) {
      const places = kind === "band" ? { x: [0], y: [1, 2] }[axis] : { x: [0, 2], y: [1, 3] }[axis];
      for (const row of rows) for (const place of places) if (typeof row[place] === "number" && (!log || row[place] > 0)) values.push(row[place]);
    }
    if (axis === "x" && bound) values.push(bound.at);
    let low = Infinity, high = -Infinity;
    for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
    const air = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
    const found = log ? [low / 1.15, high * 1.15] : [low >= 0 ? Math.max(0, low - air) : low - air, high + air];
    const fits = (end) => end !== undefined && (!log || end > 0);
    return [fits(about.low) ? about.low : found[0], fits(about.high) ? about.high : found[1]];
  }

  _axis(name, text) {
    const about = this.document[name], log = this.isLog(name), across = name === "x", range = this._range(name), words = new Map(about.labels);
    const custom = about.labels ? about.labels.map(([at]) => at) : log ? logTicks(this.visible(name, range)) : undefined;
    if (about.kind === "none") return { type: "value", show: false, min: range[0], max: range[1], inverse: !!about.down };
    return {
      type: log ? "log" : "value", min: range[0], max: range[1], inverse: !!about.down, name: about.title ? about.title + (log ? " (log)" : "") : "",
      nameLocation: across ? "middle" : about.down ? "start" : "end", nameGap: across ? 28 : 12, nameTextStyle: { ...text, fontSize: 12.5, align: across ? "center" : "left", padding: across ? 0 : [0, 0, 0, -50] },
      splitNumber: across ? Math.max(2, Math.round(this.box.clientWidth / 130)) : Math.max(2, Math.round(this.document.height / 64)),
      axisLine: { show: across, onZero: false, lineStyle: { color: colour("edge") } }, splitLine: { show: !about.labels && !across, lineStyle: { color: colour("line") } }, minorTick: { show: false },
      axisTick: { show: across, customValues: custom, lineStyle: { color: colour("edge") } },
      axisLabel: { ...text, hideOverlap: true, customValues: custom, showMinLabel: custom || range[0] === 0 ? null : false, showMaxLabel: custom ? null : false, width: about.labels && !across ? (this.document.zooms ? 96 : 150) : undefined, overflow: "truncate", formatter: (value) => (about.labels ? words.get(value) ?? "" : written[about.kind](value)) },
    };
  }

  // Numbers at the ends of an axis of which a part may be in sight.
  visible(name, range = this._range(name)) {
    const zoom = this.zoom?.[name];
    if (!zoom) return range;
    const log = this.isLog(name), [low, high] = log ? range.map(Math.log10) : range;
    const ends = zoom.map((share) => low + ((high - low) * share) / 100);
    return log ? ends.map((end) => 10 ** end) : ends;
  }

  _series(layer, rows) {
    const data = rows.map((at) => layer.rows[at]), paint = colour(layer.look);
    const line = { type: "line", data, showSymbol: false, silent: true, step: layer.kind === "line" ? false : "end", lineStyle: { width: layer.kind === "area" ? 0 : 2.2, color: paint, join: "round" } };
    switch (layer.kind) {
      case "points": {
        const [symbol, size] = MARKS[layer.look] ?? ["circle", 7], small = data.length > 3000 ? 0.6 : data.length > 300 ? 0.8 : 1;
        const hollow = HOLLOW.includes(layer.look), best = layer.look === "best", full = best || OWN_SIZE.includes(layer.look);
        const style = { color: paint, borderWidth: hollow ? 1.7 : best ? 1 : 0, borderColor: best ? colour("card") : undefined, opacity: layer.faint ? 0.35 : hollow || full ? 1 : 0.7 };
        return { type: "scatter", data, symbol, symbolSize: size * (full ? 1 : small), itemStyle: style, emphasis: { scale: 1.6, itemStyle: { opacity: 1, borderColor: colour("ink"), borderWidth: 2 } } };
      }
      case "area": return { ...line, areaStyle: { color: paint, opacity: 0.25 } };
      case "line": case "steps": return line;
      default: return this._custom(layer, rows, data, paint);
    }
  }

  _custom(layer, rows, data, paint) {
    const strong = new Set(layer.strong), dims = layer.kind === "band" ? { x: 0, y: [1, 2] } : { x: [0, 2], y: [1, 3] };
    const draw = {
      band: (item, api) => item.dataIndexInside === 0 && { type: "polygon", shape: { points: [...data.map(([x, low]) => api.coord([x, low])), ...data.map(([x, , high]) => api.coord([x, high])).reverse()] }, style: { fill: paint, opacity: 0.18 } },
      segments: (item, api) => { const [[x1, y1], [x2, y2]] = this._ends(api); return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: layer.looks ? colour(layer.looks[rows[item.dataIndex]]) : paint, lineWidth: 1.5, opacity: layer.faint ? 0.35 : 1 } }; },
      // All curves are one shape: a graph may have more of them than a page can have shapes.
      links: (item, api) => item.dataIndexInside === 0 && { type: "path", shape: { pathData: data.map(([x1, y1, x2, y2]) => curve(api.coord([x1, y1]), api.coord([x2, y2]))).join("") }, style: { fill: "none", stroke: paint, lineWidth: layer.faint ? 1 : 1.8, opacity: layer.faint ? Math.min(0.75, Math.max(0.12, 60 / data.length)) : 1 } },
      boxes: (item, api) => this._box(api, layer, rows[item.dataIndex], paint, item.coordSys, strong),
    };
    return { type: "custom", clip: true, data, encode: dims, silent: layer.kind !== "boxes", renderItem: (item, api) => draw[layer.kind](item, api) || undefined };
  }

  _ends(api) {
    return [api.coord([api.value(0), api.value(1)]), api.coord([api.value(2), api.value(3)])];
  }

  _box(api, layer, at, paint, area, strong) {
    const [[x1, y1], [x2, y2]] = this._ends(api), fill = layer.looks ? colour(layer.looks[at]) : paint;
    const full = { x: Math.min(x1, x2), y: Math.min(y1, y2), width: Math.max(1, Math.abs(x2 - x1)), height: Math.max(1, Math.abs(y2 - y1)) };
    const shape = echarts.graphic.clipRectByRect(full, area);
    if (!shape) return undefined;
    const words = layer.texts?.[at], fits = words && shape.width > 30 && shape.height >= 11;
    const outline = strong.has(at) ? { stroke: colour("ink"), lineWidth: 1.7 } : {};
    return {
      type: "rect", shape, style: { fill, opacity: layer.faint ? 0.45 : 0.95, ...outline }, emphasis: { style: { stroke: colour("ink"), lineWidth: 2 } },
      textContent: fits ? { style: { text: words, fill: layer.faint ? colour("ink") : dark(fill) ? "#fff" : "#10151b", fontSize: 11, width: shape.width - 8, overflow: "truncate" } } : undefined, textConfig: { position: "inside" },
    };
  }

  _bound({ at, words }) {
    const [, high] = this._range("x"), [low, top] = this._range("y");
    const label = { type: "text", style: { text: words, fill: colour("ink"), font: "600 12.5px sans-serif" }, z2: 5 };
    return [
      { type: "custom", clip: true, silent: true, z: 0, data: [[at, low, high, top]], encode: { x: [0, 2], y: [1, 3] }, renderItem: (item, api) => {
        const [[x1, y1], [x2, y2]] = this._ends(api), area = item.coordSys, left = x1 > area.x + area.width / 2;
        return { type: "group", children: [
          { type: "rect", shape: { x: x1, y: y2, width: x2 - x1, height: y1 - y2 }, style: { fill: colour("late") } },
          { type: "line", shape: { x1, y1, x2: x1, y2 }, style: { stroke: colour("ink"), lineDash: [5, 4] } },
          { ...label, x: x1 + (left ? -6 : 6), y: area.y + 4, style: { ...label.style, align: left ? "right" : "left" } },
        ] };
      } },
    ];
  }

  // ------------------------------------------------------------------ pointing

  about({ seriesIndex, dataIndex }) {
    const { layer, rows } = this.shown[seriesIndex], at = rows[dataIndex], key = layer.keys?.[at];
    return (this.lines && key !== undefined ? this.lines(key) : layer.words?.[at]?.split("\n")) ?? [];
  }

  listen() {
    this.chart.on("click", ({ seriesIndex, dataIndex }) => this._open(seriesIndex, dataIndex));
    this.chart.on("mouseover", ({ seriesIndex, dataIndex }) => this.hover?.(this._keyOf(seriesIndex, dataIndex)));
    this.chart.on("globalout", () => this.hover?.(null));
    this.chart.on("mouseout", () => this.hover?.(null));
    this.chart.on("datazoom", () => this._zoomed());
  }

  drawn() {
    // A drag zooms; ECharts forgets that with each option.
    this.chart.dispatchAction({ type: "takeGlobalCursor", key: "dataZoomSelect", dataZoomSelectActive: true });
  }

  _keyOf(series, at) {
    const found = this.shown[series];
    return found?.layer.keys?.[found.rows[at]] ?? null;
  }

  _open(series, at) {
    const key = this._keyOf(series, at);
    if (key !== null) this.open?.(key);
  }

  // Mark a thing that is pointed at elsewhere.
  point(key) {
    if (!this.chart || this.at) return;
    this.chart.dispatchAction({ type: "downplay" });
    if (key === null) return;
    this.shown.forEach(({ layer, rows }, seriesIndex) => {
      const place = layer.keys ? rows.findIndex((at) => layer.keys[at] === key) : -1;
      if (place >= 0) this.chart.dispatchAction({ type: "highlight", seriesIndex, dataIndex: place });
    });
  }

  _key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.box) return;
    const acts = {
      ArrowRight: () => this._step(1), ArrowLeft: () => this._step(-1), ArrowUp: () => this._step(1), ArrowDown: () => this._step(-1),
      Enter: () => this.at && this._open(...this.at), "+": () => this.zoomBy(0.6), "=": () => this.zoomBy(0.6), "-": () => this.zoomBy(1 / 0.6), 0: () => this.setZoom(null), Escape: () => this._leave(),
    };
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  }

  // The next thing along the axis across, of those that are in sight and can be said something of.
  _step(way) {
    const found = new Map(), [low, high] = this.visible("x"), [bottom, top] = this.visible("y");
    this.shown.forEach(({ layer, rows }, series) => {
      if (!(layer.keys && this.lines) && !layer.words) return;
      rows.forEach((at, place) => {
        const [x, y] = layer.rows[at];
        // A trial that has a point and a ring is one thing, as what is drawn last.
        if (x >= low && x <= high && y >= bottom && y <= top) found.set(this._keyOf(series, place) ?? `${series} ${place}`, [series, place, x, y]);
      });
    });
    if (!found.size) return;
    // Across as a rule; in a graph, which has no axes, down from layer to layer.
    const [first, second] = this.document.x.kind === "none" ? [3, 2] : [2, 3];
    const things = [...found.values()].sort((a, b) => a[first] - b[first] || a[second] - b[second] || a[0] - b[0]);
    const from = this.at ? things.findIndex(([series, place]) => series === this.at[0] && place === this.at[1]) : way > 0 ? -1 : things.length;
    const next = things[Math.min(things.length - 1, Math.max(0, from + way))];
    this._leave();
    const [seriesIndex, dataIndex] = this.at = next.slice(0, 2);
    this.chart.dispatchAction({ type: "highlight", seriesIndex, dataIndex });
    this.chart.dispatchAction({ type: "showTip", seriesIndex, dataIndex });
    this.say(this.about({ seriesIndex, dataIndex }).join(", "));
    this.hover?.(this._keyOf(seriesIndex, dataIndex));
  }

  _leave() {
    if (!this.at) return;
    this.at = null;
    this.chart.dispatchAction({ type: "downplay" });
    this.chart.dispatchAction({ type: "hideTip" });
    this.hover?.(null);
  }

  // ------------------------------------------------------------------ zoom

  // zoom: shares of both axes in per cent, {x: [from, to], y: [from, to]}; null shows all.
  setZoom(zoom) {
    const all = zoom ?? { x: [0, 100], y: [0, 100] };
    this.chart?.dispatchAction({ type: "dataZoom", batch: ["x", "y"].map((axis, at) => ({ dataZoomIndex: at, start: all[axis][0], end: all[axis][1] })) });
  }

  zoomBy(factor) {
    const now = this.zoom ?? { x: [0, 100], y: [0, 100] };
    const point = this.at ? this.shown[this.at[0]].layer.rows[this.shown[this.at[0]].rows[this.at[1]]] : null;
    const zoom = {};
    ["x", "y"].forEach((axis, place) => {
      const [from, to] = now[axis], range = this._range(axis).map((end) => (this.isLog(axis) ? Math.log10(end) : end));
      const value = point && (this.isLog(axis) ? Math.log10(point[place]) : point[place]);
      const middle = point ? (100 * (value - range[0])) / (range[1] - range[0]) : (from + to) / 2;
      zoom[axis] = this.document.zooms === "x" && axis === "y" ? [0, 100] : [Math.max(0, middle - (middle - from) * factor), Math.min(100, middle + (to - middle) * factor)];
    });
    this.setZoom(zoom);
  }

  _zoomed() {
    const [x, y] = this.chart.getOption().dataZoom.slice(0, 2).map(({ start, end }) => [start, end]);
    const all = [x, y].every(([from, to]) => from < 0.01 && to > 99.99);
    this.zoom = all ? null : { x, y };
    this.host.dispatchEvent(new CustomEvent("zoomed", { detail: !all }));
    if (this.isLog("x") || this.isLog("y")) this.chart.setOption(Object.fromEntries(["x", "y"].map((axis) => [`${axis}Axis`, this._axis(axis, { color: colour("soft"), fontSize: 12 })])));
  }

  saveCsv() {
    const { name, x, y } = this.document, rows = [];
    for (const { layer, rows: shown } of this.shown) {
      if (layer.keys) for (const at of shown) rows.push([layer.keys[at], layer.name, ...layer.rows[at]]);
    }
    saveCsv(`${name}.csv`, ["number", "of", x.title, y.title], rows);
  }
}

function curve([x1, y1], [x2, y2]) {
  const middle = (y1 + y2) / 2;
  return `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
}

// Whether white words can be read better on a colour than black ones.
function dark(paint) {
  const [red, green, blue] = paint.startsWith("#") ? [1, 3, 5].map((at) => parseInt(paint.slice(at, at + 2), 16)) : paint.match(/\d+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 140;
}

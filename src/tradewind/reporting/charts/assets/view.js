// What all charts share: a place that follows the size and the colours of the page, words for screen readers, PNG files.
import "./echarts.js";
import { colour, onTheme } from "./theme.js";
import { make, save } from "./words.js";

export class View {
  // host: an element of the page. lines(key): what is said of a thing of the table; open(key): it was chosen;
  // hover(key): it is pointed at, null for none.
  constructor(host, { help = "", lines = null, open = null, hover = null } = {}) {
    Object.assign(this, { host, help, lines, open, hover, document: null, passes: null });
    this.said = make("div", { class: "for-readers", role: "status" });
    this.box = make("div", { class: "plot-box", role: "group", ".view": this });
    host.replaceChildren(this.box, this.said);
    new ResizeObserver(() => this._resize()).observe(this.box);
    onTheme(() => this.draw());
  }

  // Draw a chart document, or another one instead of it.
  show(document) {
    this.document = document;
    this.box.setAttribute("aria-label", `${document.title}. ${this.help}`.trim());
    this.box.style.height = `${document.height}px`;
    this.draw();
  }

  // Keep only things whose key passes; null keeps all.
  filter(passes) {
    this.passes = passes;
    this.draw();
  }

  draw() {
    this._frame ??= requestAnimationFrame(() => { this._frame = null; this._draw(); });
  }

  _draw() {
    if (!this.document || !this.box.clientWidth) return;
    if (!this.chart) {
      this.chart = echarts.init(this.box, null, { renderer: "canvas" });
      this.listen();
    }
    const font = getComputedStyle(this.box).fontFamily;
    const text = { fontFamily: font, fontSize: 12, color: colour("soft") };
    this.chart.setOption({ animation: false, textStyle: text, tooltip: this._tooltip(text), ...this.option(text) }, { replaceMerge: ["series"] });
    this.drawn?.();
  }

  _tooltip(text) {
    return {
      trigger: "item", confine: true, backgroundColor: colour("raised"), borderColor: colour("line"), padding: [8, 11], transitionDuration: 0,
      textStyle: { ...text, color: colour("ink"), fontSize: 13 }, className: "plot-tip", formatter: (item) => this._tip(this.about(item)),
    };
  }

  // Elements, not markup: names and reasons are anybody's words.
  _tip(lines) {
    return make("div", {}, ...lines.map((line, at) => make(at ? "div" : "strong", {}, line)));
  }

  _resize() {
    if (!this.chart) return this.draw();
    this.chart.resize({ width: this.box.clientWidth, height: this.document.height });
  }

  say(words) {
    this.said.textContent = words;
  }

  savePng() {
    this.chart.renderToCanvas({ pixelRatio: 2, backgroundColor: colour("card") }).toBlob((blob) => save(`${this.document.name}.png`, blob));
  }
}

// A menu of a chart. entries: {words, act()}, or {words, checked(), act(on)} for one with a tick.
export function tools(host, entries) {
  const menu = make("div", { class: "plot-menu" });
  const summary = make("summary", { class: "button small quiet", "aria-label": `Tools of ${host.dataset.title}` }, "Tools");
  const details = make("details", { class: "plot-tools" }, summary, menu);
  const ticks = [];
  for (const { words, checked, act } of entries) {
    if (checked) {
      const tick = make("input", { type: "checkbox" });
      tick.addEventListener("change", () => act(tick.checked));
      ticks.push(() => { tick.checked = checked(); });
      menu.append(make("label", {}, tick, words));
    } else {
      const button = make("button", { type: "button", class: "plain" }, words);
      button.addEventListener("click", () => { details.open = false; act(); });
      menu.append(button);
    }
  }
  details.addEventListener("toggle", () => ticks.forEach((tell) => tell()));
  details.addEventListener("keydown", (event) => { if (event.key === "Escape") { details.open = false; summary.focus(); } });
  document.addEventListener("pointerdown", (event) => { if (!details.contains(event.target)) details.open = false; });
  host.append(details);
  return details;
}

// The tools of a chart, and a button that shows all of it again. name: what it is called; logs: axes that may be
// logarithmic; more: further entries of the menu, in which `csv` and `zoom` are others than its own.
export function chartTools(head, view, name, { logs = [], zoom = [], csv = () => view.saveCsv(), more = [] } = {}) {
  const all = make("button", { type: "button", class: "button small", hidden: true }, "Show all");
  all.addEventListener("click", () => view.setZoom(null));
  view.host.addEventListener("zoomed", (event) => { all.hidden = !event.detail; });
  head.dataset.title = name;
  head.append(all);
  return tools(head, [
    ...logs.map((axis) => ({ words: `Logarithmic ${axis === "x" ? "across" : "upwards"}`, checked: () => view.isLog(axis), act: (on) => view.setLog(axis, on) })),
    ...zoom.map(([words, factor]) => ({ words, act: () => view.zoomBy(factor) })),
    { words: "Save as PNG", act: () => view.savePng() }, ...(csv ? [{ words: "Save as CSV", act: csv }] : []), ...more,
  ]);
}

// The table of a chart's data.
export function dataTable({ columns, rows }, caption) {
  const head = columns.map((name, at) => make("th", { scope: "col", class: at ? "right" : "" }, name));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell, at) => make(at ? "td" : "th", at ? { class: "right" } : { scope: "row" }, cell))));
  return make("div", { class: "plot-table", tabindex: "0", role: "region", "aria-label": caption },
    make("table", {}, make("caption", { class: "for-readers" }, caption), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body)));
}

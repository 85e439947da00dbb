// What all drawings share: a place that follows the size of the page, layers, a tooltip, tools, and PNG files.
import { onTheme, theme } from "./theme.js";
import { draw, make, save } from "./words.js";

// Draws lines and words of axes either into SVG, for the page, or onto a canvas, for a PNG file.
export class SvgPen {
  constructor(svg) { this.svg = svg; }
  line(x1, y1, x2, y2, style) { this.svg.append(draw("line", { x1, y1, x2, y2, class: style })); }
  rect(x, y, width, height, style) { this.svg.append(draw("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), class: style })); }
  text(x, y, words, style, anchor = "start") { this.svg.append(draw("text", { x, y, class: style, "text-anchor": anchor }, words)); }
}

export class CanvasPen {
  constructor(context, colours) { this.context = context; this.colours = colours; }

  line(x1, y1, x2, y2, style) {
    const { context, colours } = this;
    context.strokeStyle = { grid: colours.line, axis: colours.edge, deadline: colours.ink }[style] ?? colours.soft;
    context.lineWidth = 1;
    context.setLineDash(style === "deadline" ? [5, 4] : []);
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    context.setLineDash([]);
  }

  rect(x, y, width, height, style) {
    this.context.fillStyle = this.colours[style] ?? this.colours.line;
    this.context.fillRect(x, y, width, height);
  }

  text(x, y, words, style, anchor = "start") {
    const { context, colours } = this;
    context.font = `${style === "strong" ? 600 : 400} ${style === "tick" ? 12 : 12.5}px ${colours.font}`;
    context.fillStyle = style === "strong" ? colours.ink : colours.soft;
    context.textAlign = anchor === "middle" ? "center" : anchor;
    context.fillText(words, x, y);
  }
}

let measuring = null;

export function textWidth(words, size = 12) {
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = `${size}px ${theme().font}`;
  return measuring.measureText(words).width;
}

export class Frame {
  // host: an element of the page; label: what is drawn, in words; height: pixels.
  constructor(host, { label, height, name, help = "" }) {
    Object.assign(this, { host, height, name });
    this.base = make("canvas", { "aria-hidden": "true", class: "layer" });
    this.svg = draw("svg", { class: "layer axes", "aria-hidden": "true" });
    this.over = make("canvas", { "aria-hidden": "true", class: "layer" });
    this.tip = make("div", { class: "plot-tip", hidden: true, "aria-hidden": "true" });
    this.said = make("div", { class: "for-readers", role: "status" });
    this.box = make("div", { class: "plot-box", tabindex: "0", role: "group", "aria-label": `${label}. ${help}`.trim() }, this.svg, this.base, this.over, this.tip);
    this.box.style.height = `${height}px`;
    host.replaceChildren(this.box, this.said);
    this.width = 0;
    this._drawing = 0;
    new ResizeObserver(() => this._resize()).observe(this.box);
    onTheme(() => this.redraw());
  }

  setHeight(height) {
    if (height === this.height) return;
    this.height = height;
    this.box.style.height = `${height}px`;
  }

  _resize() {
    const width = Math.floor(this.box.clientWidth), ratio = devicePixelRatio || 1;
    if (!width || (width === this.width && this.height === this.drawnHeight && ratio === this.ratio)) return;
    Object.assign(this, { width, ratio, drawnHeight: this.height });
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.redrawNow();
  }

  // Draw all anew before the next frame, however often it is asked for.
  redraw() {
    if (!this._drawing) this._drawing = requestAnimationFrame(() => this.redrawNow());
  }

  redrawNow() {
    cancelAnimationFrame(this._drawing);
    this._drawing = 0;
    if (!this.width) return;
    this.layout();
    this.svg.replaceChildren();
    this.axes(new SvgPen(this.svg));
    const context = this.context(this.base);
    context.clearRect(0, 0, this.width, this.height);
    this.paint(context, theme());
    this.mark();
  }

  context(canvas) {
    const context = canvas.getContext("2d");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    return context;
  }

  // Draw what is pointed at, on the layer above.
  mark() {
    if (!this.width) return;
    const context = this.context(this.over);
    context.clearRect(0, 0, this.width, this.height);
    this.highlight(context, theme());
  }

  // Overridden by what is drawn.
  layout() {}
  axes() {}
  paint() {}
  highlight() {}

  showTip(x, y, lines) {
    if (!lines?.length) { this.tip.hidden = true; return; }
    this.tip.replaceChildren(...lines.map((line, place) => make(place ? "div" : "strong", {}, line)));
    this.tip.hidden = false;
    const width = this.tip.offsetWidth, height = this.tip.offsetHeight;
    const left = x + 14 + width > this.width ? Math.max(0, x - 14 - width) : x + 14;
    const top = Math.min(Math.max(0, y - height / 2), Math.max(0, this.height - height));
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  say(words) {
    this.said.textContent = words;
  }

  savePng() {
    const canvas = document.createElement("canvas"), colours = theme(), ratio = Math.max(2, this.ratio);
    canvas.width = this.width * ratio;
    canvas.height = this.height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = colours.card;
    context.fillRect(0, 0, this.width, this.height);
    const above = this.box.firstChild === this.base;
    if (above) this.paint(context, colours, true);
    this.axes(new CanvasPen(context, colours));
    if (!above) this.paint(context, colours, true);
    canvas.toBlob((blob) => save(`${this.name}.png`, blob));
  }
}

// The tools of a drawing: a menu with ticks and acts. entries: {words, act} or {words, checked, act(checked)}.
export function tools(host, entries) {
  const menu = make("div", { class: "plot-menu" });
  for (const entry of entries) {
    if (entry.checked === undefined) {
      const button = make("button", { type: "button", class: "plain" }, entry.words);
      button.addEventListener("click", () => { details.open = false; entry.act(); });
      menu.append(button);
    } else {
      const box = make("input", { type: "checkbox", ".checked": entry.checked });
      box.addEventListener("change", () => entry.act(box.checked));
      menu.append(make("label", {}, box, " " + entry.words));
    }
  }
  const details = make("details", { class: "plot-tools" }, make("summary", { class: "button small quiet", "aria-label": `Tools of ${host.dataset.title}` }, "Tools"), menu);
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
  });
  document.addEventListener("click", (event) => { if (!details.contains(event.target)) details.open = false; });
  host.append(details);
  return details;
}

// A table of a drawing's figures for those who do not see it, opened and closed by its tool.
export function figuresTable(host, caption, header, rows) {
  const head = make("tr", {}, ...header.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, String(cell)))));
  const table = make("table", {}, make("caption", { class: "for-readers" }, caption), make("thead", {}, head), make("tbody", {}, ...body));
  host.replaceChildren(make("div", { class: "scroll plot-table", tabindex: "0", role: "region", "aria-label": caption }, table));
}

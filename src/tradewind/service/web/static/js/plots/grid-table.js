// A table of thousands of rows, of which only those in sight are in the page: sorted, walked through with keys, and
// told to screen readers as the whole table that it stands for.
import { make, saveCsv } from "../charts/words.js";

const ROW = 34, SPARE = 6;

const pen = document.createElement("canvas").getContext("2d");

function textWidth(words, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(words).width;
}

export class GridTable {
  // columns: {id, title, right?, value(row): for sorting, text(row): shown, state?(row): a mark before it, most?: px}
  constructor(host, { label, columns, rows, height, name, open = null, empty = "Nothing passes the filters." }) {
    Object.assign(this, { host, label, columns, rowCount: rows, name, open, empty });
    this.order = Int32Array.from({ length: rows }, (_, place) => place);
    this.sorting = null;
    this.active = -1;
    this.passes = null;
    this.lines = [];
    this.head = make("thead");
    this.before = make("tbody", { "aria-hidden": "true" });
    this.body = make("tbody");
    this.after = make("tbody", { "aria-hidden": "true" });
    this.gaps = [this.before, this.after].map((part) => part.appendChild(make("tr")).appendChild(make("td")));
    this.group = make("colgroup");
    const keys = `Arrow keys go through the rows${open ? ", Enter opens one" : ""}.`;
    this.table = make("table", { role: "grid", tabindex: "0", "aria-label": label, "aria-description": keys, "aria-rowcount": "-1" }, this.group, this.head, this.before, this.body, this.after);
    this.nothing = make("p", { class: "soft grid-empty", hidden: true }, empty);
    this.box = make("div", { class: "grid-box" }, this.table, this.nothing);
    this.box.style.maxHeight = `${height}px`;
    host.replaceChildren(this.box);
    this.box.addEventListener("scroll", () => this._later(), { passive: true });
    this.table.addEventListener("keydown", (event) => this._key(event));
    this.head.addEventListener("keydown", (event) => this._headKey(event));
    this.body.addEventListener("click", (event) => this._click(event));
    new ResizeObserver(() => this._later()).observe(this.box);
    this._header();
    this._arrange();
  }

  // ------------------------------------------------------------------ what is shown

  setColumns(columns) {
    this.columns = columns;
    if (this.sorting && !columns.some((one) => one.id === this.sorting.id)) this.sorting = null;
    this._header();
    this._arrange();
  }

  // passes(row): whether a row is shown.
  setRows(count, passes = this.passes) {
    this.rowCount = count;
    this.passes = passes;
    this._arrange();
  }

  sort(id, down = null) {
    const same = this.sorting?.id === id;
    this.sorting = { id, down: down ?? (same ? !this.sorting.down : false) };
    this._header();
    this._arrange();
    this.box.scrollTop = 0;
  }

  _arrange() {
    const rows = [];
    for (let row = 0; row < this.rowCount; row++) if (!this.passes || this.passes(row)) rows.push(row);
    if (this.sorting) {
      const { value } = this.columns.find((one) => one.id === this.sorting.id), sign = this.sorting.down ? -1 : 1;
      const keys = new Map(rows.map((row) => [row, value(row)]));
      rows.sort((a, b) => compare(keys.get(a), keys.get(b), sign) || a - b);
    }
    this.order = rows;
    this.table.setAttribute("aria-rowcount", rows.length + 1);
    this.nothing.hidden = rows.length > 0;
    if (this.active >= 0 && !rows.includes(this.active)) this._activate(-1);
    this._widths();
    this._later();
  }

  _header() {
    const row = make("tr", { "aria-rowindex": "1" });
    const first = Math.max(0, this.columns.findIndex((one) => one.id === this.sorting?.id));
    this.columns.forEach((column, place) => {
      const sorted = this.sorting?.id === column.id ? (this.sorting.down ? "descending" : "ascending") : "none";
      const arrow = sorted === "none" ? "" : sorted === "ascending" ? " ▲" : " ▼";
      const button = make("button", { type: "button", class: "plain", tabindex: place === first ? "0" : "-1" }, column.title, make("span", { "aria-hidden": "true", class: "arrow" }, arrow));
      button.addEventListener("click", () => this.sort(column.id));
      row.append(make("th", { scope: "col", role: "columnheader", "aria-sort": sorted, "aria-colindex": place + 1, class: column.right ? "right" : "" }, button));
    });
    const had = this.head.contains(document.activeElement);
    this.head.replaceChildren(row);
    if (had) row.cells[first].firstChild.focus();
  }

  // Left and right go along the headings: only one of them is a stop of the Tab key.
  _headKey(event) {
    const buttons = [...this.head.querySelectorAll("button")], at = buttons.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (event.key === "ArrowDown") this.table.focus();
    else if (buttons[to]) { event.target.tabIndex = -1; buttons[to].tabIndex = 0; buttons[to].focus(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  _widths() {
    // Every row cannot be measured: some hundreds over all of them say enough.
    const sample = Array.from({ length: Math.min(200, this.rowCount) }, (_, place) => Math.floor((place * this.rowCount) / Math.min(200, this.rowCount)));
    const widths = this.columns.map((column, place) => {
      const texts = sample.map((row) => textWidth(column.text(row), 14.5)), marks = column.mark ? 22 : 0;
      return Math.ceil(Math.min(column.most ?? 260, Math.max(textWidth(column.title, 13.5) + 26, marks + Math.max(0, ...texts))) + (place ? 26 : 34));
    });
    this.group.replaceChildren(...widths.map((width) => {
      const column = make("col");
      column.style.width = `${width}px`;
      return column;
    }));
    this.table.style.minWidth = `${widths.reduce((sum, width) => sum + width, 0)}px`;
  }

  // ------------------------------------------------------------------ rows in sight

  _later() {
    this._frame ??= requestAnimationFrame(() => { this._frame = null; this._render(); });
  }

  _render() {
    const head = this.head.offsetHeight || ROW, height = this.box.clientHeight - head;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const last = Math.min(this.order.length, first + Math.ceil(height / ROW) + 2 * SPARE);
    while (this.lines.length < last - first) this.lines.push(this._line());
    while (this.lines.length > last - first) this.lines.pop().remove();
    this.lines.forEach((line, place) => this._fill(line, first + place));
    if (this.body.childElementCount !== this.lines.length) this.body.append(...this.lines);
    this._gap(0, first * ROW);
    this._gap(1, (this.order.length - last) * ROW);
    this._point();
  }

  _gap(which, height) {
    const cell = this.gaps[which];
    cell.colSpan = this.columns.length;
    cell.style.height = `${height}px`;
    cell.parentElement.parentElement.hidden = !height;
  }

  _line() {
    return make("tr", { id: `row-${this.name}-${GridTable.made++}` });
  }

  _fill(line, place) {
    const row = this.order[place], columns = this.columns;
    while (line.cells.length < columns.length) line.append(make("td", { role: "gridcell" }));
    while (line.cells.length > columns.length) line.lastChild.remove();
    line.row = row;
    line.setAttribute("aria-rowindex", place + 2);
    line.setAttribute("aria-selected", String(row === this.active));
    columns.forEach((column, at) => {
      const cell = line.cells[at], text = column.text(row);
      cell.className = column.right ? "right" : "";
      cell.setAttribute("aria-colindex", at + 1);
      if (column.mark) {
        const mark = column.mark(row);
        cell.replaceChildren(make("span", { class: `mark-${mark}`, "aria-hidden": "true" }), text);
      } else if (cell.textContent !== text || cell.childElementCount) cell.textContent = text;
      if (text.length > 24) cell.title = text;
      else cell.removeAttribute("title");
    });
  }

  // ------------------------------------------------------------------ keys and pointing

  // Show a row as the one that is pointed at elsewhere.
  point(row) {
    this.pointed = row;
    this._point();
  }

  _point() {
    for (const line of this.lines) line.classList.toggle("pointed", line.row === this.pointed);
  }

  _activate(row) {
    this.active = row;
    for (const line of this.lines) line.setAttribute("aria-selected", String(line.row === row));
  }

  show(row) {
    const place = this.order.indexOf(row);
    if (place < 0) return;
    const head = this.head.offsetHeight, top = place * ROW, height = this.box.clientHeight - head;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW > this.box.scrollTop + height) this.box.scrollTop = top + ROW - height;
    this._activate(row);
    this._render();
    const line = this.lines.find((one) => one.row === row);
    if (line) this.table.setAttribute("aria-activedescendant", line.id);
    this.said?.(row);
  }

  _key(event) {
    if (event.target !== this.table || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 2), at = this.order.indexOf(this.active), end = this.order.length - 1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: end }[event.key];
    if (to !== undefined && end >= 0) this.show(this.order[Math.min(end, Math.max(0, to))]);
    else if (event.key === "Enter" && this.active >= 0 && this.open) this.open(this.active);
    else return;
    event.preventDefault();
  }

  _click(event) {
    const line = event.target.closest("tr");
    if (line?.row === undefined || getSelection()?.toString()) return;
    this.show(line.row);
    this.open?.(line.row);
  }

  saveCsv() {
    saveCsv(`${this.name}.csv`, this.columns.map((one) => one.title), this.order.map((row) => this.columns.map((one) => one.plain?.(row) ?? one.text(row))));
  }
}

GridTable.made = 0;

// Numbers by size and words by the alphabet; what is not known stands last, whichever way it is sorted.
function compare(a, b, sign) {
  const lacksA = a === null || a === "" || Number.isNaN(a), lacksB = b === null || b === "" || Number.isNaN(b);
  if (lacksA || lacksB) return lacksA - lacksB;
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
}

// Draws the charts of a page of one file, each where an element has its name; their tables are there without a script.
import { Chart } from "./chart.js";
import { ParallelView } from "./parallel.js";
import { tools } from "./view.js";
import { make } from "./words.js";

const given = JSON.parse(document.getElementById("charts").textContent);

const views = [];

for (const host of document.querySelectorAll("[data-chart]")) {
  const drawn = given[host.dataset.chart], head = make("div", { class: "plot-head", "data-title": drawn.title });
  const view = drawn.axes ? new ParallelView(host, { lines: (number) => [`Trial ${number}`] }) : new Chart(host);
  host.before(head);
  if (!drawn.axes) {
    const all = make("button", { type: "button", class: "button", hidden: true }, "Show all");
    all.addEventListener("click", () => view.setZoom(null));
    host.addEventListener("zoomed", (event) => { all.hidden = !event.detail; });
    head.append(all);
  }
  tools(head, [{ words: "Save as PNG", act: () => view.savePng() }, { words: "Save as CSV", act: () => view.saveCsv() }]);
  view.show(drawn);
  // Charts of the same time show the same part of it.
  if (drawn.zooms) {
    for (const other of views) {
      for (const [one, two] of [[view, other], [other, view]]) one.host.addEventListener("zoomed", () => { if (String(one.zoom?.x) !== String(two.zoom?.x)) two.setZoom(one.zoom); });
    }
    views.push(view);
  }
}
for (const table of document.querySelectorAll("details.chart-table")) table.open = false;

// Draws the charts of a page of one file, each where an element has its name; their tables are there without a script.
import { Chart } from "./chart.js";
import { ParallelView } from "./parallel.js";
import { chartTools } from "./view.js";
import { make } from "./words.js";

const given = JSON.parse(document.getElementById("charts").textContent);

const views = [];

for (const host of document.querySelectorAll("[data-chart]")) {
  const drawn = given[host.dataset.chart], head = make("div", { class: "plot-head" });
  const view = drawn.axes ? new ParallelView(host, { lines: (number) => [`Trial ${number}`] }) : new Chart(host);
  host.before(head);
  chartTools(head, view, drawn.title);
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

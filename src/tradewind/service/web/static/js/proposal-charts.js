// The charts of a proposal. They stay while the answers below them change: each is shown its new document.
import { Chart } from "./charts/chart.js";

const charts = new Map();

// host: has the places of the charts and their data; choose(place): a configuration was chosen by its point.
export function drawProposal(host, choose) {
  const data = JSON.parse(host.querySelector("[data-proposal-data]")?.textContent ?? "{}");
  for (const place of host.querySelectorAll("[data-proposal-chart]")) {
    const name = place.dataset.proposalChart;
    if (!charts.has(name)) charts.set(name, new Chart(place, { open: choose }));
    const chart = charts.get(name);
    if (chart.host !== place) place.replaceWith(chart.host);
    chart.show(data[name]);
  }
  host.querySelectorAll('[name="choice"]').forEach((radio, at) => {
    const point = (key) => { for (const chart of charts.values()) chart.point(key); };
    const option = radio.closest("label");
    option.addEventListener("pointerenter", () => point(at));
    option.addEventListener("pointerleave", () => point(null));
  });
}

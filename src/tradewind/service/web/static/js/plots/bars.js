// Figures that are tables with bars in their cells: read by eyes and by screen readers alike.
import { make, money } from "../charts/words.js";

function bar(share, style = "") {
  return make("meter", { class: style, min: 0, max: 1, value: share, "aria-hidden": "true" });
}

function table(caption, names, rows) {
  const head = make("thead", { class: "for-readers" }, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
  return make("table", { class: "bars" }, make("caption", { class: "for-readers" }, caption), head, make("tbody", {}, ...rows));
}

// What each parameter does to the objective; a press on one shows its boxes.
export function effectsTable(host, effects, method, shown, choose) {
  if (!effects.length) {
    host.replaceChildren(make("p", { class: "soft" }, "Nothing can be said of the parameters before runs with different values were measured."));
    return;
  }
  const rows = effects.map(({ parameter, weight, words, verdict }) => {
    const button = make("button", { type: "button", class: "plot-pick", "aria-pressed": String(parameter === shown) }, parameter), unknown = verdict === "unknown";
    button.addEventListener("click", () => choose(parameter));
    return make("tr", {}, make("th", { scope: "row" }, button), make("td", { class: "bar" }, unknown ? null : bar(weight)), make("td", unknown ? { class: "soft" } : {}, words));
  });
  host.replaceChildren(table("What each parameter does", ["parameter", "", "effect"], rows), make("p", { class: "soft small" }, method));
}

// Where the money of a search went, by how its trials ended.
export function splitTable(host, split, words) {
  const rows = split.map((one) => make("tr", {}, make("th", { scope: "row" }, words[one.state] ?? one.state), make("td", { class: "bar" }, bar(one.share, `state-${one.state}`)),
    make("td", { class: "right" }, money(one.dollars)), make("td", { class: "right soft" }, one.trials.toLocaleString("en-US"))));
  host.replaceChildren(table("Money by how trials ended", ["outcome", "", "USD total", "trials"], rows));
}

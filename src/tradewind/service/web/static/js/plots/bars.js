// Figures that are tables with drawings in their cells: read by eyes and by screen readers alike.
import { textWidth } from "./frame.js";
import { Scale, airy, axisOf, wantsLog } from "./scale.js";
import { count, draw, make, money, percent } from "./words.js";

function bar(share, style) {
  return draw("svg", { class: "cell-bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { x: 0, y: 0, width: 100, height: 10, class: "track" }),
    draw("rect", { x: 0, y: 0, width: Math.max(0.6, 100 * share), height: 10, class: style }));
}

// What each parameter does to the objective; a press on one shows its boxes.
export function effectsTable(host, effects, method, shown, choose) {
  if (!effects.length) {
    host.replaceChildren(make("p", { class: "soft" }, "Nothing can be said of the parameters before runs with different values were measured."));
    return;
  }
  const body = make("tbody");
  for (const { parameter, weight, words, verdict } of effects) {
    const button = make("button", { type: "button", class: "plot-pick", "aria-pressed": String(parameter === shown) }, parameter);
    button.addEventListener("click", () => choose(parameter));
    body.append(make("tr", {}, make("th", { scope: "row" }, button), make("td", { class: "bar" }, verdict === "unknown" ? null : bar(weight, "bar")),
      make("td", verdict === "unknown" ? { class: "soft" } : {}, words)));
  }
  host.replaceChildren(
    make("table", { class: "bars" }, make("caption", { class: "for-readers" }, "What each parameter does"),
      make("thead", { class: "for-readers" }, make("tr", {}, ...["parameter", "", "effect"].map((name) => make("th", { scope: "col" }, name)))), body),
    make("p", { class: "soft small" }, method),
  );
}

// What the measured trials gave at each level of one parameter: range, quartiles and median.
export function effectTable(host, effect, { kind, title, value }) {
  if (!effect) {
    host.replaceChildren(make("p", { class: "soft" }, "No trial was measured yet."));
    return;
  }
  const low = Math.min(...effect.levels.map((one) => one.quartiles[0])), high = Math.max(...effect.levels.map((one) => one.quartiles[4]));
  const log = wantsLog([low, high]);
  const scale = new Scale(...airy([low, high], log), 0, 1000, { log });
  const axis = axisOf(kind, title, high);
  scale.unit = axis.unit;
  const body = make("tbody"), words = effect.levels.every((one) => /^[^\d.-]/.test(one.label));
  // Numbers come in their order; words are sorted as people do it: 2xlarge before 16xlarge.
  const levels = words ? [...effect.levels].sort((a, b) => a.label.localeCompare(b.label, "en", { numeric: true })) : effect.levels;
  for (const level of levels) {
    const [least, q1, median, q3, most] = level.quartiles;
    const about = `${value(median)}; middle half ${value(q1)} to ${value(q3)}; all ${value(least)} to ${value(most)}; ${percent(level.feasible)} feasible`;
    const name = make("th", { scope: "row", class: level.best ? "strong" : "" }, level.label, level.best ? make("span", { class: "tag" }, "best") : null);
    body.append(make("tr", { title: `${level.label}: median ${about}` }, name, make("td", { class: "bar" }, box(scale, level)),
      make("td", { class: "right" }, value(median)), make("td", { class: "right soft" }, level.count.toLocaleString("en-US"))));
  }
  const head = make("tr", {}, make("th", { scope: "col" }, effect.parameter), make("th", { scope: "col", class: "bar" }, boxAxis(scale, axis)),
    make("th", { scope: "col", class: "right" }, "median"), make("th", { scope: "col", class: "right" }, "trials"));
  host.replaceChildren(
    make("table", { class: "bars" }, make("caption", { class: "for-readers" }, `${title} by ${effect.parameter}`), make("thead", {}, head), body),
    make("p", { class: "soft small" }, `${axis.title}${log ? " (log)" : ""}: the box holds the middle half of the trials, the line in it is their median, the thin line all of them.`),
  );
  const cell = host.querySelector(".cell-axis");  // how many words fit is known once it has its width
  if (cell.clientWidth) cell.replaceWith(boxAxis(scale, axis, cell.clientWidth));
}

function box(scale, level) {
  const [least, q1, median, q3, most] = level.quartiles.map((value) => scale.at(value));
  return draw("svg", { class: "cell-box", viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("line", { x1: least, x2: most, y1: 10, y2: 10, class: "whisker" }),
    draw("rect", { x: q1, y: 3, width: Math.max(6, q3 - q1), height: 14, class: level.best ? "box best" : "box" }),
    draw("line", { x1: median, x2: median, y1: 1, y2: 19, class: "median" }));
}

function boxAxis(scale, axis, width = 200) {
  const place = make("div", { class: "cell-axis", "aria-hidden": "true" });
  let last = -Infinity;
  for (const value of scale.ticks(3)) {
    const words = axis.words(value), at = scale.at(value) / 10, half = (textWidth(words, 13) / 2 + 4) * 100 / width;
    if (at < 3 || at > 97 || at - half < last) continue;
    last = at + half;
    const tick = make("span", {}, words);
    tick.style.left = `${at}%`;
    place.append(tick);
  }
  return place;
}

// Where the money of a search went, by how its trials ended.
export function splitTable(host, split, words) {
  const body = make("tbody");
  for (const one of split) {
    body.append(make("tr", {}, make("th", { scope: "row" }, words[one.state] ?? one.state), make("td", { class: "bar" }, bar(one.share, `state-${one.state}`)),
      make("td", { class: "right" }, money(one.dollars)), make("td", { class: "right soft" }, one.trials.toLocaleString("en-US"))));
  }
  host.replaceChildren(make("table", { class: "bars" }, make("caption", { class: "for-readers" }, "Money by how trials ended"),
    make("thead", { class: "for-readers" }, make("tr", {}, ...["outcome", "", "USD total", "trials"].map((name) => make("th", { scope: "col" }, name)))), body));
}

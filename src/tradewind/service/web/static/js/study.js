// The page of one study: its charts and table, linked with each other, and kept up to date while the search goes on.
import { effectTable, effectsTable, splitTable } from "./plots/bars.js";
import { figuresTable, tools } from "./plots/frame.js";
import { Model, STATE_WORDS } from "./plots/model.js";
import { ParallelChart } from "./plots/parallel.js";
import { MapChart, ProgressChart } from "./plots/study-charts.js";
import { TrialFilter } from "./plots/filter.js";
import { trialTable } from "./plots/trial-table.js";
import { trialSheet } from "./plots/trial-sheet.js";
import { count, money, make, valueWords } from "./plots/words.js";
import { tellTimes } from "./times.js";

const place = (id) => document.getElementById(id);
const holder = place("study"), { id, metric, goal, kind, title, deadline, stamp } = holder.dataset;
const api = `/api/v1/studies/${id}`;
const value = valueWords(kind);
const model = new Model({ metric, goal, kind, deadline: deadline ? Number(deadline) : null });
const FIRST_WORDS = 4;
let figures = null, shownEffect = "";

const progress = new ProgressChart(place("progress"), model, title);
const map = new MapChart(place("map"), model);
const parallel = new ParallelChart(place("parallel"), model, { kind, title });
const table = trialTable(place("trials"), model);
trialSheet(place("trial"), model, api);
new TrialFilter(place("filter"), model);

// ---------------------------------------------------------------------- tools of the charts

function pointTools(chart, id, axes) {
  const head = place(`${id}-tools`);
  head.dataset.title = chart.box.getAttribute("aria-label").split(".")[0];
  const all = make("button", { type: "button", class: "button small", hidden: true }, "Show all");
  all.addEventListener("click", () => chart.setZoom(null));
  chart.host.addEventListener("zoomed", (event) => { all.hidden = !event.detail; });
  head.append(all);
  const entries = [];
  for (const axis of axes) {
    // Without a choice of the reader's the values themselves say whether an axis is logarithmic.
    entries.push({ words: `Logarithmic ${axis === "x" ? "across" : "upwards"}`, checked: false, act: (on) => chart.setLog(axis, on), axis });
  }
  entries.push({ words: "Zoom in", act: () => chart._zoomBy(0.6) }, { words: "Save as PNG", act: () => chart.savePng() }, { words: "Save as CSV", act: () => chart.saveCsv() });
  return { head, entries };
}

const mapTools = pointTools(map, "map", ["x", "y"]), progressTools = pointTools(progress, "progress", ["y"]);
const progressTable = place("progress-table");
progressTools.entries.push({ words: "Show as a table", act: () => { progressTable.hidden = !progressTable.hidden; if (!progressTable.hidden) progressTable.querySelector("[tabindex]")?.focus(); } });
mapTools.entries.push({ words: "Go to the table of trials", act: () => table.table.focus() });
for (const [chart, { head, entries }] of [[map, mapTools], [progress, progressTools]]) {
  const details = tools(head, entries);
  details.addEventListener("toggle", () => {
    details.querySelectorAll("input").forEach((box, i) => { box.checked = chart.isLog(entries[i].axis); });
  });
}
place("parallel-tools").dataset.title = "parallel coordinates";
tools(place("parallel-tools"), [
  { words: "Save as PNG", act: () => parallel.savePng() },
  { words: "Save as CSV", act: () => parallel.saveCsv() },
  { words: "Go to the table of trials", act: () => table.table.focus() },
]);
place("trials-csv").addEventListener("click", () => table.saveCsv());

const clear = place("clear");
clear.addEventListener("click", () => { parallel.clear(); place("filter").dispatchEvent(new Event("clear")); });
parallel.host.addEventListener("thinned", (event) => {
  const { drawn, of } = event.detail;
  place("thinned").textContent = drawn < of ? `${drawn.toLocaleString("en-US")} lines drawn.` : "";
});

function tellPassing() {
  clear.hidden = !model.filtered;
  place("passing").textContent = model.filtered
    ? `${model.passing.toLocaleString("en-US")} of ${count(model.n, "trial")} pass the filters`
    : count(model.n, "trial");
}
model.addEventListener("filter", tellPassing);
model.addEventListener("data", tellPassing);
// Without a trial there is nothing to draw: empty axes would look as if something had failed.
model.addEventListener("data", () => { for (const part of document.querySelectorAll("[data-trials]")) part.hidden = !model.n; });
model.addEventListener("hover", () => table.point(model.hover));
model.addEventListener("choose", () => { if (model.chosen >= 0) table.show(model.chosen); });

// ---------------------------------------------------------------------- what the server says

async function ask(path, tag = "") {
  const headers = { Accept: "application/json", ...(tag ? { "If-None-Match": tag } : {}) };
  const answer = await fetch(path, { headers });
  if (answer.status === 401) location.reload();
  if (answer.status === 304) return { same: true, tag };
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).title ?? `the server answered ${answer.status}`);
  return { document: await answer.json(), tag: answer.headers.get("etag") ?? "" };
}

function showFigures(found) {
  figures = found;
  progress.setCurve(found.curve);
  map.setFront(found.front);
  parallel.setWeights(found.effects);
  showWords(found.words);
  const names = found.levels.map((one) => one.parameter);
  if (!names.includes(shownEffect)) shownEffect = names[0] ?? "";
  showEffect();
  splitTable(place("split"), found.split, { ...STATE_WORDS, succeeded: "ran to the end" });
  const { spent, best, number } = found.curve;
  figuresTable(progressTable, "Trials that beat all before them", ["trial", "spent before and on it, USD total", title],
    number.map((one, at) => [one, money(spent[at]), value(best[at])]));
}

// The first sentences say what stands beside them already: which configuration, and what it took.
function showWords(words) {
  const rest = place("best").querySelector(".settings") ? words.slice(2) : words, more = place("more-words");
  const items = rest.map((sentence) => make("li", {}, sentence));
  place("words").replaceChildren(...items.slice(0, FIRST_WORDS));
  more.querySelector("ul").replaceChildren(...items.slice(FIRST_WORDS));
  more.hidden = items.length <= FIRST_WORDS;
}

function showEffect() {
  effectsTable(place("effects"), figures.effects, figures.method, shownEffect, (parameter) => {
    shownEffect = parameter;
    showEffect();
    place("effects").querySelector("[aria-pressed=true]")?.focus();
  });
  const effect = figures.levels.find((one) => one.parameter === shownEffect);
  place("effect-title").textContent = effect ? `${metric} by ${shownEffect}` : "What each parameter did";
  effectTable(place("effect"), effect, { kind, title, value });
}

let known = stamp, tag = "", live = "live" in holder.dataset, figuresAt = 0, figuresDue = false;

async function load() {
  try {
    const [trials, made] = await Promise.all([ask(`${api}/trials`), ask(`${api}/figures`)]);
    model.take(trials.document);
    known = trials.document.stamp;
    showFigures(made.document);
    figuresAt = Date.now();
    holder.removeAttribute("data-loading");
    performance.mark("plots-ready");
  } catch (error) {
    place("trouble").hidden = false;
    place("trouble-words").textContent = `The trials could not be read: ${error.message}. Load the page again.`;
  }
}

async function renew() {
  if (document.hidden) return;
  const found = await ask(api, tag);
  if (!found.same && found.document.stamp !== known) await renewTrials();
  if (!found.same) figuresDue = true;
  const over = !found.same && found.document.state !== "running";
  // Importance and sentences take the server longer than all else: every few seconds is enough while it runs.
  if (figuresDue && (over || Date.now() - figuresAt > 5000)) {
    showFigures((await ask(`${api}/figures`)).document);
    figuresAt = Date.now();
    figuresDue = false;
  }
  if (over) live = false;
  tag = found.tag;  // only now: what failed above is asked for again at the next turn
}

async function renewTrials() {
  let trials = await ask(`${api}/trials?since=${model.openFrom}`);
  const before = model.best;
  if (!model.take(trials.document, model.openFrom)) {
    trials = await ask(`${api}/trials`);
    model.take(trials.document);
  }
  if (model.best >= 0 && model.best !== before) place("said").textContent = `New best: ${value(model.columns.objective[model.best])}, trial ${model.number[model.best]}`;
  await renewHead();
  known = trials.document.stamp;
}

async function renewHead() {
  const answer = await fetch(`/studies/${id}?part=1`, { headers: { Accept: "text/html" } });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    tellTimes(part);
    place(part.dataset.part).replaceChildren(...part.childNodes);
  }
}

async function keep() {
  let wait = 2000;
  while (live) {
    await new Promise((done) => setTimeout(done, wait));
    try { await renew(); wait = 2000; } catch { wait = Math.min(30000, wait * 2); }
  }
}

load().then(keep);

// The page of one study: its charts and table, linked with each other, and kept up to date while the search goes on.
import { Chart } from "./charts/chart.js";
import { ParallelView } from "./charts/parallel.js";
import { chartTools, dataTable } from "./charts/view.js";
import { count, make, valueWords } from "./charts/words.js";
import { effectsTable, splitTable } from "./plots/bars.js";
import { TrialFilter } from "./plots/filter.js";
import { Model, STATE_WORDS } from "./plots/model.js";
import { trialSheet } from "./plots/trial-sheet.js";
import { trialTable } from "./plots/trial-table.js";
import { heard, isAway, lost, silent } from "./away.js";
import { tellTimes } from "./times.js";

const place = (id) => document.getElementById(id);
const holder = place("study"), { id, metric, goal, kind, deadline, stamp } = holder.dataset;
const api = `/api/v1/studies/${id}`;
const value = valueWords(kind);
const model = new Model({ metric, goal, kind, deadline: deadline ? Number(deadline) : null });
const FIRST_WORDS = 4;
let figures = null, shownEffect = "";

// Keys of charts are numbers of trials: what is said of them, and what they lead to, is the table's.
const linked = {
  lines: (number) => model.lines(model.rowOf(number)),
  open: (number) => model.choose(model.rowOf(number)),
  hover: (number) => model.point(number === null ? -1 : model.rowOf(number)),
};
const charts = { progress: new Chart(place("progress"), linked), map: new Chart(place("map"), linked) };
const parallel = new ParallelView(place("parallel"), { ...linked, ranged: keepRange, sliders: place("ranges") });
const effect = new Chart(place("effect"));
const table = trialTable(place("trials"), model);
trialSheet(place("trial"), model, api);
new TrialFilter(place("filter"), model);

// ---------------------------------------------------------------------- tools of the charts

function keepRange(id, low, high, words) {
  if (low === null) return model.filter(`axis ${id}`, null);
  const read = id.startsWith("p ") ? () => model.parameter(id.slice(2)) : () => ({ values: model.columns[id] });
  const near = 1e-5 * Math.max(Math.abs(low), Math.abs(high));
  const kept = words && new Set(words.filter((_, at) => at >= low && at <= high));
  model.filter(`axis ${id}`, (row) => {
    const { values, words: known } = read();
    return kept ? kept.has(known[values[row]]) : values[row] >= low - near && values[row] <= high + near;
  });
}

const goToTable = { words: "Go to the table of trials", act: () => table.table.focus() };

for (const [name, view, options] of [
  ["progress", charts.progress, { logs: ["y"], zoom: [["Zoom in", 0.6]], more: [{ words: "Show as a table", act: () => showTable("progress", charts.progress) }] }],
  ["map", charts.map, { logs: ["x", "y"], zoom: [["Zoom in", 0.6]], more: [goToTable] }],
  ["parallel", parallel, { more: [goToTable] }],
  ["effect", effect, { csv: null, more: [{ words: "Show as a table", act: () => showTable("effect", effect) }] }],
]) chartTools(place(`${name}-tools`), view, place(`${name}-title`).textContent, options);

function showTable(name, { document }) {
  const host = place(`${name}-table`);
  host.hidden = !host.hidden;
  fillTable(host, document);
  host.querySelector("[tabindex]")?.focus();
}

function fillTable(host, document) {
  host.replaceChildren(...(document?.table ? [dataTable(document.table, document.title)] : []));
}

place("trials-csv").addEventListener("click", () => table.saveCsv());

const clear = place("clear");
clear.addEventListener("click", () => { parallel.clear(); place("filter").dispatchEvent(new Event("clear")); });
function tellPassing() {
  clear.hidden = !model.filtered;
  place("passing").textContent = model.filtered
    ? `${model.passing.toLocaleString("en-US")} of ${count(model.n, "trial")} pass the filters`
    : count(model.n, "trial");
}
model.addEventListener("filter", tellPassing);
model.addEventListener("filter", () => { for (const chart of [charts.progress, charts.map, parallel]) chart.filter(model.filtered ? (number) => model.mask[model.rowOf(number)] === 1 : null); });
model.addEventListener("data", tellPassing);
// Without a trial there is nothing to draw: empty axes would look as if something had failed.
model.addEventListener("data", () => { for (const part of document.querySelectorAll("[data-trials]")) part.hidden = !model.n; });
model.addEventListener("hover", () => {
  table.point(model.hover);
  for (const chart of Object.values(charts)) chart.point(model.hover < 0 ? null : model.number[model.hover]);
});
model.addEventListener("choose", () => { if (model.chosen >= 0) table.show(model.chosen); });

// ---------------------------------------------------------------------- what the server says

// An answer of the server; whether it gives one at all stands above everything.
async function reach(path, options) {
  const answer = await fetch(path, options).catch((error) => { lost(); throw error; });
  if (silent(answer.status)) lost();
  else heard();
  return answer;
}

async function ask(path, tag = "") {
  const headers = { Accept: "application/json", ...(tag ? { "If-None-Match": tag } : {}) };
  const answer = await reach(path, { headers });
  if (answer.status === 401) location.reload();
  if (answer.status === 304) return { same: true, tag };
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).title ?? `the server answered ${answer.status}`);
  return { document: await answer.json(), tag: answer.headers.get("etag") ?? "" };
}

function showFigures(found) {
  figures = found;
  for (const [name, chart] of [...Object.entries(charts), ["parallel", parallel]]) {
    const drawn = found.charts[name];
    place(`${name}-title`).closest("section").hidden = !drawn;
    if (!drawn) continue;
    chart.show(drawn);
    place(`${name}-note`).textContent = drawn.note;
  }
  showWords(found.words);
  const names = Object.keys(found.levels);
  if (!names.includes(shownEffect)) shownEffect = names[0] ?? "";
  showEffect();
  splitTable(place("split"), found.split, { ...STATE_WORDS, succeeded: "ran to the end" });
  if (!place("progress-table").hidden) fillTable(place("progress-table"), found.charts.progress);
}

// The first sentence says what stands beside it already: which configuration to use. What it saved comes next.
function showWords(words) {
  const rest = place("best").querySelector(".settings") ? words.slice(1) : words, more = place("more-words");
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
  const drawn = figures.levels[shownEffect];
  place("effect-title").textContent = drawn?.title ?? "What each parameter did";
  place("effect-note").textContent = drawn ? "The box holds the middle half of the trials, the line in it is their median, the thin line all of them." : "No trial was measured yet.";
  place("effect-tools").hidden = !drawn;
  if (drawn) effect.show(drawn);
  if (!place("effect-table").hidden) fillTable(place("effect-table"), drawn);
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
    try { await renew(); wait = 2000; } catch { wait = isAway() ? 1000 : Math.min(30000, wait * 2); }
  }
}

load().then(keep);

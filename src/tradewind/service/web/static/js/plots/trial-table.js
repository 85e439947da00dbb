// The table of all trials of a study.
import { GridTable } from "./grid-table.js";
import { STATES } from "./model.js";
import { duration, figure, money, percent } from "../charts/words.js";

const NONE = "There is no trial yet.";

export function trialTable(host, model) {
  const table = new GridTable(host, {
    label: "Trials", columns: columnsOf(model), rows: model.n, height: 560, name: "trials",
    open: (row) => model.choose(row), empty: NONE,
  });
  let names = "";
  model.addEventListener("data", () => {
    table.nothing.textContent = model.n ? "No trial passes the filters." : NONE;
    const columns = columnsOf(model), now = columns.map((one) => one.id).join();
    table.setRows(model.n, (row) => model.mask[row] === 1);
    if (now !== names) table.setColumns(columns);
    names = now;
  });
  model.addEventListener("filter", () => table.setRows(model.n, (row) => model.mask[row] === 1));
  return table;
}

function columnsOf(model) {
  const number = (id, title, words) => ({
    id, title, right: true, value: (row) => model.columns[id][row], plain: (row) => model.columns[id][row],
    text: (row) => bound(model, row, id) + words(model.columns[id][row]),
  });
  const some = (name, test) => model.n > 0 && model.columns[name].some(test);
  return [
    { id: "number", title: "Trial", right: true, value: (row) => model.number[row], text: (row) => `${row === model.best ? "★ " : ""}${model.number[row]}`, plain: (row) => model.number[row] },
    { id: "state", title: "Outcome", mark: (row) => STATES[model.state[row]], value: (row) => model.state[row], text: (row) => model.stateWord(row) },
    ...(model.kind === "number" ? [number("objective", model.metric, figure)] : []),
    number("cost", "Cost, this run", money),
    number("runtime", "Run time", duration),
    ...(some("fidelity", (share) => share < 1) ? [number("fidelity", "Input", percent)] : []),
    ...model.parameters.map((one) => ({
      id: `p ${one.name}`, title: one.name, right: !one.words, most: 180,
      value: (row) => (one.words ? model.setting(model.parameter(one.name), row) : model.parameter(one.name).values[row]),
      text: (row) => model.setting(model.parameter(one.name), row),
    })),
    { id: "machines", title: "Machines", most: 240, value: (row) => model.machines(row), text: (row) => model.machines(row) },
    number("spent", "Spent, total", money),
    { id: "ended", title: "Ended after", right: true, value: (row) => model.columns.ended[row], text: (row) => duration(model.columns.ended[row]), plain: (row) => model.columns.ended[row] },
    ...(model.reasons.size ? [{ id: "why", title: "Why", most: 320, value: (row) => reason(model, row), text: (row) => reason(model, row) }] : []),
  ];
}

function bound(model, row, id) {
  return STATES[model.state[row]] === "aborted" && (id === "cost" || id === "runtime") && !Number.isNaN(model.columns[id][row]) ? "≥ " : "";
}

function reason(model, row) {
  return model.reasons.get(model.number[row]) ?? "";
}

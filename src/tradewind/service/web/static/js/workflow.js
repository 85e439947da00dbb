// The page of a workflow: its Gantt chart and its tasks, kept up to date while it runs.
import { Chart } from "./charts/chart.js";
import { tools } from "./charts/view.js";
import { duration, make } from "./charts/words.js";
import { heard, lost, silent } from "./away.js";
import { GridTable } from "./plots/grid-table.js";

const place = (id) => document.getElementById(id), holder = place("workflow");
let data = null, slots = null, chart = null, table = null, tasks = [], only = null;

function columns() {
  const time = (id, title) => ({ id, title, right: true, value: (row) => tasks[row][id], text: (row) => duration(tasks[row][id]), plain: (row) => tasks[row][id] });
  const late = (row) => tasks[row].ended - tasks[row].finish, ran = tasks.some((task) => task.really);
  const text = (id, title) => ({ id, title, value: (row) => tasks[row][id], text: (row) => tasks[row][id] });
  return [
    { ...text("name", "Task"), text: (row) => tasks[row].name + (tasks[row].critical ? "  ●" : "") },
    text("activity", "Activity"),
    text("vm", "Planned on"),
    time("start", "Planned start"),
    time("finish", "Planned end"),
    ...(ran ? [
      text("really", "Ran on"),
      time("began", "Start"),
      { ...time("ended", "End"), text: (row) => duration(tasks[row].ended) + (data.running.includes(tasks[row].name) ? " …" : "") },
      { id: "late", title: "Against the plan", right: true, value: late, plain: late, text: (row) => (Number.isNaN(late(row)) ? "–" : `${late(row) < 0 ? "" : "+"}${duration(late(row))}`) },
    ] : []),
  ];
}

function legend() {
  const buttons = data.activities.slice(0, 24).map((activity) => {
    const swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = activity.colour;
    const button = make("button", { type: "button", class: "plot-pick", "aria-pressed": String(activity.name === only) }, swatch, `${activity.name} `, make("span", { class: "soft" }, `${activity.tasks} × ${duration(activity.seconds / activity.tasks)}`));
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const one of buttons) one.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(on));
      only = on ? activity.name : null;
      const passes = (row) => only === null || tasks[row].activity === only;
      chart.filter(only === null ? null : passes);
      table.setRows(tasks.length, passes);
    });
    return button;
  });
  place("activities").replaceChildren(...buttons);
}

function show() {
  const known = (value) => value ?? NaN;
  tasks = data.tasks.map(([name, activity, vm, start, finish, really, began, ended, critical]) => ({ name, activity, critical, vm: vm ?? "", start: known(start), finish: known(finish), really: really ?? "", began: known(began), ended: known(ended) }));
  place("figures").replaceChildren(...data.figures.map(([name, value]) => make("div", { class: "tile" }, make("dt", {}, name), make("dd", {}, value))));
  if (!chart) {
    slots = new Chart(place("slots"));
    chart = new Chart(place("gantt"), { open: (task) => table.show(task), hover: (task) => table.point(task ?? -1) });
    table = new GridTable(place("tasks"), { label: "Tasks", columns: columns(), rows: tasks.length, height: 480, name: "tasks", open: (row) => { chart.point(row); place("gantt").scrollIntoView({ block: "nearest" }); } });
    const all = make("button", { type: "button", class: "button small", hidden: true }, "Show all");
    all.addEventListener("click", () => chart.setZoom(null));
    // What one of them shows of the time, the other shows too.
    for (const [one, other] of [[chart, slots], [slots, chart]]) {
      one.host.addEventListener("zoomed", () => {
        all.hidden = !one.zoom;
        if (String(one.zoom?.x) !== String(other.zoom?.x)) other.setZoom(one.zoom);
      });
    }
    place("gantt-tools").dataset.title = "the Gantt chart";
    place("gantt-tools").append(all);
    tools(place("gantt-tools"), [
      { words: "Zoom in", act: () => chart.zoomBy(0.5) },
      { words: "Zoom out", act: () => chart.zoomBy(2) },
      { words: "Save as PNG", act: () => chart.savePng() },
      { words: "Save as CSV", act: () => table.saveCsv() },
      { words: "Go to the table of tasks", act: () => table.table.focus() },
    ]);
  } else {
    table.setRows(tasks.length);
    table.setColumns(columns());
  }
  slots.show(data.slots);
  chart.show(data.gantt);
  legend();
}

async function read() {
  const answer = await fetch(holder.dataset.source, { headers: { Accept: "application/json" } }).catch((error) => { lost(); throw error; });
  if (silent(answer.status)) lost();
  else heard();
  if (answer.status === 401) return location.reload();
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).title ?? `the server answered ${answer.status}`);
  data = await answer.json();
  show();
}

async function begin() {
  try {
    if (holder.dataset.source) await read();
    else { data = JSON.parse(place("data").textContent); show(); }
  } catch (error) {
    place("trouble").hidden = false;
    place("trouble-words").textContent = `The chart could not be drawn: ${error.message}.`;
    return;
  }
  holder.removeAttribute("data-loading");
  performance.mark("plots-ready");
  while (holder.dataset.source && data.ending === "running") {
    await new Promise((done) => setTimeout(done, 2000));
    if (document.hidden) continue;
    try { await read(); } catch { /* the next turn asks again */ }
  }
  if (holder.dataset.source && "live" in holder.dataset) location.reload();
}

begin();

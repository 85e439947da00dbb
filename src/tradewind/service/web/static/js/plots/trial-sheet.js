// What is known of one trial, at the side of the page.
import { duration, figure, make, money } from "../charts/words.js";

export function trialSheet(sheet, model, api) {
  let asked = 0, from = null;
  const body = sheet.querySelector("[data-body]"), title = sheet.querySelector("h2");
  sheet.querySelector("[data-close]").addEventListener("click", () => sheet.hidePopover());
  sheet.addEventListener("toggle", (event) => {
    if (event.newState !== "closed") return;
    model.choose(-1);
    from?.focus?.();
  });
  model.addEventListener("choose", async () => {
    const row = model.chosen;
    if (row < 0) return;
    const turn = ++asked, number = model.number[row];
    if (!sheet.matches(":popover-open")) {
      from = document.activeElement;
      sheet.showPopover();
      sheet.focus();
    }
    title.textContent = `Trial ${number}: ${model.stateWord(row)}`;
    body.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`${api}/trials/${number}`, { headers: { Accept: "application/json" } });
      if (turn !== asked) return;
      const found = await answer.json();
      body.replaceChildren(...(answer.ok ? parts(found, model) : [make("p", {}, found.title ?? "It cannot be read.")]));
    } catch {
      if (turn === asked) body.replaceChildren(make("p", {}, "The server does not answer; press it once more."));
    }
    body.removeAttribute("aria-busy");
  });
}

function parts(trial, model) {
  const least = trial.censored ? "at least " : "";
  const machines = `${trial.machines} × ${trial.instance_type} of ${trial.provider}${trial.region ? ` in ${trial.region}` : ""}`;
  const found = [
    facts([
      ["Cost", trial.cost === null ? null : `${least}${money(trial.cost)} this run`],
      ["Run time", trial.runtime === null ? null : least + duration(trial.runtime)],
      [model.metric, model.kind === "number" && trial.objective !== null ? figure(trial.objective) : null],
      ["Input", trial.fidelity < 1 ? `${figure(100 * trial.fidelity)} % of it` : null],
      ["Machines", `${machines} (${figure(trial.vcpu)} vCPU, ${figure(trial.memory_gib)} GiB each)`],
      ["Price", `${money(trial.price_per_hour * trial.machines)} per hour`],
    ]),
  ];
  if (trial.reason) found.unshift(make("p", { class: "reason break" }, trial.reason));
  found.push(section("Configuration", facts(Object.entries(trial.configuration).map(([name, value]) => [name, setting(value)]))));
  const why = Object.entries(trial.why);
  if (why.length) found.push(section("What the searcher expected", facts(why.map(([name, value]) => [name.replaceAll("_", " "), expected(name, value)]))));
  const metrics = Object.entries({ ...trial.metrics, ...trial.profile });
  if (metrics.length) found.push(section("Measured", facts(metrics.map(([name, value]) => [name.replaceAll("_", " "), figure(value)]))));
  if (trial.runs.length) {
    const rows = trial.runs.map((run) => make("tr", {}, ...[run.attempt, run.state.replace("_", " "), duration(run.runtime), money(run.cost)].map((cell, at) => make("td", { class: at > 1 ? "right" : "" }, String(cell)))));
    const head = make("tr", {}, ...["run", "state", "time", "cost"].map((name, at) => make("th", { scope: "col", class: at > 1 ? "right" : "" }, name)));
    found.push(section("Runs", make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)))));
  }
  return found;
}

function section(title, content) {
  return make("section", {}, make("h3", {}, title), content);
}

function facts(pairs) {
  return make("dl", { class: "facts" }, ...pairs.filter(([, value]) => value !== null && value !== undefined)
    .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

function setting(value) {
  return typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" ? figure(value) : String(value);
}

function expected(name, value) {
  if (typeof value !== "number") return value;
  if (/cost|saving|spend|dollars/.test(name)) return money(value);
  return /time|seconds/.test(name) ? duration(value) : figure(value);
}

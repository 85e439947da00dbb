// The form of a new request: fields that exist only with others, a proposal while one types, and what it will cost.
import { onReturn, signedIn, signedOut } from "./session.js";
import { watchFiles } from "./upload.js";

const form = document.querySelector("[data-new]");
const place = document.getElementById("proposal");
const touched = new Set();
document.querySelectorAll(".no-script").forEach((button) => { button.hidden = true; });

// ---------------------------------------------------------------- fields that exist only where others have some values
function value(name) {
  const field = form.elements[`p.${name}`];
  return field?.type === "checkbox" ? (field.checked ? 1 : 0) : field?.value;
}
function same(wanted, given) {
  if (typeof wanted === "string") return wanted === String(given ?? "");
  return given != null && given !== "" && Number(given) === Number(wanted);  // 2.0 is 2, and true is 1
}
function hide() {
  for (const slot of form.querySelectorAll("[data-when]")) {
    const when = Object.entries(JSON.parse(slot.dataset.when));
    const hidden = when.some(([other, options]) => hiddenField(other) || !options.some((one) => same(one, value(other))));
    slot.hidden = hidden;
    slot.querySelectorAll("input, select, textarea").forEach((field) => { field.disabled = hidden; });
  }
}
function searchOnly() {
  const field = form.elements.try_first, hidden = form.elements.kind.value !== "search";
  field.closest(".field").hidden = hidden;
  field.disabled = hidden;
}
const hiddenField = (name) => form.elements[`p.${name}`]?.closest?.(".slot")?.hidden ?? false;

// ---------------------------------------------------------------- the proposal
let timer = null, turn = 0, running = null, out = false;
onReturn(() => { if (out) soon(0); });
watchFiles(form, () => soon(0));

function soon(wait = 450) {
  clearTimeout(timer);
  timer = setTimeout(ask, wait);
}

async function ask() {
  const mine = ++turn;
  running?.abort();
  running = new AbortController();
  place.setAttribute("aria-busy", "true");
  if (out) out = !await signedIn().catch(() => false);
  if (mine !== turn) return;
  const data = new FormData(form);
  for (const [name, entry] of [...data.entries()]) if (entry instanceof File) data.delete(name);
  try {
    const answer = await fetch("/requests/new/proposal", { method: "POST", body: data, signal: running.signal, headers: { Accept: "text/html" } });
    if (answer.redirected) {
      out = true;
      if (mine !== turn) return;
      tell("Machines are proposed once you are signed in again.");
      if (!document.querySelector(".again")) signedOut(form, () => soon(0));
      return;
    }
    const text = await answer.text();
    if (mine !== turn) return;
    if (answer.ok) show(text);
    else tell("Nothing can be proposed just now.");
  } catch (error) {
    if (error.name !== "AbortError" && mine === turn) tell("The server does not answer; what is typed in stays.");
  } finally {
    if (mine === turn) place.setAttribute("aria-busy", "false");
  }
}

function tell(words) {
  const note = document.createElement("p");
  note.className = "soft";
  note.textContent = words;
  place.replaceChildren(note);
}

function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("[data-answer]");
  const focus = document.activeElement, inside = place.contains(focus) ? focus : null;
  const mark = inside && (inside.name === "choice" ? `[name="choice"][value="${CSS.escape(inside.value)}"]` : `[name="${CSS.escape(inside.name)}"]`);
  const errors = { ...prefixed(JSON.parse(fresh.dataset.errors)), ...JSON.parse(fresh.dataset.ownErrors) };
  const chosen = form.querySelector('[name="choice"]:checked')?.value;
  const typed = new Map([...place.querySelectorAll('[name^="c."]')].filter((one) => touched.has(one.name)).map((one) => [one.name, one.value]));
  const opened = [...place.querySelectorAll("details[data-table][open]")].map((one) => one.dataset.table);
  place.replaceChildren(document.importNode(fresh, true));
  for (const one of place.querySelectorAll("details[data-table]")) one.open = opened.includes(one.dataset.table);
  drawCharts();
  // What was chosen and typed while the answer was on its way stays.
  const same = chosen && place.querySelector(`[name="choice"][value="${CSS.escape(chosen)}"]`);
  if (same) same.checked = true;
  for (const [name, words] of typed) if (form.elements[name]) form.elements[name].value = words;
  const again = mark && place.querySelector(mark);
  if (again?.type === "number" && inside.type === "number") {
    // Whoever is typing goes on in the same field, and replaces what was selected.
    for (const { name, value } of again.attributes) inside.setAttribute(name, value);
    again.replaceWith(inside);
    inside.focus();
  } else again?.focus();
  for (const field of form.querySelectorAll(".field [name]")) if (!place.contains(field)) complain(field, errors[field.name] ?? "");
  sum();
}

// The library of charts is loaded only where there is something to draw.
async function drawCharts() {
  if (!place.querySelector("[data-proposal-chart]")) return;
  const { drawProposal } = await import("./proposal-charts.js");
  drawProposal(place, (choice) => { const radio = form.querySelectorAll('[name="choice"]')[choice]; if (radio) { radio.checked = true; radio.focus(); sum(); } });
}

const prefixed = (fields) => Object.fromEntries(Object.entries(fields).map(([name, words]) => [`p.${name}`, words]));

// What is wrong stands below a field that was touched; one that nobody has come to yet is left in peace.
function complain(field, words) {
  const holder = field.closest(".field");
  let error = holder.querySelector(".error:not(.upload)");  // what is wrong with a file that was chosen stays
  if (!words || !touched.has(field.name)) {
    if (error) { error.remove(); field.removeAttribute("aria-invalid"); describe(field, null); }
    return;
  }
  if (!error) {
    error = document.createElement("p");
    error.className = "error";
    error.id = field.id.replace(/^f-/, "e-");
    holder.append(error);
    field.setAttribute("aria-invalid", "true");
    describe(field, error.id);
  }
  if (error.textContent !== words) error.textContent = words;
}
function describe(field, id) {
  const others = (field.getAttribute("aria-describedby") ?? "").split(" ").filter((one) => one && !one.startsWith("e-"));
  const all = id ? [id, ...others] : others;
  if (all.length) field.setAttribute("aria-describedby", all.join(" ")); else field.removeAttribute("aria-describedby");
}

// ---------------------------------------------------------------- before it starts
const put = (id, words) => { const element = document.getElementById(id); if (element.textContent !== words) element.textContent = words; };
function expect(objective) {
  for (const id of ["sum-expected", "sum-objective"]) document.getElementById(id).hidden = !objective;
  put("sum-objective", objective ?? "");
}

function sum() {
  const chosen = form.querySelector('[name="choice"]:checked');
  if (form.elements.kind.value === "search") {
    const budget = form.elements.budget.value.trim();
    expect("");
    put("sum-machines", "tried out by the search");
    put("sum-time", form.elements.deadline.value.trim() ? `each run up to ${form.elements.deadline.value.trim()}` : "until the budget is used or nothing is gained");
    put("sum-cost", budget ? `at most ${/^[\d._]+$/.test(budget) ? "$" : ""}${budget} total` : "give it a budget");
    const usual = place.querySelector("[data-answer]")?.dataset.search;
    put("sum-note", `Nothing is spent above the budget.${usual ? ` A search of this size usually takes about ${usual}.` : ""}`);
  } else if (chosen) {
    const { machines, time, cost, range, unit, hourly, objective } = chosen.dataset;
    expect(objective);
    put("sum-machines", machines);
    put("sum-time", time || "not known yet");
    put("sum-cost", cost && unit !== "this run" ? `${cost} ${unit}` : cost || (hourly ? `${hourly} per hour` : "not known yet"));
    put("sum-note", cost && range ? `Mostly between ${range.replace(" to ", " and ")}, ${unit}.` : cost ? unit === "this run" ? "This run." : "" : "How long it takes is not known yet.");
  }
}

form.addEventListener("input", (event) => {
  if (event.target.name && event.target.type !== "radio") touched.add(event.target.name);
  hide();
  searchOnly();
  sum();
  // What the server said of a field counts until the field is changed: it is asked again, or when the form is sent.
  if (["name", "results", "webhook", "email"].includes(event.target.name)) complain(event.target, "");
  else soon(event.target.type === "radio" ? 50 : 450);
});
form.addEventListener("change", (event) => { if (event.target.name) touched.add(event.target.name); });
for (const field of form.querySelectorAll('[aria-invalid="true"]')) touched.add(field.name);
hide();
searchOnly();
sum();
drawCharts();
soon(0);

// The catalogue of offers: filtered as one types, sorted, and compared.
import { GridTable } from "./plots/grid-table.js";
import { figure, make, money, saveCsv } from "./charts/words.js";

const MOST = 6;
const place = (id) => document.getElementById(id), form = place("filter");
let data = null, table = null;
const compared = [];

function word(name, row) {
  const { words, codes } = data.columns[name];
  return words[codes[row]];
}

function number(id, title, words, extra = {}) {
  return { id, title, right: true, value: (row) => data.columns[id][row], text: (row) => words(data.columns[id][row]), plain: (row) => data.columns[id][row], ...extra };
}

function text(id, title, most = 200) {
  return { id, title, most, value: (row) => word(id, row), text: (row) => word(id, row) };
}

function columns() {
  const each = (row) => data.columns.price_per_hour[row] / data.columns.vcpu[row], taken = (row) => data.columns.interruptions_per_hour[row], { spot } = data.columns;
  return [
    { ...text("instance_type", "Type", 230), text: (row) => word("instance_type", row) + (compared.includes(row) ? "  ✓" : "") },
    number("price_per_hour", "Per hour", money),
    number("vcpu", "vCPU", figure),
    number("memory_gib", "Memory, GiB", figure),
    text("provider", "Provider"),
    text("region", "Region"),
    { id: "each", title: "Per vCPU hour", right: true, value: each, text: (row) => money(each(row)), plain: each },
    number("gpus", "GPUs", (count) => (count ? String(count) : "")),
    text("accelerator", "Accelerator"),
    text("category", "Category"),
    text("arch", "Processor"),
    ...(spot.includes(true) ? [{ id: "spot", title: "Billing", value: (row) => spot[row], text: (row) => (spot[row] ? "spot" : "on demand") }, { id: "taken", title: "Interruptions", right: true, value: taken, text: (row) => (spot[row] ? (taken(row) === null ? "unknown" : `${figure(taken(row))} per hour`) : "") }] : []),
    text("price_date", "Priced on"),
  ];
}

// ---------------------------------------------------------------------- filters

function fill(name) {
  const select = form.elements[name];
  for (const one of [...data.columns[name].words].sort()) if (one) select.append(make("option", { value: one }, one));
}

function passes() {
  const fields = Object.fromEntries(new FormData(form)), { columns } = data;
  const low = (name) => (fields[name] === "" ? -Infinity : Number(fields[name])), high = (name) => (fields[name] === "" ? Infinity : Number(fields[name]));
  const codes = Object.fromEntries(["provider", "region", "category", "arch"].map((name) => [name, fields[name] ? columns[name].words.indexOf(fields[name]) : -1]));
  const wanted = fields.text.toLowerCase().split(/\s+/).filter(Boolean);
  const vcpu = [low("vcpu_low"), high("vcpu_high")], memory = [low("memory_low"), high("memory_high")], price = high("price");
  return (row) =>
    Object.entries(codes).every(([name, code]) => code < 0 || columns[name].codes[row] === code)
    && columns.vcpu[row] >= vcpu[0] && columns.vcpu[row] <= vcpu[1]
    && columns.memory_gib[row] >= memory[0] && columns.memory_gib[row] <= memory[1]
    && columns.price_per_hour[row] <= price
    && (fields.gpus === "" || (fields.gpus === "0" ? columns.gpus[row] === 0 : columns.gpus[row] >= Number(fields.gpus)))
    && (fields.spot === "" || columns.spot[row] === (fields.spot === "1"))
    && wanted.every((part) => [word("instance_type", row), word("family", row), word("accelerator", row)].some((one) => one.toLowerCase().includes(part)));
}

function apply() {
  table.setRows(data.total, passes());
  const shown = table.order.length, filtered = [...new FormData(form).values()].some(Boolean);
  place("clear").hidden = !filtered;
  place("count").textContent = `${shown.toLocaleString("en-US")}${filtered ? ` of ${data.total.toLocaleString("en-US")}` : ""} offers`;
  // What is looked for stays in the address, so that it can be sent to somebody.
  const kept = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  history.replaceState(null, "", kept.size ? `?${kept}` : location.pathname);
}

// ---------------------------------------------------------------------- comparing

function compare(row) {
  const at = compared.indexOf(row);
  if (at >= 0) compared.splice(at, 1);
  else compared.push(row);
  if (compared.length > MOST) compared.shift();
  showCompared();
  table._later();
}

function showCompared() {
  const card = place("compare"), least = Math.min(...compared.map((row) => data.columns.price_per_hour[row]));
  card.hidden = !compared.length;
  card.querySelector("thead").replaceChildren(make("tr", {}, make("th", { scope: "col" }, ""), ...compared.map((row) => {
    const drop = make("button", { type: "button", class: "button small quiet", "aria-label": `Take ${word("instance_type", row)} out` }, "✕");
    drop.addEventListener("click", () => compare(row));
    return make("th", { scope: "col" }, word("instance_type", row), " ", drop);
  })));
  const lines = columns().slice(1).map((column) => [column.title, (row) => column.text(row)]);
  lines.splice(1, 0, ["Against the cheapest", (row) => {
    const times = data.columns.price_per_hour[row] / least;
    return times < 1.005 ? "the cheapest" : `${figure(times)} times as much`;
  }], ["Per day", (row) => money(24 * data.columns.price_per_hour[row])], ["GiB per vCPU", (row) => figure(data.columns.memory_gib[row] / data.columns.vcpu[row])]);
  card.querySelector("tbody").replaceChildren(...lines.map(([title, words]) =>
    make("tr", {}, make("th", { scope: "row" }, title), ...compared.map((row) => make("td", {}, words(row) || "–")))));
}

// ----------------------------------------------------------------------

async function begin() {
  try {
    const answer = await fetch("/offers/columns", { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).title ?? `the server answered ${answer.status}`);
    data = await answer.json();
  } catch (error) {
    place("trouble").hidden = false;
    place("trouble-words").textContent = `The offers could not be read: ${error.message}.`;
    place("count").textContent = "";
    return;
  }
  ["provider", "region", "category", "arch"].forEach(fill);
  for (const [name, value] of new URLSearchParams(location.search)) if (form.elements[name]) form.elements[name].value = value;
  table = new GridTable(place("table"), { label: "Offers", columns: columns(), rows: data.total, height: 620, name: "offers", open: compare, empty: "No offer is within these bounds." });
  table.sort("price_per_hour", false);
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  place("clear").addEventListener("click", () => { form.reset(); apply(); form.elements.text.focus(); });
  place("compare-clear").addEventListener("click", () => { compared.length = 0; showCompared(); table._later(); table.table.focus(); });
  place("csv").addEventListener("click", () => {
    const shown = columns();
    saveCsv("offers.csv", shown.map((one) => one.title), table.order.map((row) => shown.map((one) => one.plain?.(row) ?? one.value(row))));
  });
  apply();
  place("offers-card").removeAttribute("data-loading");
  performance.mark("plots-ready");
}

begin();

// Curves on the page of a request: of what its program reports, kept up to date, and of the columns of a table.
// The library of charts is loaded only where there is one to draw.
const list = document.querySelector("[data-curves]");
let shown = document.querySelector("[data-charts]");
const views = [];

async function draw(host, charts) {
  if (!charts.length) return;
  const [{ Chart }, { dataTable, tools }, { make }] = await Promise.all([import("./charts/chart.js"), import("./charts/view.js"), import("./charts/words.js")]);
  host.hidden = false;
  charts.forEach((chart, at) => {
    const known = host === shown ? undefined : views[at];
    if (known) { known.title.textContent = chart.title; known.view.show(chart); return void known.fill(chart); }
    const plot = make("div"), table = make("div", { hidden: true }), title = make("h3", {}, chart.title), note = make("p", { class: "small soft" });
    const head = make("div", { class: "row between", "data-title": chart.title }, title), view = new Chart(plot);
    const fill = (fresh) => { note.textContent = fresh.note ?? ""; table.replaceChildren(...(fresh.table && !table.hidden ? [dataTable(fresh.table, fresh.title)] : [])); };
    tools(head, [
      { words: "Logarithmic upwards", checked: () => view.isLog("y"), act: (on) => view.setLog("y", on) },
      { words: "Save as PNG", act: () => view.savePng() }, { words: "Save as CSV", act: () => view.saveCsv() },
      ...(chart.table ? [{ words: "Show as a table", act: () => { table.hidden = !table.hidden; fill(view.document); } }] : []),
    ]);
    host.append(make("div", {}, head, plot, note, table));
    view.show(chart);
    if (host !== shown) views.push({ view, fill, title });
  });
}

let tag = "", over = false, asked = 0;
async function renew() {
  if (document.hidden || Date.now() - asked < 2500) return;
  asked = Date.now();
  try {
    const answer = await fetch(list.dataset.curves, { headers: tag ? { "If-None-Match": tag } : {} });
    if (!answer.ok) return;  // 304, or the server is away for a moment
    tag = answer.headers.get("etag") ?? "";
    const charts = await answer.json();
    if (charts.length) list.hidden = false;
    await draw(list.querySelector("[data-curve-list]"), charts);
  } catch { /* the next turn asks again */ }
}

if (shown) draw(shown, JSON.parse(shown.dataset.charts));

// Once a request is over, the preview of its results comes by itself, where the server puts it.
document.addEventListener("over", async () => {
  const log = document.getElementById("log");
  if (!log || document.getElementById("preview")) return;
  try {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
    const fresh = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("preview");
    if (!fresh || document.getElementById("preview")) return;
    log.before(document.importNode(fresh, true));
    shown = document.querySelector("#preview [data-charts]");
    if (shown) await draw(shown, JSON.parse(shown.dataset.charts));
  } catch { /* it is there when the page is loaded again */ }
});
if (list) {
  over = "over" in list.dataset;
  renew();
  // The part that the one stream keeps up to date says when there may be more.
  if (!over) document.addEventListener("fresh", renew);
}

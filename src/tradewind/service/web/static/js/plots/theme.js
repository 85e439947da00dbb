// The page's colours for canvases, which know no style sheets; they are asked for anew when the reader changes them.
const NAMES = {
  ink: "--ink", soft: "--soft", line: "--line", edge: "--edge", card: "--card", raised: "--raised", accent: "--accent",
  good: "--good", bad: "--bad", warn: "--warn", work: "--work", quiet: "--quiet", focus: "--focus",
  succeeded: "--plot-feasible", infeasible: "--plot-infeasible", failed: "--plot-failed", aborted: "--plot-aborted",
  lost: "--plot-lost", running: "--work", pending: "--quiet", best: "--plot-best", front: "--plot-front",
  late: "--plot-late", faint: "--plot-faint", curve: "--plot-curve",
  ramp0: "--plot-ramp-0", ramp1: "--plot-ramp-1", ramp2: "--plot-ramp-2", ramp3: "--plot-ramp-3", ramp4: "--plot-ramp-4",
};

let known = null;
const waiting = new Set();

export function theme() {
  if (known) return known;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  known = {};
  for (const [name, variable] of Object.entries(NAMES)) {
    // light-dark() is settled only where a colour is used.
    probe.style.color = `var(${variable})`;
    known[name] = getComputedStyle(probe).color;
  }
  known.font = getComputedStyle(document.body).fontFamily;
  probe.remove();
  return known;
}

export function onTheme(change) {
  waiting.add(change);
}

function renew() {
  known = null;
  for (const change of waiting) change();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renew);
new MutationObserver(renew).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

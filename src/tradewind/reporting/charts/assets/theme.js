// The page's colours for canvases, which know no style sheets; they are asked for anew when the reader changes them.
const known = new Map(), waiting = new Set();

// The colour of a look: a name of chart.css or of the page, or the colour itself.
export function colour(look) {
  if (look.startsWith("#")) return look;
  if (!known.has(look)) {
    const probe = document.createElement("span");
    probe.hidden = true;
    // light-dark() is settled only where a colour is used.
    probe.style.color = `var(--plot-${look}, var(--${look}))`;
    document.body.append(probe);
    known.set(look, getComputedStyle(probe).color);
    probe.remove();
  }
  return known.get(look);
}

export function onTheme(change) {
  waiting.add(change);
}

function renew() {
  known.clear();
  for (const change of waiting) change();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renew);
new MutationObserver(renew).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

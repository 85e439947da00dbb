// Moments as people say them: <time datetime="..." data-when="ago|clock|full">.
const units = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function tellTimes(root) {
  for (const element of root.querySelectorAll("time[data-when]")) {
    const moment = new Date(element.dateTime);
    const shown = words(moment, element.dataset.when);
    if (element.textContent !== shown) element.textContent = shown;
    if (!element.title) element.title = full.format(moment);
  }
}

function words(moment, style) {
  if (style === "clock") return clock.format(moment);
  if (style === "full") return full.format(moment);
  const seconds = (moment - Date.now()) / 1000;
  if (Math.abs(seconds) < 45) return "just now";
  const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length * 0.9) ?? ["minute", 60];
  return relative.format(Math.round(seconds / length), unit);
}

// How long something has been going on: <span data-since="seconds since the epoch">.
export function tellDurations(root) {
  for (const element of root.querySelectorAll("[data-since]")) {
    const seconds = Math.max(0, Date.now() / 1000 - Number(element.dataset.since));
    const shown = long(seconds);
    if (element.textContent !== shown) element.textContent = shown;
  }
  for (const bar of root.querySelectorAll("progress[data-fills]")) bar.value = Math.max(0, Date.now() / 1000 - Number(bar.dataset.fills));
  const growing = [...root.querySelectorAll("[data-rate]")];
  if (growing.length) grow(growing);
}

// Money that goes on between two answers of the server, with the words of charts: <dd data-from="USD" data-rate="USD a
// second" data-at="seconds since the epoch">.
const SILENCE = 60;

async function grow(elements) {
  const { money } = await import("./charts/words.js");
  for (const element of elements) {
    const { from, rate, at } = element.dataset, value = Number(from) + Number(rate) * Math.min(SILENCE, Math.max(0, Date.now() / 1000 - Number(at)));
    if (element.matches("progress")) element.value = value;
    else if (element.textContent !== money(value)) element.textContent = money(value);
  }
}

function long(seconds) {
  const whole = Math.floor(seconds), two = (n) => String(n).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h ${two(Math.floor(whole / 60) % 60)}m`;
}

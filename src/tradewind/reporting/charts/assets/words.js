// Figures as people read and write them: the same words as on the command line.

export function money(usd) {
  if (usd === null || usd === undefined || Number.isNaN(usd)) return "–";
  if (usd < 0) return "-" + money(-usd);
  if (usd === 0 || usd >= 1) return "$" + usd.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return "$" + usd.toFixed(Math.min(9, Math.max(2, 2 - Math.floor(Math.log10(usd)))));
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds < 1) return seconds.toFixed(2) + " s";
  if (seconds < 59.95) return seconds.toFixed(1) + " s";
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, "0")}s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, "0")}m`;
}

export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-US", { useGrouping: Math.abs(value) >= 1e4 });
  return String(Number(value.toPrecision(4)));
}

export function percent(share) {
  if (share > 0 && share < 0.01) return "under 1 %";
  if (share > 0.99 && share < 1) return "over 99 %";
  return `${Math.round(100 * share)} %`;
}

export function count(number, noun) {
  return `${number.toLocaleString("en-US")} ${noun}${number === 1 ? "" : "s"}`;
}

// Words for a value of a metric by its kind: "money", "time" or "number".
export function valueWords(kind) {
  return { money, time: duration }[kind] ?? figure;
}

const SECONDS = { ms: 0.001, s: 1, m: 60, min: 60, h: 3600, d: 86400 };

// The number that somebody wrote: 12, $0.5, 90s, 2h30m, 5%; NaN where it is none.
export function parseAmount(text) {
  const plain = text.trim().replace(/^\$/, "").replace(/,/g, "");
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain)) return Number(plain);
  if (/^(\d+\.?\d*|\.\d+)%$/.test(plain)) return Number(plain.slice(0, -1)) / 100;
  let total = 0, rest = plain;
  for (let match; rest && (match = /^(\d+\.?\d*|\.\d+)(ms|min|s|m|h|d)/.exec(rest)); rest = rest.slice(match[0].length)) {
    total += Number(match[1]) * SECONDS[match[2]];
  }
  return rest || !plain ? NaN : total;
}

// One cell of a CSV file. A word that begins like a formula gets an apostrophe: spreadsheets would carry it out.
export function csvCell(value) {
  if (value === null || value === undefined || (typeof value === "number" && Number.isNaN(value))) return "";
  const text = typeof value === "string" && /^[=+@\t\r-]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}

// Give the reader a file.
export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, "-");
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function saveCsv(name, header, rows) {
  const lines = [header, ...rows].map((row) => row.map(csvCell).join(","));
  save(name, new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
}

// An element with attributes, properties (beginning with a dot) and children.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith(".")) element[name.slice(1)] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

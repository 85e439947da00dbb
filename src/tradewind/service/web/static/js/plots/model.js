// The trials of a study in the page: typed columns, which of them pass the filters, and which one is pointed at.
import { duration, figure, money, valueWords } from "../charts/words.js";

export const STATES = ["succeeded", "infeasible", "aborted", "failed", "lost", "running", "pending"];
export const STATE_WORDS = {
  succeeded: "feasible", infeasible: "infeasible", aborted: "cut short", failed: "failed", lost: "lost", running: "running", pending: "waiting",
};
const NUMBERS = ["objective", "cost", "runtime", "spent", "fidelity", "price_per_hour", "created", "started", "ended", "nodes"];
const WORDS = ["provider", "instance_type"];

export class Model extends EventTarget {
  constructor({ metric, goal, kind, deadline }) {
    super();
    Object.assign(this, { metric, maximise: goal === "maximise", kind, deadline });
    this.n = 0;
    this.number = [];
    this.state = [];
    this.columns = Object.fromEntries(NUMBERS.map((name) => [name, []]));
    this.words = Object.fromEntries(WORDS.map((name) => [name, { words: [], codes: [] }]));
    this.parameters = [];
    this.byName = new Map();
    this.total = new Float64Array(0);
    this.spentTotal = 0;
    this.reasons = new Map();
    this.early = new Set();
    this.best = -1;
    this.front = [];
    this.openFrom = 0;
    this.mask = new Uint8Array(0);
    this.passing = 0;
    this.filters = new Map();
    this.hover = -1;
    this.chosen = -1;
    this.value = valueWords(kind);
    this._pending = new Set();
  }

  // Take trials as the server tells them: all, or those from the first number on that could have changed.
  // Says no, and takes nothing, where a parameter of numbers has got words since: then all are to be taken anew.
  take(page, since = 0) {
    const changed = page.parameters.some(({ name, values }) => this.byName.has(name) && Array.isArray(values) === !!this.byName.get(name).words);
    if (since && changed) return false;
    if (!since) { this.parameters = []; this.byName = new Map(); }
    const keep = since ? this.rowOf(since, true) : 0;
    this.number = append(this.number, keep, page.columns.number, Number);
    const states = page.columns.state.words.map((word) => STATES.indexOf(word));
    this.state = append(this.state, keep, page.columns.state.codes, (code) => states[code]);
    this.n = this.number.length;
    for (const name of NUMBERS) this.columns[name] = append(this.columns[name], keep, page.columns[name], real);
    for (const name of WORDS) this.words[name] = appendWords(this.words[name], keep, page.columns[name]);
    this._takeParameters(page.parameters, keep);
    for (const [number, text] of Object.entries(page.reasons)) this.reasons.set(Number(number), text);
    for (const number of page.early) this.early.add(number);
    this.best = page.best === null ? -1 : this.rowOf(page.best);
    this.openFrom = page.open_from;
    this.origin = page.origin;
    this._derive();
    this._filter();
    this.tell("data");
    return true;
  }

  _takeParameters(given, keep) {
    const fresh = new Map(given.map((one) => [one.name, one.values]));
    const known = new Map(this.parameters.map((one) => [one.name, one]));
    const rows = this.n - keep;
    for (const name of new Set([...known.keys(), ...fresh.keys()])) {
      const one = known.get(name) ?? { name, values: new Float64Array(keep).fill(NaN), words: null };
      const values = fresh.get(name) ?? new Array(rows).fill(null);
      if (Array.isArray(values)) {
        // A parameter of words none of whose new trials has a word comes as nothing but nulls.
        one.values = append(one.values, keep, values, real);
      } else {
        const merged = appendWords({ words: one.words ?? [], codes: one.values }, keep, values);
        one.words = merged.words;
        one.values = merged.codes;
      }
      known.set(name, one);
    }
    this.parameters = [...known.values()];
    this.byName = known;
  }

  parameter(name) {
    return this.byName.get(name);
  }

  // What is computed from the columns: the money spent up to the end of each trial, in the order in which they ended.
  _derive() {
    const { ended, spent } = this.columns;
    const order = [];
    for (let row = 0; row < this.n; row++) if (this.state[row] < 5) order.push(row);
    order.sort((a, b) => (ended[a] - ended[b]) || (a - b));
    this.total = new Float64Array(this.n).fill(NaN);
    let sum = 0;
    for (const row of order) {
      sum += spent[row] || 0;
      this.total[row] = sum;
    }
    this.spentTotal = sum;
  }

  rowOf(number, orNext = false) {
    let low = 0, high = this.number.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.number[middle] < number) low = middle + 1;
      else high = middle;
    }
    return orNext || this.number[low] === number ? low : -1;
  }

  // ------------------------------------------------------------------ filters and pointing

  // Keep only rows that a function says yes to; null takes the filter of that name away.
  filter(name, passes) {
    if (passes) this.filters.set(name, passes);
    else if (!this.filters.delete(name)) return;
    this._filter();
    this.tell("filter");
  }

  _filter() {
    const tests = [...this.filters.values()];
    const mask = new Uint8Array(this.n);
    let passing = 0;
    for (let row = 0; row < this.n; row++) {
      if (tests.every((passes) => passes(row))) { mask[row] = 1; passing++; }
    }
    this.mask = mask;
    this.passing = passing;
  }

  get filtered() {
    return this.filters.size > 0;
  }

  point(row) {
    if (row === this.hover) return;
    this.hover = row;
    this.tell("hover");
  }

  choose(row) {
    this.chosen = row;
    this.tell("choose");
  }

  // Tell all who listen before the next frame is drawn, however often something changes until then.
  tell(kind) {
    if (!this._pending.size) {
      requestAnimationFrame(() => {
        const kinds = [...this._pending];
        this._pending.clear();
        for (const one of kinds) this.dispatchEvent(new Event(one));
      });
    }
    this._pending.add(kind);
  }

  // ------------------------------------------------------------------ words

  setting(parameter, row) {
    const value = parameter.values[row];
    if (Number.isNaN(value)) return "";
    return parameter.words ? parameter.words[value] : figure(value);
  }

  configuration(row) {
    return this.parameters.map((one) => [one.name, this.setting(one, row)]).filter(([, value]) => value !== "");
  }

  // Whether a trial was on the whole input.
  whole(row) {
    return !(this.columns.fidelity[row] < 1);
  }

  stateWord(row) {
    return STATE_WORDS[STATES[this.state[row]]];
  }

  machines(row) {
    const type = this.words.instance_type, provider = this.words.provider;
    const name = type.words[type.codes[row]], from = provider.words[provider.codes[row]];
    return name ? `${this.columns.nodes[row]} × ${name}${from ? ` of ${from}` : ""}` : "";
  }

  // What is said where the pointer rests on a trial.
  lines(row) {
    const bound = STATES[this.state[row]] === "aborted" ? "at least " : "";
    const { cost, runtime, objective, fidelity } = this.columns;
    const part = this.whole(row) ? "" : ` on ${figure(100 * fidelity[row])} % of the input`;
    const lines = [`Trial ${this.number[row]}: ${this.stateWord(row)}${part}${row === this.best ? ", the best" : ""}`];
    if (!Number.isNaN(cost[row])) lines.push(`${bound}${money(cost[row])} this run, ${bound}${duration(runtime[row])}`);
    if (this.kind === "number" && !Number.isNaN(objective[row])) lines.push(`${this.metric} ${figure(objective[row])}`);
    const settings = this.configuration(row).map(([name, value]) => `${name} = ${value}`);
    lines.push(...settings.slice(0, 9));
    if (settings.length > 9) lines.push(`and ${settings.length - 9} more`);
    const reason = this.reasons.get(this.number[row]);
    if (reason) lines.push(reason.length > 120 ? reason.slice(0, 119) + "…" : reason);
    return lines;
  }
}

function real(value) {
  return value === null ? NaN : value;
}

function append(old, keep, values, read) {
  const all = new Float64Array(keep + values.length);
  for (let i = 0; i < keep; i++) all[i] = old[i];
  for (let i = 0; i < values.length; i++) all[keep + i] = read(values[i]);
  return all;
}

function appendWords(old, keep, given) {
  const words = old.words.slice();
  const places = given.words.map((word) => {
    const place = words.indexOf(word);
    return place >= 0 ? place : words.push(word) - 1;
  });
  return { words, codes: append(old.codes, keep, given.codes, (code) => (code === null ? NaN : places[code])) };
}

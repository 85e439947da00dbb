// Where a value stands on an axis, and which round values are written beside it.
import { duration, figure, money } from "./words.js";

export class Scale {
  // low and high stand at the pixels start and end; unit is what labels count in, such as 60 for minutes.
  constructor(low, high, start, end, { log = false, unit = 1 } = {}) {
    Object.assign(this, { low, high, start, end, log, unit });
    this._low = log ? Math.log(low) : low;
    this._span = (log ? Math.log(high) : high) - this._low || 1;
  }

  at(value) {
    return this.start + (this.end - this.start) * (((this.log ? Math.log(value) : value) - this._low) / this._span);
  }

  value(pixel) {
    const inner = this._low + this._span * ((pixel - this.start) / (this.end - this.start));
    return this.log ? Math.exp(inner) : inner;
  }

  ticks(about) {
    const low = this.low / this.unit, high = this.high / this.unit;
    if (!(this.log && high / low >= 8)) return steps(low, high, about).map((value) => value * this.unit);
    const decades = Math.log10(high / low);
    const factors = decades <= 1.7 ? [1, 2, 5] : decades <= 2.6 ? [1, 3] : [1];
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const factor of factors) {
        const value = Number((factor * 10 ** power).toPrecision(6));
        if (low <= value && value <= high) found.push(value);
      }
    }
    const every = Math.max(1, Math.ceil(found.length / (about + 3)));
    return found.filter((_, place) => place % every === 0).map((value) => value * this.unit);
  }
}

function steps(low, high, about) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((value) => value >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// Least and greatest of some values that can stand on an axis; null where there is none.
export function range(values, log = false, wanted = null) {
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (!(value > low && value < high) && Number.isFinite(value) && (!log || value > 0) && (!wanted || wanted[i])) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

// The range with a little air around it.
export function airy([low, high], log, zero = false) {
  if (log) return [low / 1.15, high * 1.15];
  const air = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [zero && low >= 0 ? 0 : low - air, high + air];
}

// Whether a linear axis would hide the differences between the small values.
export function wantsLog(found, ratio = 12) {
  return !!found && found[0] > 0 && found[1] / found[0] > ratio;
}

export function timeUnit(longest) {
  return longest >= 7200 ? [3600, "hours"] : longest >= 180 ? [60, "minutes"] : [1, "seconds"];
}

// What an axis counts in: its unit, title and what writes a label.
export function axisOf(kind, title, longest) {
  if (kind === "money") return { unit: 1, title, words: money };
  if (kind !== "time") return { unit: 1, title, words: figure };
  const [unit, name] = timeUnit(longest);
  return { unit, title: `${title}, ${name}`, words: (value) => figure(Number((value / unit).toPrecision(4))), exact: duration };
}

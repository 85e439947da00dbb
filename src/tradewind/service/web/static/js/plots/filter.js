// Filters trials by what is typed: words, name=value, name<value, name>=value; money and times as people write them.
import { STATES, STATE_WORDS } from "./model.js";
import { parseAmount } from "../charts/words.js";

const FIGURES = { cost: "cost", time: "runtime", runtime: "runtime", spent: "spent", nodes: "nodes", price: "price_per_hour", input: "fidelity" };
const TERM = /^([^\s<>=!]+)(<=|>=|!=|=|<|>)(.*)$/;

export class TrialFilter {
  // form: with an input name=text and a select name=state; says what it does not understand in its [role=alert].
  constructor(form, model) {
    Object.assign(this, { form, model, text: form.elements.text, state: form.elements.state, problem: form.querySelector("[data-problem]") });
    for (const state of STATES) {
      const option = document.createElement("option");
      option.value = state;
      option.textContent = STATE_WORDS[state];
      this.state.append(option);
    }
    form.addEventListener("input", () => this.apply());
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("clear", () => { this.text.value = ""; this.state.value = ""; this.apply(); });
  }

  apply() {
    const { model } = this, code = STATES.indexOf(this.state.value);
    model.filter("state", code < 0 ? null : (row) => model.state[row] === code);
    const terms = this.text.value.trim().split(/\s+/).filter(Boolean).map((term) => read(term, model));
    const wrong = terms.find((term) => term.problem);
    this.problem.textContent = wrong?.problem ?? "";
    this.problem.hidden = !wrong;
    this.text.toggleAttribute("aria-invalid", !!wrong);
    if (wrong) this.text.setAttribute("aria-invalid", "true");
    const tests = terms.filter((term) => term.passes).map((term) => term.passes);
    model.filter("text", tests.length ? (row) => tests.every((passes) => passes(row)) : null);
  }
}

function read(term, model) {
  const match = TERM.exec(term);
  if (!match) return { passes: containing(term.toLowerCase(), model) };
  const [, name, sign, text] = match;
  const parameter = model.parameters.find((one) => one.name === name);
  const column = parameter ? null : name === model.metric ? "objective" : FIGURES[name];
  if (!column && !parameter) {
    const known = [...model.parameters.map((one) => one.name), "cost", "time", model.metric].filter((one, at, all) => all.indexOf(one) === at);
    return { problem: `There is no ${name} here: write one of ${known.join(", ")}.` };
  }
  if (!text) return {};
  const read = parameter ? () => model.parameter(name).values : () => model.columns[column];
  if (parameter?.words) {
    if (sign !== "=" && sign !== "!=") return { problem: `${name} has words: write ${name}=${parameter.words[0]}.` };
    const wanted = text.toLowerCase(), yes = sign === "=";
    return { passes: (row) => {
      const word = model.parameter(name).words[read()[row]];
      return word !== undefined && (word.toLowerCase() === wanted) === yes;
    } };
  }
  const number = parseAmount(text);
  if (Number.isNaN(number)) return { problem: `${text} is no number: write 4, $0.50, 90s or 2h30m.` };
  const near = (value) => Math.abs(value - number) <= 1e-5 * Math.abs(number);
  const test = {
    "<": (value) => value < number, ">": (value) => value > number, "<=": (value) => value <= number || near(value),
    ">=": (value) => value >= number || near(value), "=": near, "!=": (value) => !Number.isNaN(value) && !near(value),
  }[sign];
  return { passes: (row) => test(read()[row]) };
}

function containing(word, model) {
  return (row) => String(model.number[row]) === word || model.stateWord(row).includes(word)
    || model.machines(row).toLowerCase().includes(word) || (model.reasons.get(model.number[row]) ?? "").toLowerCase().includes(word)
    || model.parameters.some((one) => model.setting(one, row).toLowerCase().includes(word));
}

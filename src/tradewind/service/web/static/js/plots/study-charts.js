// The two charts of points of a study: the best so far against money, and cost against run time with the deadline.
import { PointChart } from "./points.js";
import { duration } from "./words.js";

// What the search has bought: steps at each trial that beat all before it.
export class ProgressChart extends PointChart {
  constructor(host, model, title) {
    super(host, model, {
      label: `Best ${model.metric} so far against money spent`,
      height: 320,
      name: "best-so-far",
      x: { kind: "money", title: "money spent, USD total", values: (it) => it.total, zero: true },
      y: { kind: model.kind, title, log: true, values: measured },
    });
    this.curve = null;
  }

  // curve: {spent, best, number, end} as the server tells it.
  setCurve(curve) {
    this.curve = curve;
    this.redraw();
  }

  above(context, colours) {
    const curve = this.curve;
    if (!curve?.spent.length) return;
    context.beginPath();
    curve.spent.forEach((spent, place) => {
      const across = this.x.at(spent), down = this.y.at(curve.best[place]);
      if (!place) return context.moveTo(across, down);
      context.lineTo(across, this.y.at(curve.best[place - 1]));
      context.lineTo(across, down);
    });
    context.lineTo(this.x.at(Math.max(curve.end, this.model.spentTotal || 0)), this.y.at(curve.best[curve.best.length - 1]));
    context.strokeStyle = colours.curve;
    context.lineWidth = 2.2;
    context.lineJoin = "round";
    context.stroke();
    const last = curve.best.length - 1;
    const across = Math.min(this.x.at(curve.end), this.x.end), down = this.y.at(curve.best[last]);
    const inside = down > this.y.end + 22;
    context.font = `600 12.5px ${colours.font}`;
    context.textAlign = "end";
    context.lineWidth = 4;
    context.strokeStyle = colours.card;
    context.fillStyle = colours.ink;
    const words = `best: ${this.model.value(curve.best[last])}`;
    context.strokeText(words, across, inside ? down - 10 : down + 20);
    context.fillText(words, across, inside ? down - 10 : down + 20);
  }
}

// Only what was measured feasibly stands against the curve: a quick failure is no good result.
function measured(model) {
  return model.columns.objective.map((value, row) => (model.state[row] === 0 && model.whole(row) ? value : NaN));
}

// What a part of the input costs and takes is no cost and time of its configuration: it would look cheap and quick.
function whole(model, values) {
  return values.map((value, row) => (model.whole(row) ? value : NaN));
}

// Which trials were in time and cheap; a ring where no other feasible one is both as cheap and as quick.
export class MapChart extends PointChart {
  constructor(host, model) {
    const near = () => (model.deadline ? [model.deadline] : []);
    super(host, model, {
      label: "Cost and run time of every trial",
      height: 320,
      name: "cost-time-map",
      x: { kind: "time", title: "run time", log: true, values: (it) => whole(it, it.columns.runtime), near },
      y: { kind: "money", title: "cost, USD this run", log: true, values: (it) => whole(it, it.columns.cost) },
    });
    this.front = [];
  }

  // front: numbers of the trials that no other one is both as cheap and as quick as.
  setFront(front) {
    this.front = front;
    this.redraw();
  }

  _deadline() {
    const { deadline } = this.model;
    if (!deadline) return null;
    const at = this.x.at(deadline);
    return at > this.x.start && at < this.x.end ? at : null;
  }

  axes(pen) {
    const at = this._deadline();
    if (at !== null) pen.rect(at, this.y.end, this.x.end - at, this.y.start - this.y.end, "late");
    super.axes(pen);
    if (at === null) return;
    pen.line(at, this.y.start, at, this.y.end, "deadline");
    const left = at > (this.x.start + this.x.end) / 2;
    pen.text(at + (left ? -6 : 6), this.y.end + 12, `deadline ${duration(this.model.deadline)}`, "strong", left ? "end" : "start");
  }

  above(context, colours) {
    context.strokeStyle = colours.front;
    context.lineWidth = 1.8;
    for (const number of this.front) {
      const row = this.model.rowOf(number);
      if (row < 0 || Number.isNaN(this.px[row])) continue;
      context.beginPath();
      context.arc(this.px[row], this.py[row], 6.5, 0, Math.PI * 2);
      context.stroke();
    }
  }
}

// The marks of trials on a canvas: each outcome by its shape and its colour, as in the report.
import { STATES } from "./model.js";

const TURN = Math.PI * 2;

// A mark around (x, y) is added to the path; crosses and pluses are to be stroked, all others filled.
export function trace(context, kind, x, y, size) {
  switch (kind) {
    case "infeasible":
      return polygon(context, x, y, 3, size * 1.25, size * 1.25);
    case "aborted":
      return polygon(context, x, y, 4, size * 1.15, size * 1.15);
    case "best":
      return polygon(context, x, y, 10, size * 2.1, size * 0.9);
    case "failed":
      context.moveTo(x - size * 0.9, y - size * 0.9);
      context.lineTo(x + size * 0.9, y + size * 0.9);
      context.moveTo(x - size * 0.9, y + size * 0.9);
      return context.lineTo(x + size * 0.9, y - size * 0.9);
    case "lost":
      context.moveTo(x - size, y);
      context.lineTo(x + size, y);
      context.moveTo(x, y - size);
      return context.lineTo(x, y + size);
    default:
      context.moveTo(x + size * 0.95, y);
      return context.arc(x, y, size * 0.95, 0, TURN);
  }
}

function polygon(context, x, y, corners, even, odd) {
  for (let i = 0; i < corners; i++) {
    const angle = (i / corners) * TURN - TURN / 4, radius = i % 2 ? odd : even;
    if (i) context.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
    else context.moveTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
  }
  context.closePath();
}

export function stroked(kind) {
  return kind === "failed" || kind === "lost";
}

export function ink(context, kind, colour) {
  if (stroked(kind)) {
    context.strokeStyle = colour;
    context.lineWidth = 1.6;
    context.stroke();
  } else {
    context.fillStyle = colour;
    context.fill();
  }
}

// Many trials at once: one path for each outcome. Overlapping marks of a path would cut holes into each other, and one
// stroke of thousands takes long: portions of some hundreds do neither to an extent that is seen.
export function scatter(context, colours, x, y, state, mask, size) {
  for (let kind = STATES.length - 1; kind >= 0; kind--) {
    const name = STATES[kind];
    context.globalAlpha = name === "succeeded" ? 0.72 : 0.9;
    let held = 0;
    context.beginPath();
    for (let i = 0; i < x.length; i++) {
      if (state[i] !== kind || !mask[i] || Number.isNaN(x[i]) || Number.isNaN(y[i])) continue;
      trace(context, name, x[i], y[i], size);
      if (++held === 400) {
        ink(context, name, colours[name]);
        context.beginPath();
        held = 0;
      }
    }
    if (held) ink(context, name, colours[name]);
  }
  context.globalAlpha = 1;
}

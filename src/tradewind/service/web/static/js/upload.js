// Files of a form: each is sent as soon as it is chosen, in pieces, with its progress beside the field; the form then names
// it. A file that is too large is refused before anything is sent, and the rest of the form stays as it is.
import { before } from "./keep.js";
import { signedOut } from "./session.js";

const TRIES = 5;
const running = new Map();

// Watches the file fields of a form; `changed` runs when one has arrived.
export function watchFiles(form, changed) {
  for (const field of form.querySelectorAll("input[type=file][data-most]")) {
    field.addEventListener("change", () => { if (field.files[0]) start(form, field, changed); });
  }
  before(async () => {
    await Promise.allSettled([...running.values()]);
    return !form.querySelector(".upload.bad");
  });
}

function start(form, field, changed) {
  const file = field.files[0], line = holder(field);
  field.value = "";  // it goes by itself, not once more with the form
  const kept = form.elements[`k.${field.name.slice(2)}`];
  if (file.size > Number(field.dataset.most)) {
    return tell(line, `${file.name} has ${size(file.size)}, and this field takes at most ${size(Number(field.dataset.most))}: choose another file.`, true);
  }
  const turn = send(form, file, line);
  running.set(field, turn);
  turn.then((value) => {
    if (running.get(field) !== turn) return;
    running.delete(field);
    if (!value) return;
    kept.value = JSON.stringify(value);
    tell(line, `Handed in: ${file.name} (${size(file.size)}).`);
    changed();
  });
}

// Sends a file; its value for the form, or nothing where that did not work, which is said.
async function send(form, file, line) {
  const most = Number(form.dataset.piece) || 1 << 20, pieces = [];
  const bar = document.createElement("progress");
  Object.assign(bar, { max: Math.max(1, file.size), value: 0, ariaLabel: `Sending ${file.name}` });
  const words = document.createElement("span");
  line.className = "upload small";
  line.replaceChildren(bar, words);
  let sent = 0;
  do {
    const piece = file.slice(sent, sent + most);
    const progress = (loaded) => {
      bar.value = sent + loaded;
      words.textContent = `${file.name}: ${size(sent + loaded)} of ${size(file.size)}`;
    };
    progress(0);
    const answer = await call(form, line, "/api/v1/uploads/pieces", piece, "application/octet-stream", progress);
    if (!answer) return null;
    pieces.push(answer.piece);
    sent += piece.size;
  } while (sent < file.size);
  return call(form, line, "/api/v1/uploads/join", JSON.stringify({ name: file.name, pieces }), "application/json", () => {});
}

// One call, again where the server was away for a moment or the session had ended.
async function call(form, line, path, body, type, progress) {
  for (let turn = 1; ; turn++) {
    const { status, text } = await post(path, body, type, progress);
    if (status === 201) return JSON.parse(text);
    if (status === 401) {
      tell(line, "This file waits until you are signed in again.");
      await new Promise((resolve) => signedOut(form, resolve));
      continue;
    }
    const away = status === 0 || status >= 500;
    if (!away || turn === TRIES) {
      tell(line, away ? "The server does not answer: choose the file again in a moment." : problem(text), true);
      return null;
    }
    await new Promise((resolve) => setTimeout(resolve, 500 * turn));
  }
}

function post(path, body, type, progress) {
  return new Promise((resolve) => {
    const sent = new XMLHttpRequest();
    sent.open("POST", path);
    sent.setRequestHeader("Content-Type", type);
    sent.setRequestHeader("X-CSRF-Token", document.querySelector('meta[name="csrf"]').content);
    sent.upload.addEventListener("progress", (event) => progress(event.loaded));
    sent.addEventListener("loadend", () => resolve({ status: sent.status, text: sent.responseText }));
    sent.send(body);
  });
}

function problem(text) {
  try {
    const { title, hint } = JSON.parse(text);
    return `This file is refused: ${title}${hint ? ` (${hint})` : ""}.`;
  } catch {
    return "This file is refused.";
  }
}

function holder(field) {
  const slot = field.closest(".field");
  let line = slot.querySelector(".upload");
  if (!line) {
    line = document.createElement("p");
    line.setAttribute("role", "status");
    slot.append(line);
  }
  return line;
}

function tell(line, words, bad = false) {
  line.className = `upload small${bad ? " bad error" : ""}`;
  line.textContent = words;
}

const size = (bytes) => bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`;

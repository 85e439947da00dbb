// The text of an application: line numbers, what is wrong while one types, and the way to the line that is.
import "./keep.js";
import { onReturn, signedIn, signedOut } from "./session.js";

const form = document.querySelector("[data-register]");
const text = form.elements.text, numbers = form.querySelector(".numbers"), place = document.getElementById("check");
let wrong = 0;

numbers.hidden = false;
function count() {
  const lines = text.value.split("\n").length;
  numbers.replaceChildren(...Array.from({ length: lines }, (_, index) => {
    const line = document.createElement("span");
    line.textContent = `${index + 1}\n`;
    if (index + 1 === wrong) line.className = "wrong";
    return line;
  }));
  follow();
}
const follow = () => { numbers.scrollTop = text.scrollTop; };
text.addEventListener("scroll", follow);

function mark() {
  const problem = place.querySelector("[data-line]");
  wrong = Number(problem?.dataset.line || 0);
  if (problem) text.setAttribute("aria-invalid", "true"); else text.removeAttribute("aria-invalid");
  place.querySelectorAll(".only-script").forEach((one) => { one.hidden = false; });
  count();
}

place.addEventListener("click", (event) => {
  const line = Number(event.target.dataset?.go);
  if (!line) return;
  const lines = text.value.split("\n"), start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.focus();
  text.setSelectionRange(start, start + lines[line - 1].length);
  text.scrollTop = (line - 6) * (text.scrollHeight / lines.length);
});

let timer = null, running = null, out = false;
onReturn(() => { if (out) check(); });
text.addEventListener("input", () => {
  count();
  clearTimeout(timer);
  timer = setTimeout(check, 600);
});

form.elements.vouch?.addEventListener("change", () => check());

async function check() {
  running?.abort();
  const mine = running = new AbortController();
  place.setAttribute("aria-busy", "true");
  if (out) out = !await signedIn().catch(() => false);
  if (mine !== running) return;
  const data = new FormData();
  data.set("text", text.value);
  if (form.elements.vouch?.checked) data.set("vouch", "on");
  data.set("csrf", form.elements.csrf.value);
  try {
    const answer = await fetch("/applications/new/check", { method: "POST", body: data, signal: mine.signal, headers: { Accept: "text/html" } });
    if (answer.redirected) {
      out = true;
      if (!document.querySelector(".again")) signedOut(form, check);
    } else if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body;
      place.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
      mark();
    }
  } catch { /* the server is away, or more was typed: the next turn says it */ } finally {
    place.setAttribute("aria-busy", "false");
  }
}

// A file is read into the text, so that what is wrong with it is shown beside it.
form.elements.file.addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file || file.size > 2_000_000) return;
  text.value = await file.text();
  event.target.value = "";
  count();
  check();
});
mark();

// Keeps parts of a page as the server has them: <div data-live="address of the part" data-events="address of a stream">.
// Each event makes the part be asked for again, at most once a second; without a stream it is asked for every few seconds.
import { heard, isAway, lost, silent } from "./away.js";
import { tellTimes } from "./times.js";

for (const holder of document.querySelectorAll("[data-live]")) if (!("over" in holder.dataset)) keep(holder);

function keep(holder) {
  let source = null, waiting = null, running = false, again = false, fallback = null, left = false, last = false;

  async function refresh() {
    if (left) return;
    if (running) return void (again = true);
    running = true;
    try {
      const answer = await fetch(holder.dataset.live, { headers: { Accept: "text/html" } });
      if (silent(answer.status)) throw new Error("away");
      heard();
      if (answer.redirected || answer.status === 401) return location.reload();  // the session is over
      if (answer.status === 404) return location.assign("/requests");  // it was deleted
      if (answer.ok) {
        put(holder, await answer.text());
        document.dispatchEvent(new Event("fresh"));
        if (last) document.dispatchEvent(new Event("over"));
        if (last && !asks(holder)) leave();  // what a dialog keeps as it was is put right at a later turn
      }
    } catch {  // the server is away for a moment
      if (!left) lost();
    } finally {
      running = false;
      if (isAway()) setTimeout(refresh, 1000);
      if (again) { again = false; soon(); }
    }
  }

  function soon() {
    if (left) return;
    if (waiting || document.hidden) return void (missed = document.hidden || missed);
    waiting = setTimeout(() => { waiting = null; refresh(); }, 700);
  }
  let missed = false;

  function listen() {
    if (left) return;
    source = new EventSource(holder.dataset.events);
    source.onmessage = (event) => { say(event.data); soon(); };
    source.addEventListener("end", () => { last = true; source.close(); clearInterval(fallback); fallback = null; soon(); });
    source.onopen = () => { clearInterval(fallback); fallback = null; soon(); };
    source.onerror = () => {
      if (!last && !document.hidden) refresh();  // a stream also ends where the server is there
      fallback ??= setInterval(soon, 4000);
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 15000);
    };
  }
  if (holder.dataset.events) listen();
  const turns = setInterval(soon, holder.dataset.events ? 15000 : 4000);  // money and time go on between events
  document.addEventListener("visibilitychange", () => { if (!document.hidden && missed) { missed = false; soon(); } });
  // Whoever sends a form leaves this page: what is asked for now may be gone when the answer comes.
  const leave = () => { left = true; source?.close(); clearTimeout(waiting); clearInterval(fallback); clearInterval(turns); };
  document.addEventListener("submit", (event) => { if (!event.defaultPrevented) leave(); });
  addEventListener("pagehide", leave);
}

// Replaces what has changed, and leaves alone what the reader is using: open details, dialogs, the focus, scrolling.
function put(holder, text) {
  const fresh = new DOMParser().parseFromString(text, "text/html").body;
  for (const details of holder.querySelectorAll("details[open]")) {
    const same = [...fresh.querySelectorAll("details")].find((d) => d.className === details.className);
    if (same) same.open = true;
  }
  tellTimes(fresh);
  merge(holder, fresh);
  tellTimes(holder);
}

function merge(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const theirs = [...fresh.childNodes], mine = partners([...old.childNodes], theirs);
  for (const node of [...old.childNodes]) if (!mine.includes(node)) remove(node);
  let place = old.firstChild;
  theirs.forEach((their, i) => {
    while (place && asks(place) && !mine.includes(place)) place = place.nextSibling;  // a dialog that stays for now
    const node = mine[i];
    if (!node) return void old.insertBefore(document.importNode(their, true), place);
    if (node === place) place = place.nextSibling;
    else if (asks(node)) place = pass(node, place);
    else move(node, place);
    if (node.nodeType !== Node.ELEMENT_NODE) { if (node.data !== their.data) node.data = their.data; return; }
    for (const { name, value } of their.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    for (const { name } of [...node.attributes]) {
      if (!their.hasAttribute(name) && !(name === "tabindex" && node === document.activeElement)) node.removeAttribute(name);
    }
    merge(node, their);
  });
}

// The node here that each of theirs is a newer state of, or undefined where it is new.
function partners(mine, theirs) {
  const known = new Map();
  for (const node of mine) known.set(meaning(node), [...(known.get(meaning(node)) ?? []), node]);
  return theirs.map((node) => known.get(meaning(node))?.shift());
}

// A button never turns into another one under somebody's finger.
function meaning(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return String(node.nodeType);
  const names = ["id", "data-key", "popovertarget", "action", "href"].map((name) => node.getAttribute(name) ?? "");
  return [node.nodeName, ...names].join(" ");
}

// Whoever is on what goes away stays near it, on nothing that a key would set off.
function remove(node) {
  if (asks(node)) return;  // the next turn does it
  const parent = node.parentElement, held = node.contains(document.activeElement);
  node.remove();
  if (!held) return;
  parent.tabIndex = -1;
  parent.focus({ preventScroll: true });
}

function move(node, place) {
  const focus = node.contains(document.activeElement) ? document.activeElement : null;
  place ? place.before(node) : node.parentNode.append(node);
  focus?.focus({ preventScroll: true });
}

// A dialog that is moved would close: what is before it, and should not be, goes behind it.
function pass(node, place) {
  for (let last = node; place !== node;) {
    const next = place.nextSibling;
    last.after(place);
    last = place;
    place = next;
  }
  return node.nextSibling;
}

// Whether a dialog is open in here.
function asks(node) {
  return node.nodeType === Node.ELEMENT_NODE && (node.matches(":popover-open") || node.querySelector(":popover-open") !== null);
}

// What happened is read out: one line, not the whole part.
let lastSaid = "";
function say(data) {
  const place = document.getElementById("said");
  if (!place) return;
  try {
    const event = JSON.parse(data);
    const words = `Request ${event.request}: ${event.text}`;
    if (event.text && words !== lastSaid) place.textContent = lastSaid = words;
  } catch { /* not for people */ }
}

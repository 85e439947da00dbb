// The log of a request, as it grows.
const card = document.querySelector("[data-log]");
const follow = card.querySelector("[data-follow]"), wrap = card.querySelector("[data-wrap]");
card.querySelector("[data-log-tools]").hidden = false;
wrap.addEventListener("change", () => card.querySelectorAll(".log").forEach((log) => log.classList.toggle("wrap", wrap.checked)));
const MOST = 1_000_000;  // characters that are kept on the page

for (const part of card.querySelectorAll("[data-stream]")) read(part);

function read(part) {
  const log = part.querySelector(".log");
  let timer = null, next = Number(part.dataset.next), run = part.dataset.run, shown = run, ended = "ended" in part.dataset, own = false;
  const down = () => { own = true; log.scrollTop = log.scrollHeight; };
  if (follow.checked) down();
  part.addEventListener("toggle", () => { if (part.open && follow.checked) down(); });
  follow.addEventListener("change", () => { if (follow.checked) down(); });
  // Whoever scrolls up wants to read: following stops until they come back to the end.
  log.addEventListener("scroll", () => {
    if (own) return void (own = false);
    if (part.open) follow.checked = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  });

  async function more() {
    if (ended) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(`${part.dataset.stream}?${new URLSearchParams({ offset: next, run })}`);
        if (answer.ok) {
          const found = await answer.json();
          next = found.next; run = found.run; ended = found.ended;
          if (ended && !log.textContent) part.querySelector("[data-size]").textContent = "nothing";
          if (found.text) {
            if (shown && run !== shown) log.append(`${log.textContent.endsWith("\n") ? "" : "\n"}trial ${found.trial}\n`);
            shown = run;
            log.append(found.text);
            log.hidden = part.querySelector(".under").hidden = false;
            part.querySelector("[data-size]").textContent = "";
            if (log.textContent.length > MOST) log.textContent = log.textContent.slice(-MOST / 2);
            if (follow.checked) down();
            if (found.text.length > 60000) return more();
          }
        }
      } catch { /* away for a moment */ }
    }
    clearTimeout(timer);
    timer = setTimeout(more, part.open ? 1500 : 5000);
  }
  document.addEventListener("over", () => { clearTimeout(timer); more(); });  // the end of it, at once
  more();
}

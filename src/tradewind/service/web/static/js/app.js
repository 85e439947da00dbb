// On every page: moments in the reader's own time zone, and buttons that are pressed once only.
import { isAway } from "./away.js";
import { tellDurations, tellTimes } from "./times.js";

tellTimes(document);
setInterval(() => tellTimes(document), 20000);
setInterval(() => { if (!isAway()) tellDurations(document); }, 1000);

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => delete form.dataset.sent, 4000);
});

// A page that comes back by the "back" button is as fresh as any other, but for what somebody typed.
addEventListener("pageshow", (event) => { if (event.persisted && !document.querySelector("[data-keep]")) location.reload(); });

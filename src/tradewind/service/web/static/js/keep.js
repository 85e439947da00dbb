// Forms whose typed text must not be lost: <form data-keep>. Before one is sent, the page sees that the server is there and
// that its session goes on; otherwise one signs in on the same page. A page of an earlier session gets the proof of this one.
import { signedIn, signedOut, tellAbove } from "./session.js";

const waiting = [];

// What has to be done before a form is sent, such as files that are on their way.
export const before = (act) => waiting.push(act);

for (const form of document.querySelectorAll("form[data-keep]")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.checked) {
      delete form.dataset.checked;
      return;
    }
    event.preventDefault();
    send(form, event.submitter);
  });
}

async function send(form, submitter) {
  if (form.dataset.sending) return;
  form.dataset.sending = "yes";
  try {
    for (const act of waiting) if (!await act()) return;
    let there;
    try {
      there = await signedIn();
    } catch {
      return tellAbove(form, note("The server does not answer. What is typed in stays: try it again in a moment."));
    }
    if (!there) return signedOut(form, () => send(form, submitter));
    tellAbove(form);
    form.dataset.checked = "yes";
    form.requestSubmit(submitter);
  } finally {
    delete form.dataset.sending;
  }
}

function note(words) {
  const box = document.createElement("div");
  box.className = "notice bad again";
  box.setAttribute("role", "alert");
  box.textContent = words;
  return box;
}

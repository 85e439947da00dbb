// Where a session ends in the middle of a form: what is typed in stays, and the form goes on with the next session.
// Signing in takes place on the same page, above the form; then runs `then`.
export function signedOut(form, then) {
  const box = document.createElement("form"), words = document.createElement("p"), error = document.createElement("p");
  box.className = "notice warn again fields";
  words.textContent = "You are signed out. Sign in again, and go on: what is typed in stays.";
  error.className = "error";
  error.hidden = true;
  error.setAttribute("role", "alert");
  const name = input("Name", "text", "username"), password = input("Password", "password", "current-password");
  name.field.value = document.querySelector('a[href="/account"] .break')?.textContent ?? "";
  const button = document.createElement("button");
  Object.assign(button, { className: "button primary", textContent: "Sign in" });
  box.append(words, name.holder, password.holder, error, button);
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    button.disabled = true;
    const problem = await signIn(name.field.value, password.field.value);
    button.disabled = false;
    error.hidden = !problem;
    error.textContent = problem;
    if (problem) return password.field.focus();
    tellAbove(form);
    then();
  });
  tellAbove(form, box);
}

// Shows something above a form, in the place of what was there; or nothing.
export function tellAbove(form, box) {
  for (const one of document.querySelectorAll(".again")) one.remove();
  if (!box) return;
  form.before(box);
  box.scrollIntoView({ block: "center" });
}

function input(title, type, completes) {
  const holder = document.createElement("div"), label = document.createElement("label"), field = document.createElement("input");
  holder.className = "field";
  Object.assign(field, { type, autocomplete: completes, required: true, id: `again-${completes}` });
  Object.assign(label, { htmlFor: field.id, textContent: title });
  holder.append(label, field);
  return { holder, field };
}

// Signs in; what is wrong, or nothing.
async function signIn(name, password) {
  const body = new URLSearchParams({ name, password, next: "/account" });
  try {
    const answer = await fetch("/sign-in", { method: "POST", body, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (prove(page)) return "";
    return page.querySelector(".notice")?.textContent.trim() || "That did not work.";
  } catch {
    return "The server does not answer.";
  }
}

// Lets the forms of this page prove that they belong to the session of a page that was just loaded.
function prove(page) {
  const proof = page.querySelector('meta[name="csrf"]');
  if (!proof) return false;
  document.querySelector('meta[name="csrf"]').content = proof.content;
  for (const field of document.querySelectorAll('input[name="csrf"]')) field.value = proof.content;
  return true;
}

// Whether somebody is signed in (again): the forms of this page then prove that they belong to that session.
export async function signedIn() {
  const answer = await fetch("/account", { headers: { Accept: "text/html" } });
  if (answer.redirected || !answer.ok) return false;
  return prove(new DOMParser().parseFromString(await answer.text(), "text/html"));
}

// Does something when the reader comes back to this page.
export function onReturn(act) {
  addEventListener("focus", act);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) act(); });
}

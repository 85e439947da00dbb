// Where a session ends in the middle of a form: what is typed in stays, and the form goes on with the next session.
export function signedOut() {
  const note = document.createElement("p"), link = document.createElement("a");
  note.className = "soft";
  Object.assign(link, { href: "/sign-in", target: "_blank", textContent: "Sign in in another tab" });
  note.append("You are signed out. ", link, ", then go on here: what is typed in stays.");
  return note;
}

// Whether somebody is signed in (again): the forms of this page then prove that they belong to that session.
export async function signedIn() {
  const answer = await fetch("/account", { headers: { Accept: "text/html" } });
  if (answer.redirected || !answer.ok) return false;
  const proof = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector('meta[name="csrf"]');
  if (!proof) return false;
  document.querySelector('meta[name="csrf"]').content = proof.content;
  for (const field of document.querySelectorAll('input[name="csrf"]')) field.value = proof.content;
  return true;
}

// Does something when the reader comes back to this page.
export function onReturn(act) {
  addEventListener("focus", act);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) act(); });
}

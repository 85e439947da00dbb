// A list of which some are chosen: one tick for all, and how many they are.
for (const form of document.querySelectorAll("form[data-chosen]")) {
  const all = form.querySelector("[data-all]"), boxes = [...form.querySelectorAll('input[name="id"]')];
  const count = form.querySelector("[data-count]"), buttons = form.querySelectorAll("[popovertarget]");
  all.hidden = false;
  const tell = () => {
    const chosen = boxes.filter((box) => box.checked).length;
    all.checked = chosen === boxes.length;
    all.indeterminate = chosen > 0 && chosen < boxes.length;
    count.textContent = `${chosen} of ${boxes.length} chosen`;
    for (const button of buttons) if (!button.hasAttribute("popovertargetaction")) button.disabled = !chosen;
  };
  all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; tell(); });
  form.addEventListener("change", tell);
  tell();
}

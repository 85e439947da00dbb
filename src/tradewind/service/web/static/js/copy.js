// Buttons that copy a secret that is shown once.
for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  const words = button.querySelector("span");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    words.textContent = "Copied";
    setTimeout(() => { words.textContent = "Copy"; }, 2000);
  });
}

"use strict";
const status = document.getElementById("updates");
const text = document.createElement("span");
const button = document.createElement("button");
let isPaused = false;
button.type = "button";
button.textContent = "Pause updates";
button.addEventListener("click", () => {
  isPaused = !isPaused;
  button.textContent = isPaused ? "Resume updates" : "Pause updates";
  text.textContent = isPaused ? "Updates are paused." : "Updated every 5 seconds.";
});
text.textContent = "Updated every 5 seconds.";
status.append(text, button);
async function update() {
  if (isPaused || document.hidden) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error("status " + answer.status);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main");
    const focused = document.activeElement && main.contains(document.activeElement);
    if (isPaused || focused || !getSelection().isCollapsed) return;
    const scrolled = [...main.querySelectorAll(".scroll")].map((region) => region.scrollLeft);
    main.replaceWith(next.querySelector("main"));
    document.querySelectorAll(".scroll").forEach((region, index) => { region.scrollLeft = scrolled[index] || 0; });
    text.textContent = "Updated every 5 seconds.";
  } catch (error) {
    text.textContent = "There is no response (" + error.message + "); trying again.";
  }
}
setInterval(update, 5000);

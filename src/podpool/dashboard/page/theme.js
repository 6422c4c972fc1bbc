// Light, dark or system theme, stored in the browser.
import { byId } from "./format.js";

const CHOICES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };
const LABELS = { auto: "system", light: "light", dark: "dark" };

/** Access local storage; a browser that forbids it throws. */
function storage(does) {
  try {
    return does();
  } catch {
    return null;
  }
}

export function watchTheme(changed) {
  const button = byId("theme");
  const before = storage(() => localStorage.getItem("theme"));
  let choice = CHOICES.includes(before) ? before : "auto";
  const apply = () => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.textContent = SIGNS[choice];
    button.setAttribute("aria-label", `Theme: ${LABELS[choice]}`);
    changed();
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    storage(() => localStorage.setItem("theme", choice));
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}

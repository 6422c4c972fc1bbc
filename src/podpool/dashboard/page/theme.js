// Light, dark, or as the system has it; the choice is kept in this browser.
import { byId } from "./words.js";

const CHOICES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };
const WORDS = { auto: "as the system has them", light: "light", dark: "dark" };

/** A browser that may keep nothing throws when it is asked. */
function kept(does) {
  try {
    return does();
  } catch {
    return null;
  }
}

export function watchTheme(changed) {
  const button = byId("theme");
  const before = kept(() => localStorage.getItem("theme"));
  let choice = CHOICES.includes(before) ? before : "auto";
  const apply = () => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.textContent = SIGNS[choice];
    button.setAttribute("aria-label", `Colours: ${WORDS[choice]}`);
    changed();
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    kept(() => localStorage.setItem("theme", choice));
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}

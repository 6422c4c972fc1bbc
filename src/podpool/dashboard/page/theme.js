// Light, dark, or as the system has it; the choice is kept in this browser.
import { byId } from "./words.js";

const CHOICES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };
const WORDS = { auto: "as the system has them", light: "light", dark: "dark" };

export function watchTheme(changed) {
  const button = byId("theme");
  let choice = CHOICES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto";
  const apply = () => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    button.textContent = SIGNS[choice];
    button.setAttribute("aria-label", `Colours: ${WORDS[choice]}`);
    changed();
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    localStorage.setItem("theme", choice);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}

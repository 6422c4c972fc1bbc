// Tooltip beside the pointer or the focused element.
import { byId } from "./format.js";

export function showTip(text, x, y) {
  const tip = byId("tip");
  const [title, ...rest] = text.split("\n");
  const strong = document.createElement("b");
  strong.textContent = title;
  tip.replaceChildren(strong, rest.length ? `\n${rest.join("\n")}` : "");
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
}

addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

// Formatting of numbers and times, and small DOM helpers.

const SPANS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

export function count(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function grouped(number) {
  return number.toLocaleString("en").replaceAll(",", "\u202f");
}

/** A duration in its largest unit. */
export function span(seconds) {
  const [unit, name] = SPANS.find(([each]) => seconds >= each) ?? [1, "second"];
  const amount = Math.max(0, Math.round(seconds / unit));
  return `${amount} ${name}${amount === 1 ? "" : "s"}`;
}

export function since(moment, now) {
  const seconds = now - Date.parse(moment) / 1000;
  return Number.isFinite(seconds) ? span(Math.max(0, seconds)) : "";
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function day(moment) {
  const date = new Date(moment);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

export function share(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "";
}

/** Create an element: tag with classes, attributes and listeners, children. Strings become text nodes. */
export function make(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== ""));
  return element;
}

/** Text with `code` in backticks. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

export function swatch(state) {
  return make(`span.swatch.${state}`, { "aria-hidden": "true" });
}

export function legend(list, entries) {
  list.replaceChildren(...entries.map(([state, label]) => make("li", {}, swatch(state), label)));
}

export const byId = (id) => document.getElementById(id);

/** Announce a text to screen readers. */
export function announce(text) {
  byId("announcer").textContent = text;
}

// Numbers, times and small pieces of the page, made once for everybody.

const SPANS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];

export function count(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function grouped(number) {
  return number.toLocaleString("en").replaceAll(",", "\u202f");
}

/** How long, in one unit, as people say it. */
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

/** An element: its name with classes, what it has, what is in it. Text is always text. */
export function make(name, having = {}, ...inside) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(having)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.flat().filter((each) => each !== null && each !== undefined && each !== ""));
  return made;
}

/** A sentence in which `what is typed` stands in backticks. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

export function swatch(state) {
  return make(`span.swatch.${state}`, { "aria-hidden": "true" });
}

export function legend(list, entries) {
  list.replaceChildren(...entries.map(([state, words]) => make("li", {}, swatch(state), words)));
}

export const byId = (id) => document.getElementById(id);

/** Speak a sentence to whoever listens instead of looking. */
export function say(words) {
  byId("aloud").textContent = words;
}

// Search field: a combo box navigated with the arrow keys. `/` focuses it.
import { ask } from "./stream.js";
import { byId, make, announce } from "./format.js";

const PAUSE = 120;

export function watchSearch(open) {
  const field = byId("search");
  const list = byId("matches");
  let found = [];
  let active = -1;
  let waiting = 0;
  let requested = 0;
  let shownFor = "";

  const close = () => {
    clearTimeout(waiting);
    requested += 1;
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const choose = (at) => {
    const match = found[at];
    if (!match) return;
    close();
    field.value = "";
    open(match.kind, match.name);
  };
  const mark = (at) => {
    active = at;
    [...list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === at)));
    const chosen = list.children[at];
    if (!chosen) return;
    field.setAttribute("aria-activedescendant", chosen.id);
    chosen.scrollIntoView({ block: "nearest" });
  };
  const show = (none) => {
    const options = found.map((match, at) =>
      make("li", { role: "option", id: `match-${at}`, "aria-selected": "false", onpointerdown: (event) => (event.preventDefault(), choose(at)) },
        make("span.of", {}, match.kind), make("span.code", {}, match.name), match.message ? make("span.detail", {}, match.message) : null));
    list.replaceChildren(...(options.length ? options : [make("li.none", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, none)]));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
    announce(options.length ? `${options.length} found` : none);
    mark(options.length ? 0 : -1);
  };
  const search = async (first) => {
    clearTimeout(waiting);
    const number = ++requested;
    const text = field.value.trim();
    if (!text) return close();
    const answer = await ask(`api/search?q=${encodeURIComponent(text)}`).catch((error) => error);
    if (number !== requested) return;
    const failed = answer instanceof Error;
    found = failed ? [] : answer;
    shownFor = failed ? "" : text;
    show(failed ? answer.message : "No match.");
    if (first) choose(0);
  };

  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, PAUSE);
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const text = field.value.trim();
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && text && (list.hidden || text !== shownFor)) search(true);
    else if (list.hidden) return;
    else if (event.key === "ArrowDown") mark((active + 1) % Math.max(1, found.length));
    else if (event.key === "ArrowUp") mark((active - 1 + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") choose(active);
    else return;
    event.preventDefault();
  });
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    field.focus();
  });
}

// Side column: recent activity, and secondary networks with their slices.
import { byId, count, grouped, make, prose, share, since } from "./format.js";

const SHOWN = 60;
const FRESH = 15;
let drawn = "";

/** Redrawn only on new activity or when the relative times are outdated, so that reading is not disturbed. */
export function showActivity(known) {
  const list = byId("activity-list");
  const now = [known.activity.length, known.activity[0]?.at, known.activity[0]?.message, Math.floor(known.at / FRESH)].join();
  if (!known.activity.length || now === drawn) return;
  drawn = now;
  list.replaceChildren(...alike(known.activity).slice(0, SHOWN).map((each) => {
    const again = each.count > 1 ? ` (${each.count} times)` : "";
    const others = each.others ? ` and ${each.others} more` : "";
    const mark = make("span.mark", { "aria-hidden": "true" }, each.warning ? "▲" : "●");
    const ago = since(each.at, known.at);
    return make("li", { "data-mood": each.warning ? "warn" : "good" }, mark,
      make("span", {}, each.warning ? make("span.unseen", {}, "Warning: ") : null, make("b", {}, each.subject, others), each.key ? ": " : " ", prose(each.message), again),
      make("time", { datetime: each.at }, ago && (ago.startsWith("0 ") ? "now" : `${ago} ago`)));
  }));
}

/** One entry, the latest, for Events with the same message about several objects of a kind. */
function alike(activity) {
  const shown = [];
  const first = new Map();
  for (const each of activity) {
    const name = `${each.subject.split(" ")[0]} ${each.message}`;
    const same = each.key && first.get(name);
    if (same && !same.subjects.has(each.subject)) {
      same.subjects.add(each.subject);
      same.others += 1;
      continue;
    }
    const entry = { ...each, others: 0, subjects: new Set([each.subject]) };
    if (each.key && !same) first.set(name, entry);
    shown.push(entry);
  }
  return shown;
}

export function showNetworks(known, open) {
  const home = byId("network-list");
  if (!known.networks.length) {
    home.replaceChildren(make("p.empty", {}, "The cluster has no secondary networks."));
    return;
  }
  home.replaceChildren(...known.networks.map((network) => article(network, open)));
}

function article(network, open) {
  const { name, range, slices = 0, assigned = 0, used = 0, size = 0, returning = 0, lost = 0, waiting = 0, fullest = [] } = network;
  const meter = make("div.meter", { role: "img", "aria-label": `${share(used, size)} used` }, make("i.assigned"));
  meter.firstChild.style.width = `${size ? (100 * used) / size : 0}%`;
  const states = [[returning, "returning"], [lost, "lost"]].filter(([number]) => number).map(([number, word]) => `, ${grouped(number)} ${word}`).join("");
  const usage = network.slice_size
    ? `${grouped(assigned)} of ${count(slices, "slice")} assigned, each ${network.slice_size}${states}; ${grouped(used)} of ${grouped(size)} addresses used`
    : `shared by all nodes; ${grouped(used)} of ${grouped(size)} addresses used`;
  const bars = fullest.map((slice) => {
    const label = `${slice.node}: ${slice.used ?? 0} of ${slice.size ?? 0} in ${slice.range}, ${slice.state ?? "assigned"}`;
    const bar = make("i");
    bar.style.height = `${slice.size ? (100 * (slice.used ?? 0)) / slice.size : 0}%`;
    return make("button", { type: "button", title: label, "aria-label": label, onclick: () => open("node", slice.node) }, bar);
  });
  return make("article", {}, make("h3", {}, name, make("span.code", {}, range)), meter, make("p", {}, usage),
    waiting ? make("p.short", { "data-mood": "bad" }, make("b", {}, `${count(waiting, "node")} without a slice: `), `${network.remedy}.`) : null,
    bars.length ? make("div.slices", { role: "group", "aria-label": `Slices of ${name}, the fullest first` }, bars) : null);
}

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
  list.replaceChildren(...known.activity.slice(0, SHOWN).map((each) => {
    const again = each.count > 1 ? ` (${each.count} times)` : "";
    const mark = make("span.mark", { "aria-hidden": "true" }, each.warning ? "▲" : "●");
    const ago = since(each.at, known.at);
    return make("li", { "data-mood": each.warning ? "warn" : "good" }, mark,
      make("span", {}, each.warning ? make("span.unseen", {}, "Warning: ") : null, make("b", {}, each.subject), each.key ? ": " : " ", prose(each.message), again),
      make("time", { datetime: each.at }, ago && (ago.startsWith("0 ") ? "now" : `${ago} ago`)));
  }));
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
  const { name, range, slices = 0, taken = 0, used = 0, size = 0, fullest = [] } = network;
  const meter = make("div.meter", { role: "img", "aria-label": `${share(used, size)} used` }, make("i.assigned"));
  meter.firstChild.style.width = `${size ? (100 * used) / size : 0}%`;
  const waiting = network.nodes_waiting ? `; ${count(network.nodes_waiting, "node")} without a slice` : "";
  const usage = network.slice_size
    ? `${grouped(taken)} of ${count(slices, "slice")} taken, each ${network.slice_size}; ${grouped(used)} of ${grouped(size)} addresses used${waiting}`
    : `shared by all nodes; ${grouped(used)} of ${grouped(size)} addresses used`;
  const bars = fullest.map((slice) => {
    const label = `${slice.node}: ${slice.used ?? 0} of ${slice.size ?? 0} in ${slice.range}`;
    const bar = make("i");
    bar.style.height = `${slice.size ? (100 * (slice.used ?? 0)) / slice.size : 0}%`;
    return make("button", { type: "button", title: label, "aria-label": label, onclick: () => open("node", slice.node) }, bar);
  });
  return make("article", {}, make("h3", {}, name, make("span.code", {}, range)), meter, make("p", {}, usage),
    bars.length ? make("div.slices", { role: "group", "aria-label": `Slices of ${name}, the fullest first` }, bars) : null);
}

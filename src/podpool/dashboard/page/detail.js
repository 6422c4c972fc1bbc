// Detail drawer of a Pod, node or address: current state and history.
import { ask } from "./stream.js";
import { byId, count, day, make, prose, since, swatch } from "./format.js";
import { hideTip } from "./tip.js";

const KINDS = { pod: "Pod", node: "Node", address: "Address" };
const PATHS = {
  pod: (name) => `api/pods/${name.split("/").map(encodeURIComponent).join("/")}`,
  node: (name) => `api/nodes/${encodeURIComponent(name)}`,
  address: (name) => `api/addresses/${encodeURIComponent(name)}`,
};

const PAUSE = 2000;

let requested = 0;
let shown = {};

export async function openDetail(kind, name) {
  const number = ++requested;
  shown = { kind, name, at: Date.now() };
  hideTip();
  const drawer = byId("detail");
  byId("detail-kind").textContent = KINDS[kind];
  byId("detail-title").textContent = name;
  byId("detail-body").replaceChildren(make("p.summary", {}, "Loading …"));
  if (!drawer.open) drawer.showModal();
  let inside;
  try {
    const found = await ask(PATHS[kind](name));
    if (number === requested) shown.text = JSON.stringify(found);
    inside = body(found);
  } catch (error) {
    inside = [make("p.summary", { "data-mood": "warn" }, error.message)];
  }
  if (number === requested) byId("detail-body").replaceChildren(...inside);
}

/** Refresh the drawer after a change, at most every PAUSE, unless it has the focus or a selection. */
export async function refreshDetail() {
  const inside = byId("detail-body");
  const busy = () => inside.contains(document.activeElement) || !getSelection().isCollapsed;
  if (!byId("detail").open || !shown.text || Date.now() - shown.at < PAUSE || busy()) return;
  shown.at = Date.now();
  const number = requested;
  const found = await ask(PATHS[shown.kind](shown.name)).catch(() => null);
  const text = JSON.stringify(found);
  if (!found || number !== requested || text === shown.text || busy()) return;
  shown.text = text;
  inside.replaceChildren(...body(found));
}

function body(found) {
  return [...summary(found), ...held(found), ...waitingPods(found), ...history(found)];
}

function summary(found) {
  if (found.reason) {
    const { message, action, waiting_for_address: waiting } = found.reason;
    return [make("div.summary", { "data-mood": waiting ? "warn" : null }, make("p", {}, prose(message)), action ? make("p", {}, prose(action)) : null)];
  }
  if (found.kind === "address") return [make("div.summary", {}, ...owner(found.addresses[0]))];
  const node = found.node;
  if (!node) return [make("p.summary", {}, "The node does not exist.")];
  const parts = [`${(node.assigned ?? 0) + (node.idle ?? 0)} addresses, ${node.assigned ?? 0} of them assigned.`];
  if (node.pending) parts.push(` ${node.pending} more requested${node.short ? "; the subnet is full" : ""}.`);
  if (node.third_party) parts.push(" Third-party agent.");
  return [make("p.summary", { "data-mood": node.waiting ? "warn" : null }, parts.join(""))];
}

function owner(now) {
  if (now.pod) return ["Used by Pod ", link("pod", now.pod), ...(now.node ? [" on ", link("node", now.node)] : []), "."];
  if (now.primary) return ["Primary address of node ", link("node", now.node), "."];
  if (now.node) return ["Idle on node ", link("node", now.node), "."];
  return ["Not held by this cluster."];
}

function held(found) {
  if (found.kind === "address" || !found.addresses?.length) return [];
  const chips = found.addresses.map((each) => {
    const state = each.pod ? "assigned" : each.primary ? "primary" : "idle";
    const label = each.pod && found.kind === "node" ? `${each.address} ${each.pod}` : `${each.address}${each.primary ? " (primary)" : ""}`;
    return make("button.code", { type: "button", onclick: () => openDetail("address", each.address) }, swatch(state), label);
  });
  return [make("h3", {}, "Addresses"), make("div.held", {}, chips)];
}

function waitingPods(found) {
  const list = found.node?.waiting_pods ?? [];
  if (!list.length) return [];
  const now = Date.now() / 1000;
  return [make("h3", {}, `${count(found.node.waiting, "Pod")} ${found.node.waiting === 1 ? "waits" : "wait"}`),
    make("ul", {}, list.map((each) => make("li", {}, link("pod", each.pod), each.since ? `, for ${since(each.since, now)}` : "")),
      found.node.waiting > list.length ? make("li", {}, `and ${found.node.waiting - list.length} more`) : null)];
}

function history(found) {
  const head = [make("h3", {}, "History")];
  if (found.history_error) return [...head, make("p.summary", { "data-mood": "warn" }, found.history_error)];
  const entries = [...(found.past ?? []).map((each) => tenure(each, found.kind)), ...(found.uses ?? []).map((each) => use(each, found.kind))];
  return [...head, entries.length ? make("ol.past", {}, entries) : make("p", {}, "No history.")];
}

function tenure(each, kind) {
  const what = kind === "node" ? link("address", each.address) : link("node", each.node);
  const pods = (each.pods ?? []).map((use) =>
    make("span.who", {}, "Pod ", link("pod", `${use.namespace}/${use.name}`), use.until ? ` until ${day(use.until)}` : ` since ${day(use.since)}`));
  return make("li", { "data-lasts": !each.until }, what, each.grant ? "" : " (primary)", make("span.when", {}, when(each)), pods);
}

function use(each, kind) {
  const pod = ["Pod ", link("pod", `${each.namespace}/${each.name}`)];
  const what = kind === "address" ? pod : link("address", each.address);
  const node = each.node && kind !== "node" ? [" on ", link("node", each.node)] : [];
  const who = kind === "node" ? make("span.who", {}, pod) : null;
  return make("li", { "data-lasts": !each.until }, what, ` in ${each.network}`, node, make("span.when", {}, when(each)), who);
}

function when(each) {
  return each.until ? `${day(each.since)} to ${day(each.until)}` : `since ${day(each.since)}`;
}

function link(kind, name) {
  return make("button.plain", { type: "button", onclick: () => openDetail(kind, name) }, name);
}

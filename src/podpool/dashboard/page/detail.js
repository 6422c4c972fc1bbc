// The drawer: a Pod, a node or an address, what it has now, and what it had.
import { ask } from "./stream.js";
import { byId, count, day, make, prose, since, swatch } from "./words.js";
import { hideTip } from "./tip.js";

const KINDS = { pod: "Pod", node: "Node", address: "Address" };
const PATHS = {
  pod: (name) => `api/pods/${name.split("/").map(encodeURIComponent).join("/")}`,
  node: (name) => `api/nodes/${encodeURIComponent(name)}`,
  address: (name) => `api/addresses/${encodeURIComponent(name)}`,
};

const PAUSE = 2000;

let asked = 0;
let shown = {};

export async function openDetail(kind, name) {
  const number = ++asked;
  shown = { kind, name, at: Date.now() };
  hideTip();
  const drawer = byId("detail");
  byId("detail-kind").textContent = KINDS[kind];
  byId("detail-title").textContent = name;
  byId("detail-body").replaceChildren(make("p.said", {}, "Looking …"));
  if (!drawer.open) drawer.showModal();
  let inside;
  try {
    const found = await ask(PATHS[kind](name));
    if (number === asked) shown.message = JSON.stringify(found);
    inside = body(found);
  } catch (error) {
    inside = [make("p.said", { "data-mood": "warn" }, error.message)];
  }
  if (number === asked) byId("detail-body").replaceChildren(...inside);
}

/** Something has changed: ask again now and then, unless somebody is in the middle of it with the keyboard. */
export async function refreshDetail() {
  const inside = byId("detail-body");
  const busy = () => inside.contains(document.activeElement) || !getSelection().isCollapsed;
  if (!byId("detail").open || !shown.message || Date.now() - shown.at < PAUSE || busy()) return;
  shown.at = Date.now();
  const number = asked;
  const found = await ask(PATHS[shown.kind](shown.name)).catch(() => null);
  const told = JSON.stringify(found);
  if (!found || number !== asked || told === shown.message || busy()) return;
  shown.message = told;
  inside.replaceChildren(...body(found));
}

function body(found) {
  return [...said(found), ...held(found), ...waiters(found), ...past(found)];
}

function said(found) {
  if (found.reason) {
    const { told, todo, waits } = found.reason;
    return [make("div.said", { "data-mood": waits ? "warn" : null }, make("p", {}, prose(told)), todo ? make("p", {}, prose(todo)) : null)];
  }
  if (found.kind === "address") return [make("div.said", {}, ...owner(found.addresses[0]))];
  const node = found.node;
  if (!node) return [make("p.said", {}, "There is no node of this name now.")];
  const parts = [`It has ${(node.assigned ?? 0) + (node.idle ?? 0)} addresses for Pods, ${node.assigned ?? 0} of them in use.`];
  if (node.pending) parts.push(` ${node.pending} more are on the way${node.short ? ", but the subnet is short" : ""}.`);
  if (node.foreign) parts.push(" Its agent is not podpool's.");
  return [make("p.said", { "data-mood": node.waiting ? "warn" : null }, parts.join(""))];
}

function owner(now) {
  if (now.pod) return ["Used by Pod ", link("pod", now.pod), ...(now.node ? [" on ", link("node", now.node)] : []), "."];
  if (now.primary) return ["The own address of node ", link("node", now.node), "."];
  if (now.node) return ["Idle on node ", link("node", now.node), "."];
  return ["No node of this cluster has it."];
}

function held(found) {
  if (found.kind === "address" || !found.addresses?.length) return [];
  const chips = found.addresses.map((each) => {
    const state = each.pod ? "assigned" : each.primary ? "primary" : "idle";
    const words = each.pod && found.kind === "node" ? `${each.address} ${each.pod}` : `${each.address}${each.primary ? " (its own)" : ""}`;
    return make("button.code", { type: "button", onclick: () => openDetail("address", each.address) }, swatch(state), words);
  });
  return [make("h3", {}, "Has now"), make("div.held", {}, chips)];
}

function waiters(found) {
  const list = found.node?.waiting_pods ?? [];
  if (!list.length) return [];
  const now = Date.now() / 1000;
  return [make("h3", {}, `${count(found.node.waiting, "Pod")} ${found.node.waiting === 1 ? "waits" : "wait"}`),
    make("ul", {}, list.map((each) => make("li", {}, link("pod", each.pod), each.since ? `, for ${since(each.since, now)}` : "")))];
}

function past(found) {
  const head = [make("h3", {}, "History")];
  if (found.history_error) return [...head, make("p.said", { "data-mood": "warn" }, found.history_error)];
  const told = [...(found.past ?? []).map((each) => tenure(each, found.kind)), ...(found.uses ?? []).map((each) => use(each, found.kind))];
  return [...head, told.length ? make("ol.past", {}, told) : make("p", {}, "The ledger knows of nothing.")];
}

function tenure(each, kind) {
  const what = kind === "node" ? link("address", each.address) : link("node", each.node);
  const pods = (each.pods ?? []).map((use) =>
    make("span.who", {}, "Pod ", link("pod", `${use.namespace}/${use.name}`), use.until ? ` until ${day(use.until)}` : ` since ${day(use.since)}`));
  return make("li", { "data-lasts": !each.until }, what, each.grant ? "" : " (the node's own)", make("span.when", {}, when(each)), pods);
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

// Entry point: creates the model and the views, and schedules drawing.
import { AddressMap } from "./map.js";
import { Nodes } from "./nodes.js";
import { Subnets } from "./subnets.js";
import { openDetail, refreshDetail } from "./detail.js";
import { watchSearch } from "./search.js";
import { showNetworks, showActivity } from "./side.js";
import { ClusterState, follow } from "./stream.js";
import { watchTheme } from "./theme.js";
import { byId, grouped, make } from "./format.js";

const STALE = 240;

const known = new ClusterState();
const subnets = new Subnets(known);
const nodes = new Nodes(known, openDetail);
const map = new AddressMap(known, openDetail);
let all = true;
let dirty = new Set();
let frame = 0;

watchTheme(() => [nodes, map].forEach((each) => each.recolour()));
watchSearch(openDetail);
follow(known, changed, linked);

/** Collect changes until the next animation frame, so that a burst is drawn once. */
function changed(delta) {
  if (!delta) all = true;
  else for (const [part, keys] of Object.entries({ nodes: ["nodes", "removed_nodes"], networks: ["networks"] })) {
    if (keys.some((key) => delta[key])) dirty.add(part);
  }
  frame ||= requestAnimationFrame(draw);
}

function draw() {
  frame = 0;
  showPanels();
  showSums();
  subnets.show();
  if (all || dirty.has("nodes")) nodes.show();
  else nodes.tick();
  if (all || dirty.has("networks")) showNetworks(known, openDetail);
  map.show();
  showActivity(known);
  refreshDetail();
  all = false;
  dirty = new Set();
  document.documentElement.dataset.shown = String(Number(document.documentElement.dataset.shown ?? 0) + 1);
}

/** Hide the panels that do not apply to the cluster, and the links to them. */
function showPanels() {
  const hidden = { subnets: known.slicesOnly, addresses: known.slicesOnly, networks: !known.networks.length };
  for (const [panel, without] of Object.entries(hidden)) {
    byId(panel).hidden = without;
    document.querySelector(`nav a[href="#${panel}"]`).hidden = without;
  }
}

function showSums() {
  const total = (list, field) => [...list].reduce((sum, each) => sum + (each[field] ?? 0), 0);
  const sum = (field) => total(known.subnets.values(), field);
  const waiting = [...known.nodes.values()].reduce((total, each) => total + (each.waiting ?? 0), 0);
  const headline = byId("headline");
  if (headline.textContent !== known.headline) headline.textContent = known.headline;
  headline.closest(".hero").dataset.mood = known.waiting || known.nodes_waiting ? "bad" : "good";
  const sliced = known.networks.filter((each) => each.slice_size);
  const withoutSlice = ["nodes without a slice", grouped(known.nodes_waiting)];
  const figures = known.slicesOnly ? [
    ["addresses used", grouped(total(known.networks, "used")), ` of ${grouped(total(known.networks, "size"))}`],
    ["slices assigned", grouped(total(sliced, "assigned")), ` of ${grouped(total(sliced, "slices"))}`],
    withoutSlice,
    ["Pods waiting", grouped(waiting)],
    ["nodes", grouped(known.nodes.size)],
  ] : [
    ["Pods with an address", grouped(sum("assigned"))],
    ["Pods waiting", grouped(waiting)],
    ["idle on nodes", grouped(sum("idle"))],
    ["reserved", grouped(sum("reserved")), sum("capacity") ? ` of ${grouped(sum("capacity"))}` : ""],
    ["nodes", grouped(known.nodes.size)],
    ...(known.nodes_waiting ? [withoutSlice] : []),
  ];
  byId("sums").replaceChildren(...figures.map(([label, figure, of]) =>
    make("div", {}, make("dt", {}, label), make("dd", {}, figure, of ? make("small", {}, of) : null))));
  showStep();
  const problems = Object.values(known.problems);
  byId("problems").hidden = !problems.length;
  if (problems.length) byId("problems").textContent = problems.map((each) => `${each[0].toUpperCase()}${each.slice(1)}.`).join(" ");
}

/** Show the current step of the scenario of `podpool up`, until the scenario has finished or the step is stale. */
function showStep() {
  const step = known.activity.find((each) => /^(Step|Scenario) /.test(each.subject));
  const place = byId("step");
  place.hidden = !step || step.subject.startsWith("Scenario ") || known.at - Date.parse(step.at) / 1000 > STALE;
  if (place.hidden || place.dataset.key === step.key) return;
  place.dataset.key = step.key;
  place.replaceChildren(make("b", {}, step.subject), ` ${step.message}`);
}

function linked(state) {
  byId("link").dataset.state = state;
  byId("link-text").textContent = state === "live" ? "live" : "reconnecting";
}

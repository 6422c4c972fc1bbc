// One bar per node: assigned, idle, pending, releasing, and waiting Pods. All bars share one scale.
import { Grid, colour } from "./grid.js";
import { byId, count, legend, since } from "./format.js";

const MANY = 240;
const ORDERS = {
  waiting: (a, b) => (b.waiting ?? 0) - (a.waiting ?? 0) || without(b).length - without(a).length || full(b) - full(a) || byName(a, b),
  full: (a, b) => full(b) - full(a) || byName(a, b),
  name: byName,
};

function byName(a, b) {
  return a.name < b.name ? -1 : 1;
}

const without = (node) => node.without_slice ?? [];
const held = (node) => (node.assigned ?? 0) + (node.idle ?? 0);
const full = (node) => (held(node) ? (node.assigned ?? 0) / held(node) : 0);
const length = (node) => held(node) + (node.pending ?? 0) + (node.releasing ?? 0);
const ADDRESSES = [["assigned", "assigned"], ["idle", "idle"], ["pending", "requested"], ["releasing", "pending release"], ["waiting", "waiting Pods"]];
const SLICES = [["assigned", "slices"], ["pending", "networks without a slice"], ["waiting", "waiting Pods"]];

export class Nodes {
  constructor(known, open) {
    this.known = known;
    this.list = [];
    this.longest = 1;
    this.grid = new Grid(byId("node-grid"), {
      kind: "node",
      label: "Nodes; arrow keys move, Enter opens details",
      shape: (width) => this.shape(width),
      paint: (...all) => this.paint(...all),
      describe: (index) => this.describe(this.list[index]),
      open: (index) => open("node", this.list[index].name),
    });
    byId("node-order").addEventListener("change", () => this.show());
    this.recolour();
  }

  recolour() {
    const names = ["assigned", "idle", "pending", "releasing", "waiting", "free", "ink", "ink-soft", "focus", "line"];
    this.colours = Object.fromEntries(names.map((name) => [name, colour(name)]));
    this.font = getComputedStyle(document.body).fontFamily;
    this.em = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.grid.draw();
  }

  show() {
    const nodes = [...this.known.nodes.values()];
    this.slices = this.known.slicesOnly;
    this.list = (this.slices ? nodes.map(inSlices) : nodes).sort(ORDERS[byId("node-order").value]);
    this.longest = Math.max(this.slices ? 1 : 8, ...this.list.map(length));
    legend(byId("nodes-legend"), this.slices ? SLICES : ADDRESSES);
    this.grid.show(this.list.length);
    const waiting = this.list.filter((node) => node.waiting).length;
    const short = this.list.filter((node) => without(node).length).length;
    byId("nodes-title").textContent = `${count(this.list.length, "node")}${waiting ? `, ${waiting} with waiting Pods` : ""}${short ? `, ${short} without a slice` : ""}`;
  }

  /** Redraw waiting times. */
  tick() {
    if (this.list.some((node) => node.waiting)) this.grid.draw();
  }

  shape(width) {
    if (this.list.length > MANY) {
      const columns = Math.max(1, Math.floor(width / 46));
      return { columns, width: width / columns, height: 15 };
    }
    const columns = Math.max(1, Math.floor(width / (13.5 * this.em)));
    return { columns, width: width / columns, height: 3.1 * this.em };
  }

  paint(pen, index, x, y, width, height, marked) {
    const node = this.list[index];
    const small = this.list.length > MANY;
    const gap = small ? 4 : 1.2 * this.em;
    const bar = small ? height - 5 : 0.62 * this.em;
    const top = small ? y + 2 : y + 1.75 * this.em;
    const whole = width - gap;
    if (marked) {
      pen.fillStyle = this.colours.line;
      pen.beginPath();
      pen.roundRect(x - (small ? 2 : 8), y - (small ? 0 : 3), whole + (small ? 4 : 16), height - (small ? 1 : 4), 7);
      pen.fill();
    }
    if (!small) this.label(pen, node, x, y, whole);
    this.bar(pen, node, x, top, whole, bar);
    if (small && (node.waiting || without(node).length)) {
      pen.strokeStyle = this.colours.waiting;
      pen.lineWidth = 1.5;
      pen.strokeRect(x - 0.5, top - 1, whole + 1, bar + 2);
    }
  }

  bar(pen, node, x, y, whole, bar) {
    pen.save();
    pen.beginPath();
    pen.roundRect(x, y, whole, bar, bar / 2.6);
    pen.clip();
    pen.fillStyle = this.colours.free;
    pen.fillRect(x, y, whole, bar);
    let at = x;
    for (const state of ["assigned", "idle", "releasing", "pending"]) {
      const wide = (whole * (node[state] ?? 0)) / this.longest;
      pen.fillStyle = this.colours[state];
      pen.fillRect(at, y, wide, bar);
      at += wide;
    }
    pen.restore();
  }

  label(pen, node, x, y, whole) {
    const line = y + 1.25 * this.em;
    pen.textBaseline = "alphabetic";
    pen.font = `${0.8 * this.em}px ${this.font}`;
    const longest = node.waiting_pods?.[0]?.since;
    const usage = without(node).length ? "no slice" : this.slices ? count(node.slices ?? 0, "slice") : `${node.assigned ?? 0} of ${held(node)}`;
    const label = node.waiting ? `${node.waiting} wait${longest ? `, ${since(longest, this.known.at)}` : ""}` : usage;
    const wide = pen.measureText(label).width;
    pen.fillStyle = node.waiting || without(node).length ? this.colours.waiting : this.colours["ink-soft"];
    pen.fillText(label, x + whole - wide, line);
    pen.font = `${node.gone ? "italic " : ""}560 ${0.86 * this.em}px ${this.font}`;
    pen.fillStyle = this.colours.ink;
    pen.fillText(fitted(pen, node.name, whole - wide - 8), x, line);
  }

  describe(node) {
    const lines = [node.name, this.slices ? count(node.slices ?? 0, "slice") : `${node.assigned ?? 0} assigned, ${node.idle ?? 0} idle`];
    if (without(node).length) lines.push(`without a slice of ${without(node).join(", ")}`);
    if (node.pending && !this.slices) lines.push(`${node.pending} requested${node.short ? "; the subnet is full" : ""}`);
    if (node.releasing) lines.push(`${node.releasing} pending release`);
    if (node.gone) lines.push("the Node object does not exist");
    if (node.waiting) {
      const first = node.waiting_pods?.[0];
      lines.push(`${count(node.waiting, "Pod")} ${node.waiting === 1 ? "waits" : "wait"}${first?.since ? `, ${first.pod} for ${since(first.since, this.known.at)}` : ""}`);
    }
    return lines.join("\n");
  }
}

/** A node whose bar shows its slices, and the networks of which it has none. */
function inSlices(node) {
  return { ...node, assigned: node.slices ?? 0, pending: without(node).length };
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let kept = text.length;
  while (kept > 3 && pen.measureText(`…${text.slice(-kept)}`).width > width) kept -= 1;
  return `…${text.slice(-kept)}`;
}

// The address map of a subnet. It is fetched again when the subnet or its Pods have changed.
import { Grid, colour } from "./grid.js";
import { ask } from "./stream.js";
import { showTip } from "./tip.js";
import { byId, day, grouped, legend, make } from "./format.js";

const STATES = { ".": "free", k: "excluded", p: "primary", a: "assigned", i: "idle", r: "cooling_down", o: "other_clusters" };
const DESCRIPTIONS = {
  free: "free",
  excluded: "not assignable: network, broadcast, gateway or excluded",
  primary: "primary of a node",
  assigned: "assigned to a Pod",
  idle: "idle on its node",
  cooling_down: "cooling down",
  other_clusters: "held in another cluster",
};
const SHORT = { free: "free", assigned: "assigned", idle: "idle on a node", primary: "primary of a node", cooling_down: "cooling down", other_clusters: "other clusters", excluded: "not assignable" };
const PAUSE = 2000;

export class AddressMap {
  constructor(known, open) {
    this.known = known;
    this.cells = [];
    this.drawn = "";
    this.requested = 0;
    this.choice = byId("map-subnet");
    this.choice.addEventListener("change", () => this.fetch());
    this.grid = new Grid(byId("address-grid"), {
      kind: "address",
      label: "Addresses of the subnet; arrow keys move, Enter opens details",
      shape: (width) => this.shape(width),
      paint: (...all) => this.paint(...all),
      describe: (index) => this.describe(this.cells[index]),
      open: (index) => open("address", this.cells[index].text),
    });
    this.grid.hovered = (index, x, y) => this.requestOwner(index, x, y);
    this.recolour();
  }

  recolour() {
    const names = [...Object.values(STATES), "ink", "ink-soft", "focus", "line-strong"];
    this.colours = Object.fromEntries(names.map((name) => [name, colour(name)]));
    this.font = getComputedStyle(document.body).fontFamily;
    this.em = parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.grid.draw();
  }

  show() {
    const names = [...this.known.subnets.keys()];
    if (names.join() !== [...this.choice.options].map((each) => each.value).join()) {
      const before = this.choice.value;
      this.choice.replaceChildren(...names.map((name) => make("option", { value: name, selected: name === before }, name)));
    }
    const subnet = this.known.subnets.get(this.choice.value);
    if (!subnet) return;
    if (!subnet.capacity) {
      byId("addresses-title").textContent = "Addresses: available only with a ledger";
      return;
    }
    const state = [subnet.name, subnet.revision, subnet.assigned, subnet.idle, subnet.cooling_down].join();
    if (state === this.drawn || this.timer) return;
    this.timer = setTimeout(() => ((this.timer = 0), this.show()), PAUSE);
    this.drawn = state;
    this.fetch();
  }

  async fetch() {
    const number = ++this.requested;
    const [network, ...rest] = this.choice.value.split(".");
    try {
      const map = await ask(`api/subnets/${encodeURIComponent(network)}/${encodeURIComponent(rest.join("."))}/addresses`);
      if (number === this.requested) this.take(map);
    } catch (error) {
      if (number !== this.requested) return;
      this.drawn = "";
      byId("addresses-title").textContent = `Addresses: ${error.message}`;
    }
  }

  take(map) {
    this.cells = map.patches.flatMap((patch) => {
      const base = patch.first ? number(patch.first) : 0;
      return [...patch.cells].map((letter, at) => ({
        state: STATES[letter],
        text: patch.texts?.[at] ?? text(base + at),
        node: patch.owners?.[at] >= 0 ? map.nodes[patch.owners[at]] : "",
      }));
    });
    const sums = {};
    for (const cell of this.cells) sums[cell.state] = (sums[cell.state] ?? 0) + 1;
    legend(byId("map-legend"), Object.keys(SHORT).filter((state) => sums[state]).map((state) => [state, `${grouped(sums[state])} ${SHORT[state]}`]));
    const sparse = map.patches.some((patch) => !patch.first);
    byId("addresses-title").textContent = `Addresses${sparse ? " that are not free" : ""}${map.complete === false ? " (the first 65,536)" : ""}`;
    this.grid.show(this.cells.length);
  }

  shape(width) {
    const left = width > 520 ? 7 * this.em : 0;
    const fits = (width - left) / ((this.cells.length > 256 ? 0.78 : 1.02) * this.em);
    const columns = [128, 64, 32, 16, 8].find((each) => each <= fits && each * 2 <= Math.max(16, this.cells.length)) ?? 8;
    const size = Math.min((width - left) / columns, 1.75 * this.em);
    return { columns, width: size, height: size, left };
  }

  paint(pen, index, x, y, width, height, marked, column) {
    const cell = this.cells[index];
    const gap = Math.max(1.5, width * 0.12);
    pen.fillStyle = this.colours[cell.state];
    pen.beginPath();
    pen.roundRect(x, y, width - gap, height - gap, Math.min(4, width / 4));
    pen.fill();
    if (cell.state === "excluded") {
      pen.strokeStyle = this.colours["line-strong"];
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x + 3, y + height - gap - 3);
      pen.lineTo(x + width - gap - 3, y + 3);
      pen.stroke();
    }
    if (marked) {
      pen.strokeStyle = this.colours.ink;
      pen.lineWidth = 2;
      pen.stroke();
      pen.strokeRect(x - 1, y - 1, width - gap + 2, height - gap + 2);
    }
    const sparse = height < 0.95 * this.em && Math.floor(index / this.grid.cell.columns) % 2;
    if (column === 0 && this.grid.cell.left && !sparse) {
      pen.fillStyle = this.colours["ink-soft"];
      pen.font = `${0.74 * this.em}px ${this.font}`;
      pen.textBaseline = "middle";
      pen.fillText(cell.text, 0, y + (height - gap) / 2, this.grid.cell.left - 8);
    }
  }

  describe(cell) {
    return `${cell.text}\n${DESCRIPTIONS[cell.state]}${cell.node ? ` on ${cell.node}` : ""}${cell.more ? `\n${cell.more}` : ""}`;
  }

  /** After a short hover, request the owner of a cell. */
  requestOwner(index, x, y) {
    clearTimeout(this.asking);
    const cell = this.cells[index];
    if (!cell || cell.more || !["assigned", "idle", "primary", "cooling_down"].includes(cell.state)) return;
    this.asking = setTimeout(async () => {
      const found = await ask(`api/addresses/${encodeURIComponent(cell.text)}`).catch(() => null);
      const period = found?.past?.[0];
      if (!period) return;
      const pod = found.addresses?.[0]?.pod;
      const use = period.pods?.find((each) => `${each.namespace}/${each.name}` === pod);
      const last = period.until ? `last on ${period.node}, until ${day(period.until)}` : `on the node since ${day(period.since)}`;
      cell.more = pod ? `Pod ${pod}${use ? ` since ${day(use.since)}` : ""}\n${last}` : last;
      const still = this.grid.under === index || (this.grid.under == null && this.grid.active === index);
      if (still) showTip(this.describe(cell), x, y);
      if (this.grid.active === index) this.grid.option.textContent = this.grid.spoken();
    }, 180);
  }
}

function number(address) {
  return address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
}

function text(value) {
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join(".");
}

// A card for each subnet: how it was, how it is, and when it runs full.
import { Chart } from "./chart.js";
import { byId, count, grouped, make, share, span, swatch } from "./words.js";

const FIGURES = [
  ["assigned", "used by Pods"],
  ["idle", "idle on nodes"],
  ["primary", "nodes' own", "primaries"],
  ["cooling_down", "cooling_down"],
  ["other_clusters", "other clusters'"],
  ["free", "free"],
];

export class Subnets {
  constructor(known) {
    this.known = known;
    this.cards = new Map();
  }

  show() {
    const home = byId("subnet-cards");
    for (const [name, card] of this.cards) {
      if (!this.known.subnets.has(name)) {
        card.home.remove();
        this.cards.delete(name);
      }
    }
    for (const subnet of this.known.subnets.values()) {
      if (!this.cards.has(subnet.name)) {
        if (!this.cards.size) home.replaceChildren();
        const card = new Card(subnet);
        this.cards.set(subnet.name, card);
        home.append(card.home);
      }
      this.cards.get(subnet.name).show(subnet, this.known.series.get(subnet.name) ?? [], this.known.forecasts[subnet.name]);
    }
  }
}

class Card {
  constructor(subnet) {
    this.chart = new Chart(subnet.name);
    this.title = make("h3", {}, subnet.name);
    this.cidr = make("span.cidr.code");
    this.chip = make("span.chip");
    this.full = make("span.full");
    this.figures = make("dl.figures");
    this.ladder = make("div.ladder");
    this.outlook = make("div.outlook");
    const side = make("div.side", {}, this.figures, this.ladder, this.outlook);
    this.home = make("article.card", { "aria-label": `Subnet ${subnet.name}` },
      make("header", {}, this.title, this.cidr, this.chip, this.full), make("div.inside", {}, this.chart.home, side));
  }

  show(subnet, samples, forecast) {
    const reserved = subnet.reserved ?? 0;
    this.cidr.textContent = subnet.cidrs.join(", ");
    [this.chip.textContent, this.chip.dataset.mood] = mood(subnet);
    const { capacity } = subnet; // 0 where no ledger tells it
    this.full.replaceChildren(share(reserved, capacity), " ", make("small", {}, capacity ? `${grouped(reserved)} of ${grouped(capacity)} reserved` : `${grouped(reserved)} on nodes`));
    const all = { ...subnet, free: Math.max(0, capacity - reserved) };
    const told = (state, field) => (state === "other_clusters" ? all[field] : capacity || !["free", "cooling_down"].includes(state));
    this.figures.replaceChildren(...FIGURES.filter(([state, , field]) => told(state, field ?? state)).map(([state, words, field]) =>
      make("div", {}, swatch(state), make("dt", {}, words), make("dd", {}, grouped(all[field ?? state] ?? 0)))));
    this.ladder.replaceChildren(make("h4", {}, subnet.buffer ? "Addresses move in batches of" : "Addresses move one by one, none is kept idle"),
      make("ol", {}, rungs(subnet.configured_batch || subnet.batch || 1).map((rung) => make("li", { "aria-current": rung === subnet.batch ? "true" : null }, String(rung)))));
    this.ladder.hidden = !subnet.batch;
    this.outlook.replaceChildren(make("h4", {}, "Runs full"), ...(capacity ? outlook(forecast, subnet) : [make("p", {}, "How large it is, only a ledger knows.")]));
    this.chart.show(subnet, samples, forecast);
  }
}

function mood(subnet) {
  if (subnet.frozen) return ["grants nothing: the ledger recovers", "bad"];
  if (subnet.draining) return ["is being drained", "warn"];
  if (subnet.pods_waiting && subnet.short) return [`full: ${count(subnet.pods_waiting, "Pod")} without an address`, "bad"];
  if (subnet.exhausted) return ["short", "warn"];
  return ["has room", "good"];
}

/** The steps in which the batch shrinks: each the largest proper divisor of the one before. */
function rungs(batch) {
  const found = [batch];
  while (found.at(-1) > 1) {
    const last = found.at(-1);
    let next = Math.floor(last / 2);
    while (last % next) next -= 1;
    found.push(next);
  }
  return found;
}

function outlook(forecast, subnet) {
  const { outlook: state, likely, early, late, seen = 0 } = forecast ?? { outlook: "not enough data" };
  const small = (words) => make("small", {}, words);
  if (state === "full") {
    const kept = Math.min(subnet.reserved_for_primaries ?? 0, Math.max(0, subnet.capacity - (subnet.reserved ?? 0)));
    return [make("p", {}, "It is full now."), small(`Every address is in use or rests${kept ? `, but ${kept} that are kept for new nodes` : ""}.`)];
  }
  if (state === "not enough data") return [make("p", {}, "Not enough data yet."), small("A minute of watching tells more.")];
  if (state === "not filling up") {
    const from = early === undefined || early === null ? "" : `One chance in ten: within ${span(early)}. `;
    return [make("p", {}, "Not in sight."), small(`${from}From the last ${span(seen)}.`)];
  }
  const until = late === undefined || late === null ? `${span(early)} or much later` : `${span(early)} to ${span(late)}`;
  return [make("p", {}, "In about ", make("b", {}, span(likely)), "."), small(`Four chances in five: ${until}. From the last ${span(seen)}.`)];
}

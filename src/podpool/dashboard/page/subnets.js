// One card per subnet: usage over time, current figures, forecast.
import { Chart } from "./chart.js";
import { byId, count, grouped, make, share, span, swatch } from "./format.js";

const FIGURES = [
  ["assigned", "assigned"],
  ["idle", "idle on nodes"],
  ["primary", "primaries", "primaries"],
  ["cooling_down", "cooling down"],
  ["other_clusters", "other clusters"],
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
    this.forecast = make("div.forecast");
    const side = make("div.side", {}, this.figures, this.ladder, this.forecast);
    this.home = make("article.card", { "aria-label": `Subnet ${subnet.name}` },
      make("header", {}, this.title, this.cidr, this.chip, this.full), make("div.inside", {}, this.chart.home, side));
  }

  show(subnet, samples, forecast) {
    const reserved = subnet.reserved ?? 0;
    this.cidr.textContent = subnet.cidrs.join(", ");
    [this.chip.textContent, this.chip.dataset.mood] = mood(subnet);
    const { capacity } = subnet; // 0 without a ledger
    this.full.replaceChildren(share(reserved, capacity), " ", make("small", {}, capacity ? `${grouped(reserved)} of ${grouped(capacity)} reserved` : `${grouped(reserved)} on nodes`));
    const all = { ...subnet, free: Math.max(0, capacity - reserved) };
    const isKnown = (state, field) => (state === "other_clusters" ? all[field] : capacity || !["free", "cooling_down"].includes(state));
    this.figures.replaceChildren(...FIGURES.filter(([state, , field]) => isKnown(state, field ?? state)).map(([state, label, field]) =>
      make("div", {}, swatch(state), make("dt", {}, label), make("dd", {}, grouped(all[field ?? state] ?? 0)))));
    this.ladder.replaceChildren(make("h4", {}, subnet.buffer ? "Batch" : "Batch 1, no buffer"),
      make("ol", {}, rungs(subnet.configured_batch || subnet.batch || 1).map((rung) => make("li", { "aria-current": rung === subnet.batch ? "true" : null }, String(rung)))));
    this.ladder.hidden = !subnet.batch;
    this.forecast.replaceChildren(make("h4", {}, "Forecast"), ...(capacity ? forecastText(forecast, subnet) : [make("p", {}, "The capacity is known only with a ledger.")]));
    this.chart.show(subnet, samples, forecast);
  }
}

function mood(subnet) {
  if (subnet.frozen) return ["grants nothing: ledger in recovery", "bad"];
  if (subnet.draining) return ["draining", "warn"];
  if (subnet.pods_waiting && subnet.addresses_waiting) return [`full: ${count(subnet.pods_waiting, "Pod")} without an address`, "bad"];
  if (subnet.exhausted) return ["exhausted", "warn"];
  return ["ok", "good"];
}

/** Rungs of the batch ladder: each the largest proper divisor of the one before. */
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

function forecastText(forecast, subnet) {
  const { trend, likely, early, late, seen = 0 } = forecast ?? { trend: "not enough data" };
  const small = (text) => make("small", {}, text);
  if (trend === "full") {
    const kept = Math.min(subnet.reserved_for_primaries ?? 0, Math.max(0, subnet.capacity - (subnet.reserved ?? 0)));
    return [make("p", {}, "Full."), small(`Every address is reserved or cooling down${kept ? `, except ${kept} reserved for primaries` : ""}.`)];
  }
  if (trend === "not enough data") return [make("p", {}, "Not enough data yet."), small("At least one minute of samples is needed.")];
  if (trend === "not filling up") {
    const from = early === undefined || early === null ? "" : `10 % probability within ${span(early)}. `;
    return [make("p", {}, "Not filling up."), small(`${from}Based on the last ${span(seen)}.`)];
  }
  const until = late === undefined || late === null ? `${span(early)} or later` : `${span(early)} to ${span(late)}`;
  return [make("p", {}, "Full in about ", make("b", {}, span(likely)), "."), small(`80 % interval: ${until}. Based on the last ${span(seen)}.`)];
}

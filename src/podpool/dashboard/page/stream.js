// What the page knows, kept in step with the server: everything once, then changes. The browser reconnects by itself
// and says which change it saw last.

const MOST_SAMPLES = 1000;
const MOST_NEWS = 200;
const AGAIN = 3000;

export class Known {
  constructor() {
    this.at = 0;
    this.headline = "";
    this.waiting = 0;
    this.problems = {};
    this.subnets = new Map();
    this.nodes = new Map();
    this.networks = [];
    this.activity = [];
    this.series = new Map();
    this.forecasts = {};
  }

  begin(picture) {
    Object.assign(this, { at: picture.at, headline: picture.headline, waiting: picture.waiting ?? 0, problems: picture.problems, networks: picture.networks });
    this.subnets = new Map(picture.subnets.map((each) => [each.name, each]));
    this.nodes = new Map(picture.nodes.map((each) => [each.name, each]));
    this.series = new Map(Object.entries(picture.series));
    this.forecasts = { ...picture.forecasts };
    this.activity = [];
    this.addActivity(picture.activity);
  }

  change(delta) {
    this.at = delta.at;
    this.headline = delta.headline ?? this.headline;
    this.waiting = delta.waiting ?? 0;
    this.problems = delta.problems ?? {};
    for (const each of delta.subnets ?? []) this.subnets.set(each.name, each);
    for (const name of delta.removed_subnets ?? []) [this.subnets, this.series].forEach((kept) => kept.delete(name));
    for (const each of delta.nodes ?? []) this.nodes.set(each.name, each);
    for (const name of delta.removed_nodes ?? []) this.nodes.delete(name);
    if (delta.networks) this.networks = delta.networks;
    for (const [name, sample] of Object.entries(delta.samples ?? {})) this.sample(name, sample);
    Object.assign(this.forecasts, delta.forecasts ?? {});
    this.addActivity(delta.activity ?? []);
  }

  sample(name, sample) {
    let samples = this.series.get(name) ?? [];
    samples.push(sample);
    if (samples.length > MOST_SAMPLES) samples = samples.filter((_, at) => (samples.length - 1 - at) % 2 === 0);
    this.series.set(name, samples);
  }

  addActivity(entries) {
    const fresh = new Map(entries.map((each, at) => [each.key || at, each]));
    const kept = this.activity.filter((each) => !fresh.has(each.key));
    this.activity = [...fresh.values(), ...kept].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, MOST_NEWS);
  }
}

/** Follow the server; `changed` hears of each step with what it carried, `linked` whether the line stands. */
export function follow(known, changed, linked) {
  const source = new EventSource("api/stream");
  source.addEventListener("snapshot", (event) => {
    known.begin(JSON.parse(event.data));
    linked("live");
    changed(null);
  });
  source.addEventListener("delta", (event) => {
    const delta = JSON.parse(event.data);
    known.change(delta);
    linked("live");
    changed(delta);
  });
  source.addEventListener("error", () => {
    linked("away");
    // the browser gives up for good when it is answered anything but 200
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(known, changed, linked), AGAIN);
  });
}

export async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } }).catch(() => null);
  if (!answer) throw new Error("The page's server does not answer.");
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.message ?? `status ${answer.status}`);
  return told;
}

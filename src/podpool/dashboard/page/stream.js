// State of the cluster, kept up to date by server-sent events: a snapshot, then deltas. The browser reconnects by itself
// and sends the ID of the last event.

const MAX_SAMPLES = 1000;
const MAX_ACTIVITY = 200;
const RECONNECT_AFTER = 3000;

export class ClusterState {
  constructor() {
    this.at = 0;
    this.headline = "";
    this.waiting = 0;
    this.nodes_waiting = 0;
    this.has_ledger = true;
    this.problems = {};
    this.subnets = new Map();
    this.nodes = new Map();
    this.networks = [];
    this.activity = [];
    this.series = new Map();
    this.forecasts = {};
  }

  load(snapshot) {
    Object.assign(this, { at: snapshot.at, headline: snapshot.headline, problems: snapshot.problems, networks: snapshot.networks });
    this.count(snapshot);
    this.subnets = new Map(snapshot.subnets.map((each) => [each.name, each]));
    this.nodes = new Map(snapshot.nodes.map((each) => [each.name, each]));
    this.series = new Map(Object.entries(snapshot.series));
    this.forecasts = { ...snapshot.forecasts };
    this.activity = [];
    this.addActivity(snapshot.activity);
  }

  change(delta) {
    this.at = delta.at;
    this.headline = delta.headline ?? this.headline;
    this.count(delta);
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

  count({ waiting = 0, nodes_waiting = 0, has_ledger = false }) {
    Object.assign(this, { waiting, nodes_waiting, has_ledger });
  }

  /** Whether podpool serves only secondary networks here: then nothing of a ledger is shown. */
  get slicesOnly() {
    return !this.has_ledger && !this.subnets.size && this.networks.length > 0;
  }

  sample(name, sample) {
    let samples = this.series.get(name) ?? [];
    samples.push(sample);
    if (samples.length > MAX_SAMPLES) samples = samples.filter((_, at) => (samples.length - 1 - at) % 2 === 0);
    this.series.set(name, samples);
  }

  addActivity(entries) {
    const updated = new Map(entries.map((each, at) => [each.key || at, each]));
    const kept = this.activity.filter((each) => !updated.has(each.key));
    this.activity = [...updated.values(), ...kept].sort((a, b) => Date.parse(b.at) - Date.parse(a.at)).slice(0, MAX_ACTIVITY);
  }
}

/** Follow the stream; `changed` is called with each delta (null for a snapshot), `linked` with the connection state. */
export function follow(known, changed, linked) {
  const source = new EventSource("api/stream");
  source.addEventListener("snapshot", (event) => {
    known.load(JSON.parse(event.data));
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
    linked("disconnected");
    // the browser does not reconnect after a response other than 200
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(known, changed, linked), RECONNECT_AFTER);
  });
}

export async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } }).catch(() => null);
  if (!answer) throw new Error("The dashboard server does not respond.");
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.message ?? `status ${answer.status}`);
  return body;
}

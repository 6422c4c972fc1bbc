// Usage of a subnet over time: stacked areas, capacity and thresholds as lines, exhaustion as a band, the batch below,
// and the forecast cone right of now.
import { clock, grouped, make, announce } from "./format.js";
import { hideTip, showTip } from "./tip.js";

const [AT, CAPACITY, ASSIGNED, PRIMARIES, OTHER_CLUSTERS, COOLING_DOWN, IDLE, BATCH, EXHAUSTED, WAITING] = Array(10).keys();
const LAYERS = [[PRIMARIES, "primary"], [OTHER_CLUSTERS, "other_clusters"], [ASSIGNED, "assigned"], [COOLING_DOWN, "cooling down"], [IDLE, "idle"]];
const FOOT = 2.9;
const AHEAD = 0.22;
const SVG = "http://www.w3.org/2000/svg";

function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

export class Chart {
  constructor(name) {
    this.svg = draw("svg", { "aria-hidden": "true" });
    this.home = make("figure.chart", { tabindex: "0", role: "group", "aria-label": `${name} over time; arrow keys select a sample` }, this.svg);
    this.home.addEventListener("pointermove", (event) => this.read(this.moment(event), event.clientX, event.clientY));
    this.home.addEventListener("pointerleave", () => this.leave());
    this.home.addEventListener("blur", () => this.leave());
    this.home.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(this.home);
  }

  show(subnet, samples, forecast) {
    Object.assign(this, { subnet, samples, forecast });
    this.render();
  }

  render() {
    const width = this.home.clientWidth;
    if (!width || !this.samples?.length) return;
    const samples = this.samples;
    const [begin, now] = [samples[0][AT], samples.at(-1)[AT]];
    const past = Math.max(now - begin, 30);
    const em = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const edge = width - 2.8 * em;
    const right = edge / (1 + AHEAD);
    const top = Math.max(1, ...samples.map((each) => each[CAPACITY] || held(each))) * 1.06;
    const high = this.svg.clientHeight;
    const bottom = high - FOOT * em;
    this.x = (at) => Math.max(0, right - ((now - at) / past) * right);
    this.y = (value) => bottom - (value / top) * (bottom - 8);
    Object.assign(this, { em, high, right, edge, bottom, past, now });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${high}`);
    this.svg.replaceChildren(...this.bands(), ...this.areas(), ...this.lines(), ...this.future(), ...this.batches(), ...this.times(begin));
    this.cross = this.svg.appendChild(draw("line", { class: "cross", y1: 0, y2: bottom, visibility: "hidden" }));
  }

  areas() {
    const below = this.samples.map(() => 0);
    return LAYERS.map(([layer, state]) => {
      const lower = this.samples.map((each, at) => `${this.x(each[AT]).toFixed(1)} ${this.y(below[at]).toFixed(1)}`);
      const upper = this.samples.map((each, at) => `${this.x(each[AT]).toFixed(1)} ${this.y((below[at] += each[layer])).toFixed(1)}`);
      return draw("path", { class: `area ${state}`, d: `M${upper.join("L")}L${lower.reverse().join("L")}Z` });
    });
  }

  bands() {
    return this.stretches(EXHAUSTED).filter(([, , on]) => on).map(([from, to]) =>
      draw("rect", { class: "band", x: this.x(from), y: 0, width: Math.max(1, this.x(to) - this.x(from)), height: this.bottom }));
  }

  /** Runs of samples with the same value: begin, end, value. */
  stretches(field) {
    const runs = [];
    for (const each of this.samples) {
      if (runs.length && runs.at(-1)[2] === each[field]) runs.at(-1)[1] = each[AT];
      else {
        if (runs.length) runs.at(-1)[1] = each[AT];
        runs.push([each[AT], each[AT], each[field]]);
      }
    }
    return runs;
  }

  lines() {
    const { capacity, upper = 0, lower = 0 } = this.subnet;
    const level = (value, kind, text, strong) => [
      draw("line", { class: kind, x1: 0, x2: this.edge, y1: this.y(value), y2: this.y(value) }),
      draw("text", { class: strong ? "strong" : "", x: this.edge + 6, y: this.y(value) + 4 }, text),
    ];
    return [
      draw("line", { class: "axis", x1: 0, x2: this.edge, y1: this.bottom, y2: this.bottom }),
      draw("line", { class: "now", x1: this.right, x2: this.right, y1: 0, y2: this.bottom }),
      ...(upper ? level((capacity * upper) / 100, "threshold", `${upper} %`) : []),
      ...(lower ? level((capacity * lower) / 100, "threshold", `${lower} %`) : []),
      ...(capacity ? level(capacity, "limit", grouped(capacity), true) : []),
    ];
  }

  future() {
    const { likely, early } = this.forecast ?? {};
    if (early === undefined || early === null || !this.subnet) return [];
    const { capacity, reserved = 0, idle = 0 } = this.subnet;
    const start = Math.max(0, reserved - idle);
    const ahead = this.past * AHEAD;
    const end = (seconds) => {
      if (seconds === undefined || seconds === null) return [this.edge, this.y(start)];
      const part = Math.min(1, ahead / Math.max(seconds, 1e-9));
      return [this.right + (Math.min(seconds, ahead) / ahead) * (this.edge - this.right), this.y(start + (capacity - start) * part)];
    };
    const from = `M${this.right} ${this.y(start)}`;
    const [first, last] = [end(early), end(this.forecast.late)];
    const corner = first[0] < this.edge ? `L${this.edge} ${this.y(capacity)}` : "";
    const cone = draw("path", { class: "cone", d: `${from}L${first.join(" ")}${corner}L${last.join(" ")}Z` });
    return likely === undefined || likely === null ? [cone] : [cone, draw("path", { class: "likely", d: `${from}L${end(likely).join(" ")}` })];
  }

  batches() {
    const full = Math.max(2, this.subnet.configured_batch ?? 0, ...this.samples.map((each) => each[BATCH]));
    const level = (batch) => this.bottom + (1.5 - Math.log2(Math.max(1, batch)) / Math.log2(full)) * this.em;
    const runs = this.stretches(BATCH);
    const steps = runs.map(([from, to, batch]) => `${this.x(from).toFixed(1)} ${level(batch)}L${this.x(to).toFixed(1)} ${level(batch)}`);
    return [
      draw("path", { class: "batch", d: `M${steps.join("L")}` }),
      draw("text", { x: this.right + 6, y: level(runs.at(-1)[2]) + 4 }, `batch ${runs.at(-1)[2]}`),
    ];
  }

  times(begin) {
    const parts = this.right > 20 * this.em ? [0, 0.5, 1] : [0, 1];
    const marks = parts.map((part) => [this.x(this.now - this.past * (1 - part)), this.now - this.past * (1 - part), part]);
    return marks.filter(([, at]) => at >= begin - 31).map(([x, at, part]) =>
      draw("text", { x, y: this.high - 0.25 * this.em, "text-anchor": ["start", "middle", "middle"][part * 2] }, part === 1 ? "now" : clock(at)));
  }

  moment(event) {
    const box = this.svg.getBoundingClientRect();
    return this.now - ((this.right - (event.clientX - box.left)) / this.right) * this.past;
  }

  nearest(at) {
    let best = 0;
    this.samples.forEach((each, index) => Math.abs(each[AT] - at) < Math.abs(this.samples[best][AT] - at) && (best = index));
    return best;
  }

  read(at, x, y) {
    if (!this.samples?.length || !this.cross) return;
    this.reading = this.nearest(at);
    const sample = this.samples[this.reading];
    const place = this.x(sample[AT]);
    for (const [key, value] of [["x1", place], ["x2", place], ["visibility", "visible"]]) this.cross.setAttribute(key, value);
    const text = describe(sample);
    showTip(text, x, y);
    return text;
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!step || !this.samples?.length) return;
    event.preventDefault();
    const stride = Math.abs(step) === 1 ? step * Math.ceil(this.samples.length / 60) : step;
    const at = Math.max(0, Math.min(this.samples.length - 1, (this.reading ?? this.samples.length - 1) + stride));
    const box = this.svg.getBoundingClientRect();
    const text = this.read(this.samples[at][AT], box.left + this.x(this.samples[at][AT]), box.top + 20);
    announce((text ?? "").replaceAll("\n", ", "));
  }

  leave() {
    this.reading = undefined;
    this.cross?.setAttribute("visibility", "hidden");
    hideTip();
  }
}

function held(sample) {
  return LAYERS.reduce((sum, [layer]) => sum + sample[layer], 0);
}

function describe(sample) {
  const parts = [[ASSIGNED, "assigned"], [IDLE, "idle on nodes"], [PRIMARIES, "primaries"], [COOLING_DOWN, "cooling down"], [OTHER_CLUSTERS, "other clusters"]];
  const lines = [`${clock(sample[AT])}: ${held(sample)}${sample[CAPACITY] ? ` of ${sample[CAPACITY]}` : ""} reserved`, ...parts.filter(([field]) => sample[field]).map(([field, text]) => `${sample[field]} ${text}`)];
  lines.push(`batch ${sample[BATCH]}${sample[EXHAUSTED] ? ", exhausted" : ""}`);
  if (sample[WAITING]) lines.push(`${sample[WAITING]} Pods wait`);
  return lines.join("\n");
}

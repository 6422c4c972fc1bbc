// A grid of cells on one canvas that draws only visible cells, so that 5,000 nodes cost no more than a screen.
//
// For screen readers it is a list box with one option, the active cell, whose text changes with the arrow keys.
import { make } from "./format.js";
import { hideTip, showTip } from "./tip.js";

let probe = null;

/** The current value of a style sheet colour, in light or dark mode. */
export function colour(name) {
  probe ??= document.body.appendChild(make("span.unseen", { "aria-hidden": "true" }));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

export class Grid {
  /** `kind` names the list; `shape` gives the cell's width and height for a width in pixels; `paint`, `describe`, `open` take an index. */
  constructor(home, { kind, label, shape, paint, describe, open }) {
    Object.assign(this, { home, kind, shape, paint, describe, open, length: 0, active: 0, drawn: 0 });
    this.canvas = make("canvas.surface", { "aria-hidden": "true" });
    this.option = make("div.unseen", { role: "option", id: `${kind}-active`, "aria-selected": "true" }, "nothing");
    this.container = make("div.container", {}, this.canvas);
    home.setAttribute("role", "listbox");
    home.setAttribute("aria-label", label);
    home.tabIndex = 0;
    home.append(this.container, this.option);
    home.addEventListener("scroll", () => this.draw(), { passive: true });
    home.addEventListener("keydown", (event) => this.key(event));
    home.addEventListener("focus", () => this.activate(this.active, true));
    home.addEventListener("blur", () => (hideTip(), this.draw()));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => ((this.under = null), hideTip(), this.draw()));
    this.canvas.addEventListener("click", (event) => {
      const at = this.at(event);
      if (at !== null) this.open(at);
    });
    new ResizeObserver(() => this.measure()).observe(home);
  }

  show(length) {
    this.length = length;
    this.active = Math.max(0, Math.min(this.active, length - 1));
    this.option.textContent = length ? this.spoken() : "nothing";
    this.measure();
  }

  spoken() {
    return this.describe(this.active).replaceAll("\n", ", ");
  }

  measure() {
    const style = getComputedStyle(this.home);
    const width = this.home.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (width <= 0) return;
    this.cell = this.shape(width);
    const rows = Math.ceil(this.length / this.cell.columns);
    this.container.style.height = `${rows * this.cell.height}px`;
    const seen = Math.min(rows * this.cell.height, parseFloat(style.maxHeight));
    const scale = devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * scale), Math.round(seen * scale)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      Object.assign(this.canvas, { width: wide, height: high });
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${seen}px` });
    }
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paintAll());
  }

  paintAll() {
    if (!this.cell) return;
    const pen = this.canvas.getContext("2d");
    const scale = devicePixelRatio || 1;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const { columns, width, height, left = 0 } = this.cell;
    const top = this.offset();
    const first = Math.floor(top / height);
    const last = Math.min(Math.ceil(this.length / columns), Math.ceil((top + this.canvas.height / scale) / height));
    const focused = document.activeElement === this.home && this.home.matches(":focus-visible");
    for (let row = first; row < last; row++) {
      for (let column = 0; column < columns; column++) {
        const index = row * columns + column;
        if (index >= this.length) break;
        const marked = index === this.under || (focused && index === this.active);
        this.paint(pen, index, left + column * width, row * height - top, width, height, marked, column);
      }
    }
    this.drawn += 1;
  }

  /** Offset of the sticky canvas from the top of its container. */
  offset() {
    return Math.max(0, this.canvas.offsetTop);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { columns, width, height, left = 0 } = this.cell;
    const column = Math.floor((event.clientX - box.left - left) / width);
    const row = Math.floor((event.clientY - box.top + this.offset()) / height);
    const index = row * columns + column;
    return column >= 0 && column < columns && index < this.length ? index : null;
  }

  point(event) {
    const index = this.at(event);
    if (index === this.under) return index === null ? hideTip() : showTip(this.describe(index), event.clientX, event.clientY);
    this.under = index;
    this.draw();
    if (index === null) hideTip();
    else showTip(this.describe(index), event.clientX, event.clientY);
    this.hovered?.(index, event.clientX, event.clientY);
  }

  key(event) {
    const { columns, height } = this.cell ?? { columns: 1, height: 1 };
    const page = columns * Math.max(1, Math.floor(this.home.clientHeight / height) - 1);
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: page, PageUp: -page };
    if (event.key in steps) this.activate(this.active + steps[event.key]);
    else if (event.key === "Home") this.activate(0);
    else if (event.key === "End") this.activate(this.length - 1);
    else if (event.key === "Enter" && this.length) this.open(this.active);
    else return;
    event.preventDefault();
  }

  activate(index, quiet = false) {
    if (!this.length || !this.cell) return;
    this.active = Math.max(0, Math.min(index, this.length - 1));
    this.home.setAttribute("aria-activedescendant", this.option.id);
    this.option.textContent = this.spoken();
    const { columns, width, height, left = 0 } = this.cell;
    const top = Math.floor(this.active / columns) * height;
    if (top < this.home.scrollTop) this.home.scrollTop = top;
    if (top + height > this.home.scrollTop + this.home.clientHeight - 28) this.home.scrollTop = top + height - this.home.clientHeight + 28;
    if (!quiet || this.home.matches(":focus-visible")) {
      const box = this.home.getBoundingClientRect();
      showTip(this.describe(this.active), box.left + left + ((this.active % columns) + 1) * width, box.top + top + height - this.home.scrollTop);
      this.hovered?.(this.active, box.left + left + ((this.active % columns) + 1) * width, box.top + top + height - this.home.scrollTop);
    }
    this.draw();
  }
}

// Lines over time with uPlot, in the page's colours. Lines can be switched in the legend; a table says the same in words.

import { fitting, SCALES } from "../format.js";

export function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  probe.hidden = true;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4], [1, 3]];

export class Chart {
  /** `series` have label, hue (0 to 6), and may have isStep and isHidden; `scale` is power, energy or null for numbers. */
  constructor(element, { series, scale = null, unit = "", height = 220, label }) {
    Object.assign(this, { element, series, scale, unit, height });
    element.classList.add("chart");
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", label);
    this.themed = () => this.draw();
    addEventListener("theme", this.themed);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.themed);
    this.watcher = new ResizeObserver(() => this.plot?.setSize({ width: this.element.clientWidth, height: this.height }));
    this.watcher.observe(element);
  }

  /** Times and a list of values for each line; lines that have none at all are left out. */
  set(all) {
    const has = all.slice(1).map((values) => values.some((value) => value !== null));
    const data = [all[0], ...all.slice(1).filter((_, number) => has[number])];
    if (has.join() !== this.has?.join()) {
      this.has = has;
      this.shownUnit = undefined;
      this.lines = this.series.filter((_, number) => has[number]);
      this.plot?.destroy();
      this.plot = null;
    }
    this.data = data;
    const largest = Math.max(0, ...data.slice(1).flat().filter((value) => value !== null));
    const { by, unit } = this.scale ? fitting(largest, SCALES[this.scale]) : { by: 1, unit: this.unit };
    this.shown = by === 1 ? data : [data[0], ...data.slice(1).map((values) => values.map((value) => (value === null ? null : value / by)))];
    if (this.plot && unit === this.shownUnit) this.plot.setData(this.shown);
    else { this.shownUnit = unit; this.draw(); }
  }

  draw() {
    if (!this.data) return;
    const hidden = this.plot ? this.plot.series.map((one) => !one.show) : [];
    this.plot?.destroy();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, font: "12px system-ui, sans-serif" };
    const unit = this.shownUnit ? ` (${this.shownUnit})` : "";
    this.plot = new window.uPlot({
      width: this.element.clientWidth || 480, height: this.height, cursor: { drag: { x: true, y: false } }, legend: { live: true },
      scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.08, 1e-9)] } },
      series: [{ label: "time" }, ...this.lines.map((one, number) => ({
        label: one.label + unit, stroke: colour(`--hue-${one.hue}`), width: 2, dash: DASHES[number % DASHES.length], show: !(hidden[number + 1] ?? one.isHidden ?? false),
        paths: one.isStep ? window.uPlot.paths.stepped({ align: 1 }) : undefined, points: { show: false }, spanGaps: false,
        value: (_, value) => (value === null ? "–" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 })),
      }))],
      axes: [axis, { ...axis, size: 58 }],
    }, this.shown, this.element);
  }

  close() {
    removeEventListener("theme", this.themed);
    this.scheme.removeEventListener("change", this.themed);
    this.watcher.disconnect();
    this.plot?.destroy();
  }
}

// Charts of a report: a line per run, laid over each other. Few are shown at first; boxes switch them on and off in all.

import { h } from "../dom.js";
import { digits, duration } from "../format.js";

const FIRST = 4; // more lines than that cannot be told apart
export const HUES = 7;
const DASHES = [undefined, [10, 4], [3, 3], [12, 3, 3, 3]];


/** A colour of the style sheet as the scheme has it. The browser resolves light-dark() for properties, not for variables. */
export function shade(name) {
  const probe = h("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const lineColour = (number) => shade(`--hue-${number % HUES}`);
const dashOf = (number) => DASHES[Math.floor(number / HUES) % DASHES.length];

class LineChart {
  constructor(element, chart, names, shown) {
    Object.assign(this, { element, chart, names, shown });
    new ResizeObserver(() => this.plot?.setSize({ width: element.clientWidth, height: 240 })).observe(element);
    this.draw();
  }

  draw() {
    const { chart, names, shown } = this;
    const isLog = chart.x_axis === "decades";
    const axis = { stroke: shade("--soft"), grid: { stroke: shade("--line"), width: 1 }, ticks: { stroke: shade("--line") }, font: "12px system-ui, sans-serif" };
    const at = isLog ? (value) => duration(Number((10 ** value).toPrecision(3))) : (value) => `${digits(value, 4)} ${chart.x_unit}`;
    const decades = {
      splits: (plot) => MARKS.map(([mark]) => mark).filter((mark) => mark >= plot.scales.x.min && mark <= plot.scales.x.max),
      values: (_, marks) => marks.map((mark) => MARKS.find(([one]) => one === mark)?.[1] ?? ""), space: 40,
    };
    this.plot?.destroy();
    this.plot = new window.uPlot({
      width: this.element.clientWidth || 480, height: 240, cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { range: (_, __, max) => [0, Math.max(max * 1.06, 1e-9)] } },
      series: [{ label: isLog ? "within" : "time", value: (_, value) => (value === null ? "–" : at(value)) }, ...names.map((name, number) => ({
        label: names.length > 1 ? name : chart.title, stroke: lineColour(number), width: 2, dash: dashOf(number), show: shown.has(number), points: { show: false },
        value: (_, value) => (value === null ? "–" : `${digits(value)}${chart.unit ? ` ${chart.unit}` : ""}`),
      }))],
      axes: [{ ...axis, ...(isLog ? decades : {}), label: isLog ? "completion time, log scale" : `time (${chart.x_unit})`, labelSize: 20, labelFont: "12px system-ui, sans-serif" },
        { ...axis, size: 62, label: chart.unit || undefined, labelSize: chart.unit ? 20 : 0, labelFont: "12px system-ui, sans-serif" }],
    }, [chart.x, ...chart.lines], this.element);
  }

  show(number, isShown) {
    this.plot.setSeries(number + 1, { show: isShown });
  }
}

const MARKS = [[1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 d"], [604800, "1 wk"], [2592000, "30 d"], [31536000, "1 y"]].map(([seconds, text]) => [Math.log10(seconds), text]);

/** Boxes for the lines (where there are several) and a chart for each entry. */
export function drawLines(place, { charts, names, oracles }) {
  const shown = new Set([...names.keys()].slice(0, FIRST));
  const made = charts.map((chart) => {
    const element = h("div", { class: "chart", role: "img", "aria-label": `${chart.title}. ${chart.says}` });
    place.append(h("figure", {}, h("h3", {}, chart.title), element, h("figcaption", {}, chart.says)));
    return new LineChart(element, chart, names, shown);
  });
  if (names.length > 1) place.before(boxes(names, oracles, shown, made));
  addEventListener("beforeprint", () => made.forEach((one) => one.draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => made.forEach((one) => one.draw()));
}

function boxes(names, oracles, shown, charts) {
  const items = names.map((name, number) => {
    const box = h("input", { type: "checkbox", checked: shown.has(number) });
    box.addEventListener("change", () => {
      if (box.checked) shown.add(number);
      else shown.delete(number);
      for (const chart of charts) chart.show(number, box.checked);
    });
    const line = h("span", { class: "sample", "aria-hidden": "true" });
    line.style.borderTop = `3px ${dashOf(number) ? "dashed" : "solid"} var(--hue-${number % HUES})`;
    return h("label", {}, box, line, name, oracles.includes(number) ? h("span", { class: "badge warn" }, "oracle") : null);
  });
  return h("fieldset", { class: "lines" }, h("legend", {}, "Lines"), items);
}

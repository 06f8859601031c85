// The GPUs as tiles, node by node. What a tile says stands in it as text and in its label; colour and height say it again.

import { h, setText } from "../dom.js";
import { memory, power } from "../format.js";
import { hue } from "./jobs.js";

const SIGNS = { free: "", busy: "", drained: "⊘", asleep: "☾", waking: "…", unreachable: "!" };
const GUARDS = { unhealthy: "△", overlimit: "▲", disabled: "✕" };
/** What can be shown: title, how full the tile is (0 to 1), and its text. */
export const MEASURES = {
  jobs: ["who shares", (gpu) => (gpu.busy ?? 0) / 100, (gpu) => (gpu.jobs.length > 1 ? `${gpu.jobs.length}×` : gpu.jobs.length ? "1" : "")],
  busy: ["busy, %", (gpu) => (gpu.busy ?? 0) / 100, (gpu) => text(gpu.busy)],
  memory: ["memory, %", (gpu, node) => share(gpu, node), (gpu, node) => (gpu.memoryMib === null ? "" : text(Math.round(100 * share(gpu, node))))],
  watts: ["watts", (gpu, node) => (gpu.watts ?? 0) / node.peak_w, (gpu) => text(gpu.watts)],
  heat: ["heat, °C", (gpu) => Math.max((gpu.celsius ?? 20) - 20, 0) / 75, (gpu) => text(gpu.celsius)],
};

const text = (value) => (value === null ? "" : String(value));
const share = (gpu, node) => Math.min((gpu.memoryMib ?? 0) / node.memory_mib, 1);

export class GpuMap {
  /** `chosen(number)` is called when a GPU is. */
  constructor(chosen) {
    this.chosen = chosen;
    this.measure = "jobs";
    this.size = "";
    this.tiles = [];
    this.selected = null;
    this.nodes = h("div", { class: "nodes" });
    this.element = h("div", { class: "map", role: "group", "aria-label": "GPUs by node; arrow keys move between them" }, this.nodes);
    this.nodes.addEventListener("click", (event) => this.pick(event.target.closest(".gpu")));
    this.nodes.addEventListener("keydown", (event) => this.moved(event));
    this.nodes.addEventListener("pointerover", (event) => this.showKin(event.target.closest(".gpu")?.number ?? this.selected));
    this.nodes.addEventListener("pointerleave", () => this.showKin(this.selected));
  }

  /** For another cluster: all tiles anew. */
  build(model) {
    this.model = model;
    this.tiles = [];
    this.nodeOf = [];
    const groups = model.cluster.nodes.map((node, number) => {
      const tiles = Array.from({ length: node.gpus }, (_, index) => {
        const made = makeTile(node.first + index, node, index);
        this.tiles.push(made);
        this.nodeOf.push(number);
        return made.tile;
      });
      return h("section", { class: "node", "aria-label": `node ${node.name}` },
        h("div", { class: "name" }, h("strong", {}, node.name), `${node.gpus} × ${node.model}`), h("div", { class: "tiles" }, tiles));
    });
    this.nodes.replaceChildren(...groups);
    this.tiles[0]?.tile.setAttribute("tabindex", "0");
    this.show(this.measure, this.size);
  }

  /** Another measure, or another size of the tiles: small, medium, large, or what suits their number. */
  show(measure, size) {
    this.measure = measure;
    this.size = size;
    const gpus = this.tiles.length;
    this.fits = size || (gpus <= 24 ? "large" : gpus <= 160 ? "medium" : "small");
    for (const one of ["small", "medium", "large"]) this.element.classList.toggle(one, one === this.fits);
    this.paint(this.tiles.keys());
  }

  paint(numbers) {
    for (const number of numbers) {
      const gpu = this.model.gpus[number];
      if (gpu && this.tiles[number]) this.paintTile(this.tiles[number], gpu, this.model.cluster.nodes[this.nodeOf[number]]);
    }
    this.showKin(this.selected);
  }

  paintTile(made, gpu, node) {
    const { tile, level, jobs, words, mark } = made;
    const [, full, said] = MEASURES[this.measure];
    if (tile.dataset.state !== gpu.state) tile.dataset.state = gpu.state;
    if (tile.dataset.guard !== gpu.guard) tile.dataset.guard = gpu.guard;
    tile.classList.toggle("drained", gpu.isDrained);
    level.style.height = `${Math.round(100 * Math.min(Math.max(full(gpu, node), 0), 1))}%`;
    const sign = SIGNS[gpu.state] || (gpu.isDrained ? SIGNS.drained : "");
    setText(mark, GUARDS[gpu.guard] ?? "");
    if (this.fits === "large") this.paintLarge(words, gpu, node, made.name);
    else setText(words, `${said(gpu, node)}${sign ? ` ${sign}` : ""}`.trim() || "·");
    if (made.shown !== gpu.jobs.join()) {
      made.shown = gpu.jobs.join();
      jobs.replaceChildren(...gpu.jobs.map((id) => {
        const part = document.createElement("i");
        part.style.setProperty("--hue", hue(id));
        return part;
      }));
    }
    setText(made.said, this.label(made.name, gpu, node));
  }

  paintLarge(words, gpu, node, name) {
    const sign = SIGNS[gpu.state] || (gpu.isDrained ? SIGNS.drained : "");
    const who = gpu.jobs.map((id) => this.model.labels.get(id)?.name ?? `job ${id}`).join(" + ") || (gpu.isDrained ? "drained" : gpu.state);
    const meters = [gpu.busy === null ? "" : `${gpu.busy} %`, gpu.watts === null ? "" : `${gpu.watts} W`, gpu.celsius === null ? "" : `${gpu.celsius} °C`];
    const lines = [`${name}${sign ? ` ${sign}` : ""}`, who, meters.filter(Boolean).join(" · "), gpu.memoryMib === null ? "" : `${memory(gpu.memoryMib)}`];
    if (words.childElementCount !== lines.length) words.replaceChildren(h("b"), h("span"), h("span"), h("span"));
    lines.forEach((line, number) => setText(words.children[number], line));
  }

  label(name, gpu, node) {
    const who = gpu.jobs.map((id) => {
      const known = this.model.labels.get(id);
      return known ? `${id} ${known.name} of ${known.user}` : `${id}`;
    });
    const parts = [name, gpu.isDrained && gpu.state !== "drained" ? `${gpu.state}, drained` : gpu.state];
    if (who.length) parts.push(`${who.length === 1 ? "job" : `${who.length} jobs share it:`} ${who.join(", ")}`);
    if (gpu.busy !== null) parts.push(`busy ${gpu.busy} %`);
    if (gpu.memoryMib !== null) parts.push(`memory ${memory(gpu.memoryMib)} of ${memory(node.memory_mib)}`);
    if (gpu.watts !== null) parts.push(power(gpu.watts));
    if (gpu.celsius !== null) parts.push(`${gpu.celsius} °C`);
    if (GUARDS[gpu.guard]) parts.push(`guard ${gpu.guard}`);
    return parts.join(", ");
  }

  pick(tile) {
    if (!tile) return;
    this.select(tile.number);
    this.chosen(tile.number);
  }

  select(number) {
    if (this.selected !== null) this.tiles[this.selected]?.tile.removeAttribute("aria-pressed");
    this.tiles[this.selected ?? 0]?.tile.setAttribute("tabindex", "-1");
    this.selected = number;
    const tile = this.tiles[number]?.tile;
    tile?.setAttribute("tabindex", "0");
    tile?.setAttribute("aria-pressed", "true");
    this.showKin(number);
  }

  /** Whoever runs there runs on these GPUs, too. */
  showKin(number) {
    const jobs = new Set(number === null || number === undefined ? [] : this.model?.gpus[number]?.jobs ?? []);
    for (const { tile } of this.tiles) {
      const isKin = jobs.size > 0 && tile.number !== number && (this.model.gpus[tile.number]?.jobs ?? []).some((id) => jobs.has(id));
      if (isKin !== tile.isKin) {
        tile.isKin = isKin;
        tile.classList.toggle("kin", isKin);
      }
    }
  }

  moved(event) {
    const from = event.target.closest(".gpu")?.number;
    if (from === undefined) return;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.perRow(from), ArrowUp: -this.perRow(from) };
    let to = event.key === "Home" ? 0 : event.key === "End" ? this.tiles.length - 1 : from + (steps[event.key] ?? NaN);
    if (Number.isNaN(to)) return;
    event.preventDefault();
    to = Math.min(Math.max(to, 0), this.tiles.length - 1);
    this.tiles[from].tile.setAttribute("tabindex", "-1");
    this.select(to);
    this.chosen(to);
    this.tiles[to].tile.focus();
  }

  /** Tiles of a row where this one is, by where they are on the screen. */
  perRow(number) {
    const top = this.tiles[number].tile.offsetTop;
    const first = this.model.cluster.nodes[this.nodeOf[number]].first;
    let last = first;
    const inNode = this.model.cluster.nodes[this.nodeOf[number]].gpus;
    const tops = Array.from({ length: inNode }, (_, index) => this.tiles[first + index].tile.offsetTop);
    last = tops.filter((one) => one === top).length;
    return Math.max(last, 1);
  }
}

function makeTile(number, node, index) {
  const tile = h("button", { class: "gpu", type: "button", tabindex: "-1" });
  const made = {
    tile, name: `${node.name}:${index}`, shown: "", level: h("span", { class: "fill" }), jobs: h("span", { class: "jobs" }),
    words: h("span", { class: "text", "aria-hidden": "true" }), mark: h("span", { class: "mark", "aria-hidden": "true" }),
    said: h("span", { class: "said visually-hidden" }),
  };
  tile.append(made.said, made.level, made.words, made.jobs, made.mark);
  tile.number = number;
  return made;
}

// GPUs over time, one row each: who ran where, who shared, what was idle or off. Drawn on a canvas as far as it is in
// sight; what stands under the cursor is also told in words, and everything works with the keyboard.

import { fill, h, options, setText } from "../dom.js";
import { duration, plural } from "../format.js";
import { HUES, shade } from "./lines.js";

const MANY = 2 ** 32 - 1;
const UNMEASURED = 2 ** 32 - 2;
const TICKS = 1e6;
const LEFT = 92; // for the GPUs' names
const TOP = 22; // for the axis
const TALLEST = 520;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Numbers whose bytes are sorted by place. */
async function numbers(text) {
  const planes = await unpacked(text);
  const count = planes.length / 4;
  return Uint32Array.from({ length: count }, (_, at) => (planes[at] + planes[count + at] * 256 + planes[2 * count + at] * 65536 + planes[3 * count + at] * 16777216) >>> 0);
}

async function readJobs(packed) {
  const [names, user, gpus] = await Promise.all([unpacked(packed.names), numbers(packed.user), numbers(packed.gpus)]);
  return { names: new TextDecoder().decode(names).split("\n"), users: packed.users, user, gpus };
}

async function readRun(packed) {
  const columns = ["counts", "gap", "length", "who", "set_sizes", "set_jobs"].map((name) => numbers(packed[name]));
  const [counts, gap, length, who, sizes, members] = await Promise.all(columns);
  let taken = 0;
  const sets = Array.from(sizes, (size) => [...members.subarray(taken, (taken += size))]);
  const first = new Uint32Array(counts.length + 1);
  counts.forEach((count, gpu) => { first[gpu + 1] = first[gpu] + count; });
  const start = new Float64Array(gap.length);
  const end = new Float64Array(gap.length);
  for (let gpu = 0; gpu < counts.length; gpu += 1) {
    let at = 0;
    for (let block = first[gpu]; block < first[gpu + 1]; block += 1) {
      start[block] = at + gap[block];
      at = end[block] = start[block] + length[block];
    }
  }
  const names = packed.nodes.flatMap(([name, gpus]) => Array.from({ length: gpus }, (_, index) => `${name}:${index}`));
  const nodeOf = packed.nodes.flatMap(([, gpus], node) => Array(gpus).fill(node));
  const off = packed.nodes.map(() => []);
  for (const [node, from, to, state] of packed.off) off[node].push([from, to, state]);
  return { ...packed, first, start, end, who, sets, gpus: names, nodeOf, off };
}

class GpuTimeline {
  constructor(place, data, jobs) {
    Object.assign(this, { data, jobs, from: 0, to: TICKS, cursor: { gpu: 0, at: TICKS / 2 }, colouring: "user" });
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "GPUs over time. Left and right move, plus and minus zoom, up and down choose a GPU, 0 shows all.", "aria-describedby": "gantt-said" });
    this.tall = h("div", { class: "tall" });
    this.frame = h("div", { class: "gantt" }, this.canvas, this.tall);
    this.said = h("p", { id: "gantt-said", class: "said", role: "status" });
    this.note = h("p", { class: "hint" });
    const runs = options(h("select", { "aria-label": "Run", onchange: (event) => this.choose(Number(event.target.value)) }), data.runs.map((run, number) => [String(number), run.name]), "0");
    const colours = options(h("select", { "aria-label": "Colour", onchange: (event) => { this.colouring = event.target.value; this.tellColours(); this.draw(); } }), [["user", "colour by user"], ["job", "colour by job"], ["shared", "colour shared GPUs"]], "user");
    const button = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
    this.legend = h("ul", { class: "legend" });
    place.append(
      h("div", { class: "bar" }, data.runs.length > 1 ? runs : null, colours,
        button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)), button("◂", "Earlier", () => this.pan(-0.25)), button("▸", "Later", () => this.pan(0.25)),
        button("all", "Show all of the time", () => this.view(0, TICKS)), button("rows +", "Taller rows", () => this.grow(1.6)), button("rows −", "Lower rows", () => this.grow(1 / 1.6))),
      this.legend, this.frame, this.said, this.note,
      h("p", { class: "hint" }, "Drag over a time to zoom into it; with Ctrl the wheel zooms, too."));
    this.listen();
    this.choose(0);
  }

  async choose(number) {
    this.run = await (this.data.runs[number].read ??= readRun(this.data.runs[number]));
    this.fit = Math.max(Math.min((TALLEST - TOP) / this.run.gpus.length, 20), 3);
    this.row = this.fit;
    this.cursor = { gpu: 0, at: TICKS / 2 };
    this.pale = null;
    setText(this.note, this.run.merged_s ? `Jobs shorter than ${duration(this.run.merged_s)} that follow each other closely are drawn as one block.` : "");
    this.tellColours();
    this.view(0, TICKS);
  }

  // ---- what is in sight ----

  view(from, to) {
    const width = Math.min(Math.max(to - from, 20), TICKS);
    this.from = Math.min(Math.max(from, 0), TICKS - width);
    this.to = this.from + width;
    this.draw();
  }

  zoom(by, about = (this.from + this.to) / 2) {
    const width = Math.min((this.to - this.from) * by, TICKS);
    const part = (about - this.from) / (this.to - this.from);
    this.view(about - part * width, about + (1 - part) * width);
  }

  pan(by) {
    const move = by * (this.to - this.from);
    this.view(this.from + move, this.to + move);
  }

  grow(by) {
    this.row = Math.min(Math.max(this.row * by, this.fit), 40);
    this.draw();
  }

  x(tick) { return LEFT + ((tick - this.from) / (this.to - this.from)) * (this.width - LEFT); }

  tick(x) { return this.from + ((x - LEFT) / (this.width - LEFT)) * (this.to - this.from); }

  // ---- drawing ----

  draw() {
    if (!this.run) return;
    const scale = window.devicePixelRatio || 1;
    const whole = TOP + this.run.gpus.length * this.row;
    this.width = this.frame.clientWidth;
    this.height = Math.min(Math.ceil(whole), TALLEST);
    this.frame.style.height = `${this.height}px`;
    this.tall.style.height = `${whole - this.height}px`;
    Object.assign(this.canvas, { width: this.width * scale, height: this.height * scale });
    this.canvas.style.height = `${this.height}px`;
    this.paints = this.pale ??= paints();
    const pen = (this.pen = this.canvas.getContext("2d"));
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const top = this.frame.scrollTop;
    const first = Math.floor(top / this.row);
    const last = Math.min(this.run.gpus.length, Math.ceil((top + this.height - TOP) / this.row));
    for (let gpu = first; gpu < last; gpu += 1) this.drawRow(gpu, TOP + gpu * this.row - top);
    this.drawFrame(first, last, top);
    this.tell();
  }

  drawRow(gpu, y) {
    const { run, pen, row } = this;
    const height = row > 5 ? row - 1 : row;
    for (const [from, to, state] of run.off[run.nodeOf[gpu]]) {
      if (to < this.from || from > this.to) continue;
      pen.fillStyle = state === "down" ? this.paints.down : this.paints.off;
      pen.fillRect(this.x(Math.max(from, this.from)), y, this.x(Math.min(to, this.to)) - this.x(Math.max(from, this.from)), height);
    }
    let pixel = -1;
    let filled = 0;
    for (let block = this.firstBlock(gpu); block < run.first[gpu + 1] && run.start[block] <= this.to; block += 1) {
      const left = this.x(Math.max(run.start[block], this.from));
      const width = this.x(Math.min(run.end[block], this.to)) - left;
      if (width >= 1) { this.drawBlock(block, left, y, width, height); continue; }
      // Many in one pixel: no more than it holds.
      if (Math.floor(left) !== pixel) { pixel = Math.floor(left); filled = 0; }
      if (filled >= 1) continue;
      filled += width;
      pen.globalAlpha = Math.max(width, 0.25);
      this.drawBlock(block, pixel, y, 1, height);
      pen.globalAlpha = 1;
    }
  }

  drawBlock(block, x, y, width, height) {
    const { run, pen } = this;
    const jobs = this.jobsOf(run.who[block]);
    const part = height / Math.max(jobs.length, 1);
    jobs.forEach((job, lane) => {
      pen.fillStyle = this.paint(job, jobs.length);
      pen.fillRect(x, y + lane * part, width - (width > 4 ? 1 : 0), part - (lane && part > 4 ? 1 : 0));
      if (width > 50 && part >= 11) this.write(this.nameOf(job), x + 4, y + (lane + 0.5) * part, width - 8);
    });
  }

  write(text, x, y, width) {
    const { pen } = this;
    pen.save();
    pen.beginPath();
    pen.rect(x, y - 10, width, 20);
    pen.clip();
    pen.fillStyle = this.paints.text;
    pen.fillText(text, x, y);
    pen.restore();
  }

  drawFrame(first, last, top) {
    const { pen, run } = this;
    pen.fillStyle = this.paints.paper;
    pen.fillRect(0, 0, LEFT, this.height);
    pen.fillRect(0, 0, this.width, TOP);
    pen.fillStyle = this.paints.soft;
    const every = Math.max(1, Math.ceil(14 / this.row));
    for (let gpu = Math.ceil(first / every) * every; gpu < last; gpu += every) {
      const y = TOP + (gpu + 0.5) * this.row - top;
      if (y > TOP + 4) pen.fillText(run.gpus[gpu], 2, y, LEFT - 8);
    }
    const from = run.begin_s + this.from * run.tick_s;
    const span = (this.to - this.from) * run.tick_s;
    const step = STEPS.find((one) => span / one <= Math.max(this.width / 130, 2)) ?? STEPS.at(-1);
    for (let at = Math.ceil(from / step) * step; at <= from + span; at += step) {
      const x = this.x((at - run.begin_s) / run.tick_s);
      pen.fillRect(x, TOP - 4, 1, 4);
      if (x < this.width - 40) pen.fillText(clockText(at, step), x + 3, TOP / 2);
    }
    pen.fillStyle = this.paints.ink;
    const y = TOP + this.cursor.gpu * this.row - top;
    if (y >= TOP && y < this.height) pen.fillRect(LEFT - 5, y, 3, Math.max(this.row - 1, 2));
    if (this.drag) {
      pen.globalAlpha = 0.2;
      pen.fillRect(this.drag.from, TOP, this.drag.to - this.drag.from, this.height - TOP);
      pen.globalAlpha = 1;
    }
  }

  // ---- who is where ----

  /** The first block of a GPU that ends in sight. */
  firstBlock(gpu, tick = this.from) {
    let low = this.run.first[gpu];
    let high = this.run.first[gpu + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.run.end[middle] <= tick) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  jobsOf(who) {
    const rows = this.jobs.names.length;
    return who < rows || who >= UNMEASURED ? [who] : this.run.sets[who - rows];
  }

  nameOf(job) { return job === MANY ? "many short jobs" : job === UNMEASURED ? "a job of a later lap" : this.jobs.names[job]; }

  paint(job, together) {
    if (job >= UNMEASURED) return this.paints.hues[HUES - 1];
    if (this.colouring === "shared") return this.paints.hues[together > 1 ? 1 : 0];
    const number = this.colouring === "job" ? job % HUES : Math.min(this.jobs.user[job], HUES - 1);
    return this.paints.hues[number];
  }

  tellColours() {
    const users = this.jobs.users;
    const key = (text, hue) => {
      const swatch = h("span", { class: "swatch", "aria-hidden": "true" });
      swatch.style.background = hue;
      return h("li", {}, swatch, text);
    };
    const own = this.colouring === "user" ? users.slice(0, users.length > HUES ? HUES - 1 : HUES).map((user, number) => key(user || "no user", `var(--hue-${number})`)).concat(users.length > HUES ? key("other users", `var(--hue-${HUES - 1})`) : [])
      : this.colouring === "shared" ? [key("one job", "var(--hue-0)"), key("shared", "var(--hue-1)")] : [];
    const states = new Set(this.run?.off.flat().map(([, , state]) => state));
    fill(this.legend, own, h("li", {}, "empty: idle"), states.size ? h("li", {}, `hatched: ${[...states].join(", ")}`) : null, h("li", {}, "split rows: several jobs share the GPU"));
  }

  /** What stands at the cursor, in words. */
  tell() {
    const { run, cursor } = this;
    const gpu = cursor.gpu;
    const time = (tick) => clockText(run.begin_s + tick * run.tick_s, 1);
    const block = this.firstBlock(gpu, cursor.at);
    const off = run.off[run.nodeOf[gpu]].find(([from, to]) => from <= cursor.at && cursor.at < to);
    let words = off ? `${off[2]} from ${time(off[0])} to ${time(off[1])}` : "idle";
    if (block < run.first[gpu + 1] && run.start[block] <= cursor.at) {
      const jobs = this.jobsOf(run.who[block]);
      const named = jobs.map((job) => (job >= UNMEASURED ? this.nameOf(job) : `${this.nameOf(job)}${this.jobs.users[this.jobs.user[job]] ? ` of ${this.jobs.users[this.jobs.user[job]]}` : ""} (${plural(this.jobs.gpus[job], "GPU")})`));
      words = `${jobs.length > 1 ? `${jobs.length} jobs share it: ` : ""}${named.join(" and ")}, from ${time(run.start[block])} to ${time(run.end[block])}`;
    }
    setText(this.said, `${run.gpus[gpu]} at ${time(cursor.at)}: ${words}`);
  }

  // ---- hands ----

  listen() {
    const place = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return { x: Math.min(Math.max(event.clientX - box.left, LEFT), this.width), y: event.clientY - box.top };
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      const { x } = place(event);
      this.drag = { from: x, to: x };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.run) return;
      const { x, y } = place(event);
      const gpu = Math.floor((y - TOP + this.frame.scrollTop) / this.row);
      this.cursor = { gpu: Math.min(Math.max(gpu, 0), this.run.gpus.length - 1), at: this.tick(x) };
      if (this.drag) { this.drag.to = x; this.draw(); } else this.tell();
    });
    this.canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 6) this.view(this.tick(Math.min(drag.from, drag.to)), this.tick(Math.max(drag.from, drag.to)));
      else this.draw();
    });
    this.canvas.addEventListener("dblclick", () => this.view(0, TICKS));
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.tick(place(event).x));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.frame.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => { if (this.frame.clientWidth !== this.width) this.draw(); }).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.pale = null; this.draw(); });
  }

  pressed(event) {
    const acts = {
      ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowUp: () => this.move(-1), ArrowDown: () => this.move(1),
      "+": () => this.zoom(0.5, this.cursor.at), "=": () => this.zoom(0.5, this.cursor.at), "-": () => this.zoom(2, this.cursor.at), 0: () => this.view(0, TICKS),
    };
    if (!this.run || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  step(by) {
    this.cursor.at = Math.min(Math.max(this.cursor.at + (by * (this.to - this.from)) / 50, 0), TICKS);
    if (this.cursor.at < this.from || this.cursor.at > this.to) this.pan(by * 0.5);
    else this.draw();
  }

  move(by) {
    this.cursor.gpu = Math.min(Math.max(this.cursor.gpu + by, 0), this.run.gpus.length - 1);
    const top = this.cursor.gpu * this.row;
    if (top < this.frame.scrollTop) this.frame.scrollTop = top;
    else if (top + this.row > this.frame.scrollTop + this.height - TOP) this.frame.scrollTop = top + this.row - this.height + TOP;
    this.draw();
  }
}

const STEPS = [1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 90 * 86400, 365 * 86400];

/** `3 d 04:30`: time since the run began. */
function clockText(atS, step) {
  const seconds = Math.round(atS);
  const two = (value) => String(value).padStart(2, "0");
  const day = Math.floor(seconds / 86400);
  const rest = seconds - 86400 * day;
  const clock = `${two(Math.floor(rest / 3600))}:${two(Math.floor(rest / 60) % 60)}${step < 60 ? `:${two(rest % 60)}` : ""}`;
  return step >= 86400 ? `${day} d` : day ? `${day} d ${clock}` : clock;
}

/** The colours as the scheme has them, and what is off as hatching. */
function paints() {
  return {
    ink: shade("--ink"), soft: shade("--soft"), paper: shade("--paper"), text: shade("--block-text"),
    hues: Array.from({ length: HUES }, (_, number) => shade(`--hue-${number}`)), off: hatching(shade("--edge"), false), down: hatching(shade("--bad"), true),
  };
}

function hatching(colour, isCrossed) {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  const line = (...points) => { pen.beginPath(); pen.moveTo(points[0], points[1]); pen.lineTo(points[2], points[3]); pen.stroke(); };
  line(0, 6, 6, 0);
  if (isCrossed) line(0, 0, 6, 6);
  return pen.createPattern(tile, "repeat");
}

export async function drawTimeline(place, data) {
  return new GpuTimeline(place, data, await readJobs(data.jobs));
}

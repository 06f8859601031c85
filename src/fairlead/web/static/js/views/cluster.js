// The first page: how the cluster stands, who is on which GPU, what waits, what happened.

import { get, post } from "../api.js";
import { fill, h, options, setText, toast } from "../dom.js";
import { feed } from "../feed.js";
import { count, memory, money, moment, plural, power } from "../format.js";
import { eventItem } from "../parts/events.js";
import { GpuMap, MEASURES } from "../parts/gpumap.js";
import { expectedText, jobLink, swatch, whereOrWhy } from "../parts/jobs.js";
import { isOperator } from "../session.js";

const QUEUE_SHOWN = 8;
const EVENTS_SHOWN = 8;

export function view() {
  const cards = makeCards();
  const details = h("aside", { class: "panel details stack", "aria-live": "polite" });
  const map = new GpuMap((number) => showDetails(details, map, number));
  const measure = options(h("select", { onchange: () => map.show(measure.value, size.value) }), Object.entries(MEASURES).map(([key, [title]]) => [key, title]), "jobs");
  const size = options(h("select", { onchange: () => map.show(measure.value, size.value) }), [["", "fitting"], ["small", "small"], ["medium", "medium"], ["large", "large"]]);
  const queue = h("div", {}, h("p", { class: "soft" }, "…"));
  const happened = h("ul", { class: "events" });
  const title = h("h2", {}, "GPUs");
  const nodes = [
    h("h1", { class: "visually-hidden" }, "Cluster"), cards.element,
    h("div", { class: "side" },
      h("section", { class: "panel stack", "aria-label": "Map of the GPUs" },
        h("div", { class: "head" }, title, h("div", { class: "actions bar" }, h("label", { class: "small" }, "Show ", measure), h("label", { class: "small" }, "Tiles ", size))),
        map.element, legend()),
      details),
    h("div", { class: "two" },
      h("section", { class: "panel" }, h("div", { class: "head" }, h("h2", {}, "Next in the queue"), h("a", { href: "#/jobs" }, "all jobs")), queue),
      h("section", { class: "panel" }, h("div", { class: "head" }, h("h2", {}, "Last events"), h("a", { href: "#/events" }, "all events")), happened)),
  ];
  showDetails(details, map, null);
  let cluster = null;
  let asked = 0;
  let lastAsk = 0;

  async function askQueue() {
    lastAsk = performance.now();
    const mine = ++asked;
    try {
      const found = await get("/v1/job-table", { state: "waiting,held,backing-off", sort: "start", descending: false, limit: QUEUE_SHOWN });
      if (mine === asked) fill(queue, queueOf(found));
    } catch (error) {
      if (mine === asked) fill(queue, h("p", { class: "problem" }, error.message));
    }
  }

  return {
    title: "Cluster",
    nodes,
    update({ changed, hasNewJobs }) {
      const { model } = feed;
      if (cluster !== model.cluster) {
        cluster = model.cluster;
        map.build(model);
        setText(title, `${plural(model.gpus.length, "GPU")} on ${plural(cluster.nodes.length, "node")}`);
      } else map.paint(changed ?? model.gpus.keys());
      cards.update(model);
      if (map.selected !== null) showDetails(details, map, map.selected);
      fill(happened, model.events.slice(-EVENTS_SHOWN).reverse().map(eventItem));
      if (!model.events.length) fill(happened, h("li", { class: "soft" }, "Nothing has happened yet."));
      if (hasNewJobs && performance.now() - lastAsk > 2000) askQueue();
      else if (hasNewJobs) { clearTimeout(this.timer); this.timer = setTimeout(askQueue, 2000); }
    },
    close() { clearTimeout(this.timer); asked += 1; },
  };
}

function makeCards() {
  const titles = ["GPUs busy", "Jobs running", "Jobs waiting", "Power", "Cost", "Deadlines"];
  const made = titles.map((title) => ({ value: h("div", { class: "value" }, "–"), note: h("div", { class: "note" }), title }));
  const element = h("div", { class: "cards" }, made.map((one) => h("div", { class: "card" }, h("div", { class: "title" }, one.title), one.value, one.note)));
  const tell = (number, value, note) => { setText(made[number].value, value); setText(made[number].note, note); };
  return {
    element,
    update({ summary, gpus }) {
      const { jobs, deadlines } = summary;
      const shared = gpus.filter((gpu) => gpu?.jobs.length > 1).length;
      tell(0, `${count(summary.gpus.busy)} of ${count(summary.gpus.all)}`, [shared ? `${count(shared)} shared` : "", summary.gpus.drained ? `${count(summary.gpus.drained)} drained` : ""].filter(Boolean).join(", "));
      tell(1, count(jobs.running), jobs["backing-off"] ? `${count(jobs["backing-off"])} backing off` : "");
      tell(2, count(jobs.waiting), jobs.held ? `${count(jobs.held)} held` : "");
      tell(3, power(summary.power_w), summary.power_at_s ? `as of ${moment(summary.power_at_s)}` : "not metered");
      tell(4, summary.cost_usd_per_h === null ? "–" : `${money(summary.cost_usd_per_h)}/h`, "all GPUs, list price");
      tell(5, deadlines.missed ? `${count(deadlines.missed)} missed` : deadlines["at-risk"] ? `${count(deadlines["at-risk"])} at risk` : "kept",
        `${count(deadlines["on-time"])} on time${deadlines.missed && deadlines["at-risk"] ? `, ${count(deadlines["at-risk"])} at risk` : ""}`);
    },
  };
}

function legend() {
  const key = (props, text) => h("li", {}, h("span", { class: "gpu key", ...props, "aria-hidden": "true" }), text);
  return h("ul", { class: "legend", "aria-label": "What the tiles mean" },
    key({ "data-state": "free" }, "free ·"), key({ "data-state": "drained", class: "gpu key drained" }, "drained ⊘"), key({ "data-state": "asleep" }, "asleep ☾, waking …"),
    key({ "data-state": "unreachable" }, "unreachable !"), h("li", {}, "coloured foot: one part for each job; 2× two share"),
    h("li", {}, "guard: △ unhealthy, ▲ overlimit, ✕ disabled"));
}

function showDetails(panel, map, number) {
  const { model } = feed;
  const gpu = number === null ? null : model.gpus[number];
  if (!gpu) {
    fill(panel, h("h2", {}, "A GPU"), h("p", { class: "soft" }, "Choose a tile to see who is there. Other GPUs of the same jobs are outlined."));
    return;
  }
  const node = model.cluster.nodes[map.nodeOf[number]];
  const { name } = map.tiles[number];
  const residents = gpu.jobs.map((id) => {
    const known = model.labels.get(id);
    return h("li", { class: "resident" }, swatch(id), known ? h("span", {}, jobLink(id, known.name), h("span", { class: "soft" }, ` ${known.user}, ${known.kind}`)) : h("span", {}, `job ${id} of somebody else`));
  });
  const buttons = !isOperator() ? [] : [drainButton(name, gpu.isDrained, "this GPU"), drainButton(node.name, nodeIsDrained(node), `node ${node.name}`)];
  fill(panel,
    h("h2", {}, name), h("p", { class: "small soft" }, `${node.model}, ${gpu.isDrained && gpu.state === "busy" ? "busy, takes no new jobs" : gpu.state}`),
    h("div", {}, h("h3", {}, gpu.jobs.length > 1 ? `${gpu.jobs.length} jobs share it` : gpu.jobs.length ? "One job" : "Nobody is here"), h("ul", { class: "stack" }, residents)),
    h("div", { class: "stack" },
      meter("busy", gpu.busy === null ? null : gpu.busy / 100, gpu.busy === null ? "–" : `${gpu.busy} %`),
      meter("memory", gpu.memoryMib === null ? null : gpu.memoryMib / node.memory_mib, gpu.memoryMib === null ? "–" : `${memory(gpu.memoryMib)}`),
      meter("power", gpu.watts === null ? null : gpu.watts / node.peak_w, gpu.watts === null ? "–" : `${gpu.watts} W`),
      meter("heat", gpu.celsius === null ? null : (gpu.celsius - 20) / 75, gpu.celsius === null ? "–" : `${gpu.celsius} °C`)),
    h("dl", { class: "facts small" }, h("dt", {}, "guard"), h("dd", {}, guardWords(gpu)), h("dt", {}, "price"), h("dd", {}, node.price_usd_per_h ? `${money(node.price_usd_per_h)}/h` : "–")),
    buttons.length ? h("div", { class: "bar" }, buttons) : null);
}

function guardWords(gpu) {
  const words = { "": "none", init: "no service here, or not watched for long enough", healthy: "healthy: best-effort jobs may come", unhealthy: "unhealthy: nobody new comes", overlimit: "overlimit: best-effort jobs were sent away", disabled: "disabled until an operator enables it" };
  return words[gpu.guard] ?? gpu.guard;
}

function meter(title, frac, text) {
  const fillBar = h("i");
  fillBar.style.width = `${Math.round(100 * Math.min(Math.max(frac ?? 0, 0), 1))}%`;
  return h("div", { class: "meter" }, h("span", { class: "soft" }, title), h("div", { class: "track", "aria-hidden": "true" }, fillBar), h("span", { class: "n" }, text));
}

function nodeIsDrained(node) {
  return Array.from({ length: node.gpus }, (_, index) => feed.model.gpus[node.first + index]).every((gpu) => gpu?.isDrained);
}

function drainButton(name, isDrained, words) {
  const verb = isDrained ? "resume" : "drain";
  return h("button", {
    type: "button",
    async onclick() {
      try {
        await post(`/v1/nodes/${encodeURIComponent(name)}/${verb}`);
        toast(isDrained ? `${name} takes jobs again.` : `${name} takes no new jobs; those that are there may finish.`);
      } catch (error) {
        toast(error.words ?? error.message);
      }
    },
  }, isDrained ? `Resume ${words}` : `Drain ${words}`);
}

function queueOf(found) {
  if (!found.total) return h("p", { class: "soft" }, "Nobody waits.");
  const rows = found.rows.map((job) => h("tr", {}, h("td", {}, jobLink(job.id, job.name)), h("td", {}, job.user), h("td", { class: "n" }, count(job.gpus)),
    h("td", {}, job.state === "waiting" ? whereOrWhy(job) : `${job.state}: ${job.reason}`), h("td", {}, expectedText(job, feed.nowAtS()))));
  return [
    h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["job", "user", "GPUs", "why", "expected"].map((title) => h("th", { scope: "col", class: title === "GPUs" ? "n" : null }, title)))), h("tbody", {}, rows))),
    found.total > found.rows.length ? h("p", { class: "small soft" }, `and ${count(found.total - found.rows.length)} more`) : null,
  ];
}

// One job: what became of it and will, where and beside whom it runs, what it cost, and what it writes.

import { get } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { feed } from "../feed.js";
import { clock, digits, duration, energy, fromNow, hours, memory, MISSING, money, moment, percent } from "../format.js";
import { eventItem } from "../parts/events.js";
import { deadlineBadge, jobActions, jobLink, OVER, progressText, stateBadge, swatch, whereOrWhy } from "../parts/jobs.js";
import { LogView } from "../parts/log.js";
import { progress } from "./jobs.js";

const LEAST_MS = 1500;

export function view([id]) {
  const head = h("div", { class: "head" }, h("h1", {}, `Job ${id}`));
  const problem = h("p", { class: "notice bad", role: "alert", hidden: true });
  const why = h("section", { class: "panel", "aria-label": "Why it is where it is" });
  const facts = h("section", { class: "panel", "aria-label": "What is known of it" });
  const time = h("section", { class: "panel", "aria-label": "Attempts over time" });
  const beside = h("section", { class: "panel", "aria-label": "Neighbours" });
  const happened = h("ul", { class: "events" });
  const log = new LogView(id);
  let askedMs = -Infinity;
  let timer = null;
  let isClosed = false;
  let hasLog = false;

  async function look() {
    clearTimeout(timer);
    askedMs = performance.now();
    try {
      const [job, around, events] = await Promise.all([get(`/v1/jobs/${id}`), get(`/v1/jobs/${id}/beside`), get(`/v1/jobs/${id}/events`, { limit: 1000 })]);
      const told = OVER.includes(job.state) ? null : await get(`/v1/jobs/${id}/explain`).catch(() => null);
      if (!isClosed) show(job, around, events.events, told);
    } catch (error) {
      if (isClosed) return;
      problem.hidden = false;
      setText(problem, error.words ?? error.message);
    }
  }

  function show(job, around, events, told) {
    const row = { ...around.job, ...job };
    problem.hidden = true;
    document.title = `${job.id} ${job.name} · Fairlead`;
    fill(head, h("h1", {}, `${job.id} ${job.name}`), stateBadge(job), deadlineBadge(job), h("div", { class: "actions" }, jobActions(job, soon)));
    fill(why, h("h2", {}, whyTitle(job)), whyBody(row, told));
    fill(facts, h("h2", {}, "What is known"), factsOf(row));
    fill(time, h("h2", {}, "Attempts over time"), timelineOf(row), attemptsTable(job));
    fill(beside, h("h2", {}, "Beside it"), besideOf(job, around));
    fill(happened, events.slice(-200).reverse().map(eventItem));
    log.know(job);
    if (!hasLog) { hasLog = true; log.start(); }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(look, Math.max(LEAST_MS - (performance.now() - askedMs), 0));
  }

  let ticks = 0;
  look();
  return {
    title: `Job ${id}`,
    nodes: [head, problem, h("div", { class: "two" }, h("div", { class: "stack" }, why, beside), facts), time, log.element, h("section", { class: "panel" }, h("h2", {}, "What happened"), happened)],
    update({ hasNewJobs, isFirst }) { if (hasNewJobs && !isFirst) soon(); },
    tick() { ticks += 1; if (ticks % 10 === 0 && !document.hidden) soon(); },
    close() { isClosed = true; clearTimeout(timer); log.close(); },
  };
}

function whyTitle(job) {
  if (job.state === "waiting") return "Why it waits";
  if (job.state === "running") return "Why it runs there";
  return "How it stands";
}

function whyBody(job, told) {
  const expected = OVER.includes(job.state) ? null : expectedLine(job);
  const last = job.detail ? [h("h3", {}, "Its last words"), h("pre", { class: "mono wide" }, job.detail)] : null;
  const reasons = told?.why?.length ? told.why : [OVER.includes(job.state) ? `${job.state}: ${job.reason}${job.exit_code === null ? "" : `, status ${job.exit_code}`}` : whereOrWhy(job)];
  const rejected = (told?.rejected ?? []).slice(0, 10);
  return h("div", { class: "stack" }, h("ul", {}, reasons.map((one) => h("li", {}, one))), expected,
    rejected.length ? h("details", {}, h("summary", {}, "What was considered and rejected"), h("ul", {}, rejected.map((one) => h("li", {}, `${one.where}: ${one.why}`)))) : null, last);
}

function expectedLine(job) {
  const now = feed.nowAtS();
  const guess = job.is_guess ? " Nobody said how long it takes, so this is a guess." : "";
  if (job.state !== "running" && job.expected_start_at_s !== null) return h("p", {}, `Expected to start ${fromNow(Math.max(job.expected_start_at_s - now, 0))}, at ${moment(job.expected_start_at_s)}.`);
  if (job.state === "running" && job.expected_end_at_s !== null) return h("p", {}, `Expected to end ${fromNow(job.expected_end_at_s - now)}, at ${moment(job.expected_end_at_s)}.${guess}`);
  return h("p", { class: "soft" }, job.kind === "service" ? "A service runs until it is cancelled." : "No prediction yet.");
}

function factsOf(job) {
  const shown = [
    ["user", job.user], ["kind", job.kind === "service" ? `service${job.slo_s ? `, keeps ${duration(job.slo_s)}` : ""}` : "training"], ["profile", job.profile],
    ["GPUs", job.min_gpus === job.max_gpus ? String(job.gpus) : `${job.gpus}, between ${job.min_gpus} and ${job.max_gpus}`],
    ["memory", job.memory_mib ? `${memory(job.memory_mib)} on each GPU` : "not said"],
    ["epochs", progressText(job) ? [progress(job), [job.epoch_s === null ? "" : `${duration(job.epoch_s)} each`, job.loss === null ? "" : `loss ${digits(job.loss, 4)}`].filter(Boolean).join(", ")] : "not reported"],
    ["GPU time", hours(job.gpu_s)], ["energy", job.energy_j === null ? MISSING : [energy(job.energy_j), ` (${Math.round(job.energy_j).toLocaleString("en-US")} J)`, job.energy_at_s ? `, up to ${moment(job.energy_at_s)}` : ""]],
    ["cost", job.cost_usd === null ? "no price known" : `${money(job.cost_usd)} at list price`],
    ["submitted", moment(job.submitted_at_s)], ["started", moment(job.started_at_s)], ["ended", moment(job.ended_at_s)],
    ["deadline", job.deadline_at_s === null ? "none" : `${moment(job.deadline_at_s)}, ${job.deadline_state ?? "not looked at"}`],
    ["takes about", job.estimate_s === null ? "not said" : duration(job.estimate_s)], ["priority", String(job.priority)], ["failures", String(job.failures)],
    ["command", h("code", {}, job.command.join(" "))], ["folder", h("code", {}, job.cwd)],
  ];
  return h("dl", { class: "facts" }, shown.map(([term, said]) => [h("dt", {}, term), h("dd", {}, said)]));
}

function besideOf(job, around) {
  if (!around.neighbours.length) return h("p", { class: "soft" }, job.placement.length ? "It has its GPUs to itself." : "It is on no GPU.");
  return h("div", { class: "stack" },
    h("p", {}, `It keeps about ${percent(around.kept_speed_frac)} of its speed alone${job.sm_share < 1 ? `, with ${percent(job.sm_share)} of the SMs` : ""}.`),
    h("ul", {}, around.neighbours.map((one) => h("li", { class: "resident" }, swatch(one.id), one.name === null ? `job ${one.id} of somebody else` : [jobLink(one.id, one.name), ` of ${one.user}`], h("span", { class: "soft" }, `on ${one.gpus.join(", ")}`)))));
}

function timelineOf(job) {
  const now = job.ended_at_s ?? feed.nowAtS();
  const begin = job.submitted_at_s;
  const width = Math.max(now - begin, 1e-3);
  const span = (from, to, kind, text, title) => {
    const made = h("div", { class: `span ${kind}`, title }, text);
    made.style.left = `${(100 * (from - begin)) / width}%`;
    made.style.width = `${Math.max((100 * (to - from)) / width, 0.2)}%`;
    return made;
  };
  const spans = [];
  let until = begin;
  for (const one of job.attempts) {
    if (one.started_at_s === null) continue;
    const to = one.ended_at_s ?? now;
    if (one.started_at_s > until) spans.push(span(until, one.started_at_s, "waits", "waits", `waits for ${clock(one.started_at_s - until)}`));
    const where = one.placement.join(", ");
    spans.push(span(one.started_at_s, to, one.shared ? "shared" : "runs", `${one.attempt}: ${where}`, `attempt ${one.attempt} on ${where}${one.shared ? ", shared" : ""}, ${clock(to - one.started_at_s)}`));
    until = to;
  }
  if (until < now && !OVER.includes(job.state)) spans.push(span(until, now, "waits", "waits", `waits for ${clock(now - until)}`));
  return h("div", { class: "timeline", "aria-hidden": "true" }, h("div", { class: "row" }, spans), h("div", { class: "axis" }, h("span", {}, moment(begin)), h("span", {}, job.ended_at_s === null ? "now" : moment(now))));
}

function attemptsTable(job) {
  if (!job.attempts.length) return h("p", { class: "soft" }, "It was never started.");
  const titles = ["attempt", "on", "started", "ran", "how it ended", "energy"];
  const rows = [...job.attempts].reverse().map((one) => h("tr", {}, h("td", {}, one.attempt), h("td", {}, `${one.placement.join(", ")}${one.shared ? " (shared)" : ""}`), h("td", {}, moment(one.started_at_s)),
    h("td", { class: "n" }, one.started_at_s === null ? MISSING : clock((one.ended_at_s ?? feed.nowAtS()) - one.started_at_s)),
    h("td", {}, one.is_over ? `${one.stopping || one.reason}${one.exit_code === null ? "" : `, status ${one.exit_code}`}` : one.stopping ? `is stopping: ${one.stopping}` : "runs"), h("td", { class: "n" }, energy(one.energy_j))));
  return h("div", { class: "wide" }, h("table", {}, h("caption", { class: "visually-hidden" }, "Attempts, the last one first"), h("thead", {}, h("tr", {}, titles.map((title) => h("th", { scope: "col", class: title === "ran" || title === "energy" ? "n" : null }, title)))), h("tbody", {}, rows)));
}

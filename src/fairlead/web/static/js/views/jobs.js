// All jobs that this user may see, as a table: what state, where or why not, since when, until when.

import { get } from "../api.js";
import { field, h, options, setAttribute, setText } from "../dom.js";
import { feed } from "../feed.js";
import { clock, count, energy, hours, MISSING, money, moment } from "../format.js";
import { deadlineBadge, expectedText, jobLink, OVER, progressText, stateBadge, STATE_NAMES, whereOrWhy } from "../parts/jobs.js";
import { VirtualTable } from "../parts/table.js";
import { isOperator, session } from "../session.js";

const SETS = [["waiting,held,backing-off", "In the queue"], ["running", "Running"], ["waiting,held,backing-off,running", "Active"], [OVER.join(), "Over"], ["", "All"]];
const kept = { state: SETS[2][0], user: "", text: "", sort: "id", descending: true };

export function view() {
  const asked = kept;
  const total = h("span", { class: "soft small", role: "status" });
  const table = new VirtualTable({
    label: "Jobs", columns: columns(), sorted, empty: () => (asked.text || asked.user ? "No job is like that." : asked.state ? "No jobs here." : "No jobs yet: submit one."),
    async ask(offset, limit) {
      const found = await get("/v1/job-table", { ...asked, offset, limit });
      setText(total, `${count(found.total)} jobs${found.predicted_at_s ? `, expected times as of ${moment(found.predicted_at_s)}` : ""}`);
      return found;
    },
  });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Which jobs" }, SETS.map(([state, title]) => h("button", { type: "button", "data-state": state, onclick: () => change({ state }) }, title)));
  const text = h("input", { type: "search", value: asked.text, placeholder: "name or number", oninput: () => { clearTimeout(timer); timer = setTimeout(() => change({ text: text.value }), 300); } });
  const states = options(h("select", { onchange: () => change({ state: states.value }) }), [["", "any"], ...STATE_NAMES.map((name) => [name, name])], "");
  const user = h("input", { type: "text", value: asked.user, list: "users", placeholder: "anybody", oninput: () => { clearTimeout(timer); timer = setTimeout(() => change({ user: user.value.trim() }), 300); } });
  const users = h("datalist", { id: "users" });
  let timer = null;

  function change(wanted) {
    Object.assign(asked, wanted);
    show();
    table.reset();
  }

  function sorted(sort) {
    change({ sort, descending: asked.sort === sort ? !asked.descending : !["name", "user", "start", "state"].includes(sort) });
  }

  function show() {
    for (const chip of chips.children) setAttribute(chip, "aria-pressed", chip.dataset.state === asked.state);
    states.value = STATE_NAMES.includes(asked.state) ? asked.state : "";
    table.showSort(asked.sort, asked.descending);
  }

  if (isOperator()) get("/v1/usage").then((found) => options(users, found.users.map((one) => one.user))).catch(() => {});
  show();
  table.reset();
  let ticks = 0;
  return {
    title: "Jobs",
    nodes: [
      h("div", { class: "head" }, h("h1", {}, isOperator() ? "Jobs" : `Jobs of ${session.user}`), total),
      h("div", { class: "bar" }, chips, field("State", states), field("Name", text), isOperator() ? field("User", user) : null, users),
      table.element,
    ],
    update({ hasNewJobs }) { if (hasNewJobs) table.refresh(); },
    // What running jobs use changes with every reading, without a row being written.
    tick() { ticks += 1; if (ticks % 10 === 0 && !document.hidden && asked.state !== OVER.join()) table.refresh(); },
    close() { clearTimeout(timer); table.close(); },
  };
}

function columns() {
  const now = () => feed.nowAtS();
  return [
    { title: "job", sort: "id", width: "17%", cell: (job) => jobLink(job.id, job.name) },
    { title: "user", sort: "user", width: "8%", class: "p2", cell: (job) => job.user },
    { title: "state", sort: "state", width: "13%", cell: (job) => stateBadge(job) },
    { title: "GPUs", sort: "gpus", width: "6%", class: "n", cell: (job) => gpusText(job) },
    { title: "where, or why not", width: "21%", class: "p2", cell: (job) => [deadlineBadge(job), deadlineBadge(job) ? " " : "", h("span", { title: whereOrWhy(job) }, whereOrWhy(job))] },
    { title: "expected", sort: "start", width: "12%", class: "p2", cell: (job) => expectedText(job, now()) },
    { title: "epochs", width: "11%", class: "p3", cell: (job) => progress(job) },
    { title: "for", width: "7%", class: "n p3", cell: (job) => forText(job, now()) },
    { title: "GPU time", width: "7%", class: "n p3", cell: (job) => (job.gpu_s ? hours(job.gpu_s) : MISSING) },
    { title: "energy", sort: "energy", width: "8%", class: "n p3", cell: (job) => energy(job.energy_j) },
    { title: "cost", width: "6%", class: "n p3", cell: (job) => (job.gpu_s ? money(job.cost_usd) : MISSING) },
  ];
}

function gpusText(job) {
  if (job.placement.length && job.placement.length !== job.gpus) return `${job.placement.length} of ${job.gpus}`;
  return job.min_gpus === job.max_gpus ? String(job.gpus) : `${job.min_gpus}–${job.max_gpus}`;
}

function forText(job, nowAtS) {
  if (job.ended_at_s !== null) return job.started_at_s === null ? "–" : clock(job.ended_at_s - job.started_at_s);
  return clock(nowAtS - (job.state === "running" && job.started_at_s !== null ? job.started_at_s : job.submitted_at_s));
}

export function progress(job) {
  const text = progressText(job);
  if (!text || job.epochs === null) return text;
  const bar = h("i");
  bar.style.width = `${Math.min(100, (100 * job.epochs_done) / Math.max(job.epochs, 1))}%`;
  return h("span", { class: "progress" }, h("span", { class: "track", "aria-hidden": "true" }, bar), `${job.epochs_done}/${job.epochs}`);
}

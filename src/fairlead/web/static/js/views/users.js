// Who uses what.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { count, energy, hours, money } from "../format.js";
import { isOperator } from "../session.js";

const AGAIN_MS = 10000;

export function view() {
  const body = h("div", { class: "wide panel" }, "…");
  let timer = null;
  let isClosed = false;
  async function look() {
    try {
      const found = await get("/v1/usage");
      if (!isClosed) fill(body, tableOf(found.users));
    } catch (error) {
      if (!isClosed) fill(body, h("p", { class: "problem" }, error.message));
    }
    if (!isClosed) timer = setTimeout(look, AGAIN_MS);
  }
  look();
  return {
    title: "Users",
    nodes: [
      h("div", { class: "head" }, h("h1", {}, isOperator() ? "Users" : "What you use")),
      h("p", { class: "soft" }, "GPU time is time that jobs held GPUs; a shared GPU counts for each job on it. Cost is GPU time at list price. Energy is each job's part of the meters. Quotas are not there yet."),
      body,
    ],
    close() { isClosed = true; clearTimeout(timer); },
  };
}

function tableOf(users) {
  if (!users.length) return h("div", { class: "empty" }, h("strong", {}, "Nobody has submitted a job yet."));
  const most = Math.max(...users.map((one) => one.gpu_s), 1);
  const jobs = (one, ...states) => count(states.reduce((sum, state) => sum + (one.jobs[state] ?? 0), 0));
  const titles = [["user"], ["GPUs now", "n"], ["running", "n"], ["waiting", "n"], ["finished", "n"], ["parked", "n"], ["late", "n"], ["GPU time", "n"], [""], ["energy", "n"], ["cost", "n"]];
  const rows = users.map((one) => {
    const bar = h("i");
    bar.style.width = `${(100 * one.gpu_s) / most}%`;
    return h("tr", {}, h("th", { scope: "row" }, one.user), h("td", { class: "n" }, count(one.gpus)), h("td", { class: "n" }, jobs(one, "running")), h("td", { class: "n" }, jobs(one, "waiting", "held", "backing-off")),
      h("td", { class: "n" }, jobs(one, "finished")), h("td", { class: "n" }, jobs(one, "parked")), h("td", { class: "n" }, one.late_jobs ? h("span", { class: "badge bad" }, count(one.late_jobs)) : "0"),
      h("td", { class: "n" }, hours(one.gpu_s)), h("td", { class: "share", "aria-hidden": "true" }, h("div", { class: "track" }, bar)), h("td", { class: "n" }, energy(one.energy_j)), h("td", { class: "n" }, money(one.cost_usd)));
  });
  return h("table", {}, h("thead", {}, h("tr", {}, titles.map(([title, kind]) => (title ? h("th", { scope: "col", class: kind ?? null }, title) : h("td"))))), h("tbody", {}, rows));
}

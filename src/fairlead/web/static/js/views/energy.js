// What the cluster drew, did and cost, over time.

import { get } from "../api.js";
import { fill, h, setAttribute } from "../dom.js";
import { digits, duration, energy, hours, money, percent, power } from "../format.js";
import { Chart } from "../parts/chart.js";

const RANGES = [[3600, "1 h"], [6 * 3600, "6 h"], [86400, "1 day"], [3 * 86400, "3 days"], [30 * 86400, "30 days"], [365 * 86400, "1 year"]];
const AGAIN_MS = 60000;
let chosenS = 6 * 3600;

export function view() {
  const cards = h("div", { class: "cards" });
  const note = h("p", { class: "soft small" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "How far back" }, RANGES.map(([lastS, title]) => h("button", { type: "button", onclick: () => { chosenS = lastS; look(); } }, title)));
  const plots = {
    power: new Chart(h("div"), { label: "Power over time", scale: "power", series: [{ label: "power", hue: 0, isStep: true }] }),
    gpus: new Chart(h("div"), { label: "GPUs over time: busy, paid for, and the budget", series: [{ label: "GPUs busy", hue: 0, isStep: true }, { label: "paid for", hue: 1, isStep: true }, { label: "budget", hue: 2, isStep: true }] }),
    spend: new Chart(h("div"), { label: "Cost added up over time, in dollars", unit: "$", series: [{ label: "spent", hue: 1 }, { label: "budget", hue: 2 }] }),
    jobs: new Chart(h("div"), { label: "Jobs running and waiting over time", series: [{ label: "jobs running", hue: 2, isStep: true }, { label: "waiting", hue: 1, isStep: true }] }),
  };
  const titles = { power: "Power", gpus: "GPUs", spend: "Spend, added up", jobs: "Jobs" };
  let timer = null;
  let isClosed = false;
  async function look() {
    clearTimeout(timer);
    [...chips.children].forEach((chip, number) => setAttribute(chip, "aria-pressed", RANGES[number][0] === chosenS));
    try {
      const found = await get("/v1/history", { last_s: chosenS, steps: 400 });
      if (!isClosed) show(found, cards, note, plots);
    } catch (error) {
      if (!isClosed) fill(note, error.message);
    }
    if (!isClosed) timer = setTimeout(look, AGAIN_MS);
  }
  look();
  return {
    title: "Energy and cost",
    nodes: [
      h("div", { class: "head" }, h("h1", {}, "Energy and cost"), h("div", { class: "actions" }, chips)), cards,
      h("div", { class: "plots", hidden: true }, Object.entries(plots).map(([name, plot]) => h("section", { class: "panel" }, h("h2", {}, titles[name]), plot.element))), note,
    ],
    close() { isClosed = true; clearTimeout(timer); for (const plot of Object.values(plots)) plot.close(); },
  };
}

const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);

function show({ rows, step_s: stepS, budget_gpus: budget, has_prices: hasPrices }, cards, note, plots) {
  const covered = sum(rows, "covered_s");
  const card = (title, value, said) => h("div", { class: "card" }, h("div", { class: "title" }, title), h("div", { class: "value" }, value), h("div", { class: "note" }, said));
  const joules = sum(rows, "energy_j");
  fill(cards, card("Energy", energy(joules), "GPUs, as metered"), card("Mean power", covered ? power(joules / covered) : "–", "of all GPUs"),
    card("GPUs busy", covered ? percent(sum(rows, "busy_gpu_s") / Math.max(sum(rows, "gpu_s"), 1e-9)) : "–", "of all GPU time"),
    card("Paid for", hours(sum(rows, "paid_gpu_s")), budget === null ? "GPU-hours" : `mean ${digits(covered ? sum(rows, "paid_gpu_s") / covered : 0)}, budget ${digits(budget)} GPUs`),
    card("Cost", hasPrices ? money(sum(rows, "cost_usd")) : "–", hasPrices ? "paid GPUs at list price" : "no price known"));
  plots.power.element.closest(".plots").hidden = rows.length === 0;
  fill(note, rows.length ? `Steps of ${duration(stepS)}. Known for ${duration(covered)}; what was not watched is left out.` : "Nothing is known yet: a row is written every minute.");
  const line = withGaps(rows, stepS);
  const mean = (name) => line.map((row) => (row === null || !row.covered_s ? null : row[name] / row.covered_s));
  const times = line.map((row, number) => (row === null ? line[number - 1].start_s + stepS : row.start_s));
  const price = sum(rows, "paid_gpu_s") ? sum(rows, "cost_usd") / sum(rows, "paid_gpu_s") : 0;
  let spent = 0;
  let allowed = 0;
  const spend = line.map((row) => { spent += row?.cost_usd ?? 0; allowed += (row?.covered_s ?? 0) * (budget ?? 0) * price; return [spent, budget === null ? null : allowed]; });
  plots.power.set([times, mean("energy_j")]);
  plots.gpus.set([times, mean("busy_gpu_s"), mean("paid_gpu_s"), line.map((row) => (row === null ? null : budget))]);
  plots.spend.set([times, spend.map(([one]) => one), spend.map(([, two]) => two)]);
  plots.jobs.set([times, mean("running_job_s"), mean("waiting_job_s")]);
}

/** A null where rows are missing, so that a line has a hole there and no slope. */
function withGaps(rows, stepS) {
  return rows.flatMap((row, number) => (number && row.start_s - rows[number - 1].start_s > 1.5 * stepS ? [null, row] : [row]));
}

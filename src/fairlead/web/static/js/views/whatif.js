// What if: another policy, other nodes, a job more. The simulator runs on from this very moment, twice, and we compare.

import { post } from "../api.js";
import { field, fill, h, options, setText } from "../dom.js";
import { count, digits, duration, energy, hours, MISSING, money } from "../format.js";
import { choicesOf, jobLink } from "../parts/jobs.js";

const DURATIONS = [60, 300, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];
const FIGURES = {
  mean_jct_s: ["mean completion time", duration, -1], makespan_s: ["until the last job ends", duration, -1], horizon_s: ["counted for", duration, 0],
  gpu_hours: ["GPU-hours", (value) => hours(3600 * value), 0], energy_j: ["energy", energy, -1], cost_usd: ["cost", money, -1],
  missed_deadlines: ["deadlines missed", count, -1], never_start: ["jobs that never start", count, -1], never_end: ["jobs that never end", count, -1],
};

export function view() {
  const policy = h("select");
  const spec = h("input", { type: "text", placeholder: "or stages: ordering=las,sharing=eaco", spellcheck: "false" });
  const nodes = slider(-8, 8, 0);
  const adds = h("input", { type: "checkbox" });
  const gpus = slider(1, 16, 4);
  const length = slider(0, DURATIONS.length - 1, 4, (value) => duration(DURATIONS[value]));
  const profile = h("select");
  const answer = h("section", { class: "panel", "aria-live": "polite", "aria-label": "Answer" }, h("p", { class: "soft" }, "Change something and ask."));
  const button = h("button", { class: "primary", type: "submit" }, "Ask the simulator");
  const jobFields = h("fieldset", { class: "plain stack", disabled: true }, h("legend", { class: "visually-hidden" }, "The job"), gpus.field("Its GPUs"), length.field("Takes, alone"), field("Profile", profile));
  adds.addEventListener("change", () => { jobFields.disabled = !adds.checked; });
  let asked = 0;

  async function submitted(event) {
    event.preventDefault();
    const mine = ++asked;
    const job = { gpus: gpus.value(), duration_s: DURATIONS[length.value()], profile: profile.value || "generic", name: "what-if" };
    button.disabled = true;
    fill(answer, h("p", { class: "soft", role: "status" }, "Simulating…"));
    try {
      const found = await post("/v1/whatif", { policy: spec.value.trim() || policy.value, nodes: nodes.value(), jobs: adds.checked ? [job] : [] });
      if (mine === asked) fill(answer, answerOf(found));
    } catch (error) {
      if (mine === asked) fill(answer, h("p", { class: "problem" }, error.words ?? error.message));
    } finally {
      button.disabled = false;
    }
  }

  choicesOf().then((found) => {
    options(policy, [["", `as it is (${found.policy.length > 40 ? `${found.policy.slice(0, 40)}…` : found.policy})`], ...found.policies.map((name) => [name, name])], "");
    options(profile, ["generic", ...found.profiles.filter((name) => name !== "generic")], "generic");
    nodes.range(-(found.nodes - 1), Math.max(8, found.nodes));
  }).catch((error) => fill(answer, h("p", { class: "problem" }, error.message)));
  return {
    title: "What if",
    nodes: [
      h("div", { class: "head" }, h("h1", {}, "What if")),
      h("p", { class: "soft" }, "The simulator runs on from the present state, as it is and as you say, and compares the two. Jobs that are not submitted yet are not foreseen; where nobody said how long a job takes, it is a guess."),
      h("div", { class: "side" }, answer,
        h("form", { class: "panel stack", onsubmit: submitted }, h("h2", {}, "What is different"), field("Policy", policy), field("Policy by its stages", spec), nodes.field("Nodes more or fewer"),
          h("label", {}, adds, " a job more, submitted now"), jobFields, button)),
    ],
    close() { asked += 1; },
  };
}

/** A range with its value beside it. */
function slider(min, max, value, words = (number) => String(number)) {
  const input = h("input", { type: "range", min, max, step: "1", value });
  const shown = h("output", {}, words(value));
  const tell = () => { setText(shown, words(Number(input.value))); input.setAttribute("aria-valuetext", words(Number(input.value))); };
  input.addEventListener("input", tell);
  return {
    value: () => Number(input.value),
    range(least, most) { input.min = String(least); input.max = String(most); tell(); },
    field(label) {
      const made = field(label, input);
      made.querySelector("label").append(": ", shown);
      tell();
      return made;
    },
  };
}

function answerOf(found) {
  const rows = Object.entries(FIGURES).map(([key, [title, words, better]]) => {
    const { as_is: before, what_if: after } = found.summary[key];
    const same = before === after || before === null || after === null;
    const isBetter = !same && better !== 0 && (after - before) * better > 0;
    const change = same ? "" : `${after > before ? "+" : "−"}${words(Math.abs(after - before))}`;
    const verdict = same || better === 0 ? "" : isBetter ? "better" : "worse";
    return h("tr", {}, h("th", { scope: "row" }, title), h("td", { class: "n" }, text(before, words)), h("td", { class: "n" }, text(after, words)),
      h("td", { class: "n" }, change), h("td", {}, verdict && h("span", { class: `badge ${isBetter ? "good" : "bad"}` }, verdict)));
  });
  const moved = found.jobs.filter((job) => job.start_change_s || job.end_change_s || job.start_change_s === null)
    .sort((one, other) => Math.abs(other.end_change_s ?? 0) - Math.abs(one.end_change_s ?? 0));
  return h("div", { class: "stack" },
    h("h2", {}, found.changed.length ? `With ${found.changed.join(", ")}` : "As it is"),
    h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "as it is", "what if", "change", ""].map((title, at) => (title ? h("th", { scope: "col", class: at && at < 4 ? "n" : null }, title) : h("td"))))), h("tbody", {}, rows))),
    moved.length ? movedTable(moved, found) : h("p", { class: "soft" }, "No job starts or ends at another time."),
    notes(found));
}

const text = (value, words) => (value === null ? MISSING : words(value));

function movedTable(moved, found) {
  const sides = [new Map(found.as_is.jobs.map((job) => [job.id, job])), new Map(found.what_if.jobs.map((job) => [job.id, job]))];
  const said = (seconds) => (seconds === null ? MISSING : Math.abs(seconds) < 0.5 ? "same" : `${digits(Math.abs(seconds) < 120 ? Math.abs(seconds) : 0) && duration(Math.abs(seconds))} ${seconds > 0 ? "later" : "sooner"}`);
  const rows = moved.slice(0, 200).map((job) => {
    const [before, after] = sides.map((side) => side.get(job.id));
    const name = before ? jobLink(job.id, job.name) : `${job.name} (the new one)`;
    const wait = after?.start_s === null || !after ? "never" : after.state === "running" ? "runs" : `in ${duration(after.wait_s)}`;
    return h("tr", {}, h("td", {}, name), h("td", {}, wait), h("td", {}, said(job.start_change_s)), h("td", {}, said(job.end_change_s)));
  });
  return [
    h("h3", {}, `Jobs that move: ${count(moved.length)}`),
    h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["job", "starts", "start", "end"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", {}, rows))),
    moved.length > 200 ? h("p", { class: "small soft" }, `and ${count(moved.length - 200)} more`) : null,
  ];
}

function notes(found) {
  const all = [...new Set([...found.as_is.notes, ...found.what_if.notes])];
  return all.length ? h("ul", { class: "small soft" }, all.map((note) => h("li", {}, note))) : null;
}

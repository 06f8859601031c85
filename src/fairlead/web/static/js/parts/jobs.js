// How a job is told in a few words, wherever it stands.

import { get, post } from "../api.js";
import { confirmed, h, toast } from "../dom.js";
import { fromNow, moment, MISSING } from "../format.js";

const STATES = {
  waiting: ["calm", "◷", "waiting"], held: ["warn", "⏸", "held"], "backing-off": ["warn", "↻", "backing off"], running: ["good", "▶", "running"],
  finished: ["", "✓", "finished"], parked: ["bad", "✕", "parked"], cancelled: ["", "⊘", "cancelled"],
};
export const STATE_NAMES = Object.keys(STATES);
export const OVER = ["finished", "parked", "cancelled"];

/** A word with a sign, so that colour is never all there is. */
export function stateBadge(job) {
  const [kind, sign, word] = STATES[job.state] ?? ["", "?", job.state];
  const phase = job.phase ? `, ${job.phase}` : "";
  return h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, sign), `${word}${phase}`);
}

export function deadlineBadge(job) {
  if (job.deadline_state === "missed") return h("span", { class: "badge bad" }, "deadline missed");
  if (job.deadline_state === "at-risk") return h("span", { class: "badge warn" }, "deadline at risk");
  return null;
}

export function jobLink(id, name) {
  return h("a", { href: `#/jobs/${id}` }, name ? `${id} ${name}` : `job ${id}`);
}

/** Seven hues by the number: neighbours seldom have the same, and the number stands beside it anyway. */
export function hue(jobId) {
  return `var(--hue-${jobId % 7})`;
}

export function swatch(jobId) {
  const made = h("span", { class: "swatch", "aria-hidden": "true" });
  made.style.setProperty("--hue", hue(jobId));
  return made;
}

/** Where it runs, or why it does not. */
export function whereOrWhy(job) {
  if (job.placement.length) {
    const shared = job.shared ? ", shared" : "";
    return `on ${job.placement.join(", ")}${shared}`;
  }
  if (job.state === "waiting") return job.why ?? "its turn has not come";
  if (job.state === "running") return "being placed";
  return job.reason || MISSING;
}

export function expectedText(job, nowAtS) {
  const guess = job.is_guess ? " (a guess)" : "";
  if (OVER.includes(job.state)) return job.ended_at_s === null ? MISSING : `ended ${moment(job.ended_at_s)}`;
  if (job.state === "running") {
    return job.expected_end_at_s === null ? MISSING : `ends ${fromNow(job.expected_end_at_s - nowAtS)}${guess}`;
  }
  if (job.expected_start_at_s === null) return MISSING;
  return `starts ${fromNow(Math.max(job.expected_start_at_s - nowAtS, 0))}`;
}

export function progressText(job) {
  if (job.epochs_done === null) return "";
  return job.epochs === null ? `epoch ${job.epochs_done}` : `${job.epochs_done} of ${job.epochs} epochs`;
}

/** What can be done about it, as buttons; `done` is called when something was. */
export function jobActions(job, done) {
  const act = (verb, words) => async () => {
    if (verb === "cancel" && !(await confirmed(`Cancel job ${job.id}, ${job.name}? It cannot be taken back.`, "Cancel it"))) return;
    try {
      await post(`/v1/jobs/${job.id}/${verb}`);
      toast(`Job ${job.id} ${words}.`);
      done?.();
    } catch (error) {
      toast(error.words ?? error.message);
    }
  };
  const isOver = OVER.includes(job.state);
  const canRelease = ["held", "backing-off", "parked"].includes(job.state);
  return [
    canRelease && h("button", { type: "button", onclick: act("release", "is released") }, "Release"),
    !isOver && job.state !== "held" && h("button", { type: "button", onclick: act("hold", "is being held") }, "Hold"),
    !isOver && h("button", { type: "button", class: "danger", onclick: act("cancel", "is being cancelled") }, "Cancel"),
  ];
}

let choices = null;

/** Policies and profiles by name, asked for once. */
export function choicesOf() {
  choices ??= get("/v1/choices").catch((error) => { choices = null; throw error; });
  return choices;
}

// A job from a form. What is left empty is left to the controller.

import { post } from "../api.js";
import { field, fill, h, options, toast } from "../dom.js";
import { choicesOf } from "./jobs.js";

const UNITS = { s: 1, m: 60, min: 60, h: 3600, d: 86400 };

/** `90s`, `1h30m`, `2d` or plain seconds. */
export function seconds(text) {
  const trimmed = text.trim().toLowerCase();
  if (!trimmed) return null;
  if (/^\d+(\.\d+)?$/.test(trimmed)) return Number(trimmed);
  if (!/^(\d+(\.\d+)?\s*(min|[smhd])\s*)+$/.test(trimmed)) throw new Error(`"${text}" is no duration; like 90s, 1h30m or 2d`);
  return [...trimmed.matchAll(/(\d+(?:\.\d+)?)\s*(min|[smhd])/g)].reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0);
}

/** Words as a shell would split them: quotes and backslashes, nothing else. */
export function words(text) {
  const found = [];
  let word = null;
  let quote = "";
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at];
    if (quote === "'" ? letter === "'" : quote === '"' && letter === '"') quote = "";
    else if (letter === "\\" && quote !== "'") word = (word ?? "") + (text[++at] ?? "");
    else if (quote) word += letter;
    else if (letter === "'" || letter === '"') { quote = letter; word ??= ""; }
    else if (/\s/.test(letter)) { if (word !== null) found.push(word); word = null; }
    else word = (word ?? "") + letter;
  }
  if (quote) throw new Error("the command has a quote that is not closed");
  if (word !== null) found.push(word);
  return found;
}

function environment(text) {
  const pairs = text.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`"${line}" is not NAME=value`);
    return [line.slice(0, at), line.slice(at + 1)];
  });
  return Object.fromEntries(pairs);
}

function remembered(name, fallback) {
  try {
    return localStorage.getItem(`fairlead.submit.${name}`) ?? fallback;
  } catch {
    return fallback;
  }
}

function makeFields() {
  const number = (min, value) => h("input", { type: "number", min, step: "1", value });
  const text = (placeholder, value = "") => h("input", { type: "text", placeholder, value, spellcheck: "false" });
  return {
    command: h("textarea", { rows: "2", required: true, spellcheck: "false", placeholder: "python train.py --epochs 3" }),
    isShell: h("input", { type: "checkbox" }),
    name: text("from the command"),
    cwd: text("/home/you/project", remembered("cwd", "/")),
    gpus: number(1, "1"), minGpus: number(1, ""), maxGpus: number(1, ""), memory: number(0, ""),
    profile: h("select"), estimate: text("2h"), deadline: text("6h"),
    priority: options(h("select"), [["-1", "low"], ["0", "normal"], ["1", "high"]], "0"),
    kind: options(h("select"), [["training", "training"], ["service", "service"]], "training"),
    slo: text("50"), env: h("textarea", { rows: "2", spellcheck: "false", placeholder: "OMP_NUM_THREADS=1" }),
    hold: h("input", { type: "checkbox" }),
  };
}

function requestOf(f) {
  const command = f.isShell.checked ? ["sh", "-c", f.command.value] : words(f.command.value);
  if (!command.length) throw new Error("the command is empty");
  const whole = (control) => (control.value === "" ? null : Number(control.value));
  const wanted = {
    command, name: f.name.value.trim(), cwd: f.cwd.value.trim() || "/", gpus: whole(f.gpus) ?? 1, min_gpus: whole(f.minGpus),
    max_gpus: whole(f.maxGpus), memory_mib: f.memory.value === "" ? null : 1024 * Number(f.memory.value), profile: f.profile.value || "generic",
    estimate_s: seconds(f.estimate.value), deadline_s: seconds(f.deadline.value), priority: Number(f.priority.value), kind: f.kind.value,
    slo_s: f.kind.value === "service" && f.slo.value ? Number(f.slo.value) / 1000 : null, env: environment(f.env.value), hold: f.hold.checked,
  };
  return Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== null));
}

export function openSubmit() {
  const f = makeFields();
  // The same key however often the button is pressed: a submission whose answer was lost is still one job.
  const key = crypto.randomUUID?.() ?? String(Math.random()).slice(2) + Date.now();
  const problem = h("p", { class: "problem", role: "alert" });
  const button = h("button", { class: "primary", type: "submit" }, "Submit");
  async function submitted(event) {
    event.preventDefault();
    fill(problem);
    button.disabled = true;
    try {
      const made = await post("/v1/jobs", requestOf(f), { "Idempotency-Key": key });
      try { localStorage.setItem("fairlead.submit.cwd", f.cwd.value.trim()); } catch { /* then not */ }
      dialog.close();
      toast(`Job ${made.id} is submitted.`);
      location.hash = `#/jobs/${made.id}`;
    } catch (error) {
      fill(problem, error.words ?? error.message);
    } finally {
      button.disabled = false;
    }
  }
  const check = (control, text) => h("label", {}, control, " ", text);
  const slo = field("Latency to keep", f.slo, "ms");
  slo.hidden = true;
  f.kind.addEventListener("change", () => { slo.hidden = f.kind.value !== "service"; });
  const dialog = h("dialog", { "aria-labelledby": "submit-title" },
    h("form", { onsubmit: submitted, novalidate: true },
      h("h2", { id: "submit-title" }, "Submit a job"),
      field("Command", f.command, "words, as you would type them"),
      check(f.isShell, "run it with a shell (pipes, &&, variables)"),
      h("div", { class: "fields" },
        field("GPUs", f.gpus), field("Name", f.name), field("Folder", f.cwd, "on the cluster"), field("Profile", f.profile),
        field("Takes about", f.estimate, "alone"), field("Deadline", f.deadline, "from now"), field("Priority", f.priority)),
      h("details", {}, h("summary", {}, "More"),
        h("div", { class: "stack" },
          h("div", { class: "fields" }, field("At least", f.minGpus, "GPUs"), field("At most", f.maxGpus, "GPUs"),
            field("Memory", f.memory, "GiB on each GPU"), field("Kind", f.kind), slo),
          field("Environment", f.env, "a line each"), check(f.hold, "hold it until it is released"))),
      problem,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close"), button)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  choicesOf().then((found) => options(f.profile, ["generic", ...found.profiles.filter((name) => name !== "generic")], "generic")).catch(() => {});
  dialog.showModal();
  f.command.focus();
}

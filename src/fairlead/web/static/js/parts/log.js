// What a job wrote, as it writes it: the end first, more of the beginning on demand, and nothing of it is obeyed.

import { logPiece } from "../api.js";
import { field, fill, h, options, setText } from "../dom.js";

const TAIL = 65536;
const PIECE = 262144;
const MOST_CHARS = 2_000_000;
const QUICK_MS = 1000;
const SLOW_MS = 8000;
// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/** Colours and cursor movements are left out; what is left of a line that was written over is its last version. */
export function readable(text) {
  return text.replace(ESCAPES, "").replace(/\r\n/g, "\n").replace(/[^\n]*\r(?!\n|$)/g, "").replace(UNSEEN, "�");
}

export class LogView {
  constructor(jobId) {
    this.jobId = jobId;
    this.attempt = "";
    this.stream = options(h("select", { onchange: () => this.restart() }), [["stdout", "output (stdout)"], ["stderr", "errors (stderr)"]]);
    this.attempts = options(h("select", { onchange: () => { this.attempt = this.attempts.value; this.restart(); } }), [["", "the last"]]);
    this.follows = h("input", { type: "checkbox", checked: true });
    this.follows.checked = true;
    this.pre = h("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "What the job wrote" });
    this.note = h("span", { class: "small soft", role: "status" });
    this.earlier = h("button", { type: "button", hidden: true, onclick: () => this.loadWhole() }, "From the beginning");
    this.element = h("section", { class: "panel stack", "aria-label": "Log" },
      h("div", { class: "head" }, h("h2", {}, "Log"), this.note,
        h("div", { class: "actions bar" }, this.earlier, h("label", { class: "small" }, this.follows, " follow"), field("Attempt", this.attempts), field("Stream", this.stream))),
      this.pre);
  }

  start() {
    this.restart();
  }

  restart(offset = -TAIL) {
    this.abort?.abort();
    this.abort = new AbortController();
    clearTimeout(this.timer);
    this.text = "";
    this.decoder = new TextDecoder();
    this.isEmpty = true;
    fill(this.pre);
    this.earlier.hidden = true;
    this.pauseMs = QUICK_MS;
    this.read(offset, this.abort.signal);
  }

  loadWhole() {
    this.follows.checked = false;
    this.restart(0);
  }

  async read(offset, signal) {
    try {
      const piece = await logPiece(this.jobId, { stream: this.stream.value, attempt: this.attempt, offset, limit: offset < 0 ? TAIL : PIECE }, signal);
      if (offset < 0 && piece.next - piece.bytes.length > 0) this.earlier.hidden = false;
      this.add(piece.bytes);
      this.pauseMs = piece.bytes.length ? QUICK_MS : Math.min(1.5 * this.pauseMs, SLOW_MS);
      setText(this.note, piece.isOver && !piece.bytes.length ? "that is all" : piece.attempt ? `attempt ${piece.attempt}` : "it has not started yet");
      const isWhole = piece.isOver && (this.attempt || this.isJobOver);
      if (isWhole && !piece.bytes.length) return;
      const nextAttempt = piece.isOver && !piece.bytes.length && !this.attempt;
      this.timer = setTimeout(() => this.again(nextAttempt ? piece : null, piece.next, signal), piece.bytes.length >= PIECE ? 0 : this.pauseMs);
    } catch (error) {
      if (signal.aborted) return;
      setText(this.note, error.message);
      this.timer = setTimeout(() => this.read(offset, signal), SLOW_MS);
    }
  }

  /** The last attempt may be another one by now: then its log begins below. */
  async again(ended, offset, signal) {
    if (ended && this.lastAttempt > ended.attempt) {
      this.add(new TextEncoder().encode(`\n--- attempt ${this.lastAttempt} ---\n`));
      return this.read(0, signal);
    }
    return document.hidden ? (this.timer = setTimeout(() => this.again(ended, offset, signal), QUICK_MS)) : this.read(offset, signal);
  }

  add(bytes) {
    if (!bytes.length) {
      if (this.isEmpty) fill(this.pre, h("span", { class: "soft" }, "Nothing was written yet."));
      return;
    }
    this.text += this.decoder.decode(bytes, { stream: true });
    if (this.text.length > MOST_CHARS) this.text = this.text.slice(-MOST_CHARS);
    const atEnd = this.follows.checked;
    this.pre.textContent = readable(this.text);
    this.isEmpty = false;
    if (atEnd) this.pre.scrollTop = this.pre.scrollHeight;
  }

  /** How many attempts there are, and whether another may come. */
  know(job) {
    this.isJobOver = ["finished", "parked", "cancelled"].includes(job.state) && !job.phase;
    if (this.lastAttempt === job.attempt) return;
    this.lastAttempt = job.attempt;
    const numbers = Array.from({ length: job.attempt }, (_, number) => [String(number + 1), String(number + 1)]);
    options(this.attempts, [["", "the last"], ...numbers.reverse()], this.attempt);
  }

  close() {
    this.abort?.abort();
    clearTimeout(this.timer);
  }
}

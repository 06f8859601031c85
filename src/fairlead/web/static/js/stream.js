// Server-sent events over fetch, which can send the session's key: connect, listen, and come back after every cut with
// the version that we have. A stream ends by itself every minute or two; that is no cut.

import { HEADER } from "./session.js";

const SILENT_MS = 45000; // three pings have not come: the connection is dead, whatever the browser thinks
const LONGEST_MS = 30000;

export class Stream {
  /** `position` gives epoch, version and lastEvent; `on` has update(data), status(word) and ended(). */
  constructor(key, position, on) {
    this.key = key;
    this.position = position;
    this.on = on;
    this.tries = 0;
    this.abort = null;
    this.isOn = false;
  }

  start() {
    if (this.isOn) return;
    this.isOn = true;
    this.run();
  }

  stop() {
    this.isOn = false;
    this.abort?.abort();
    clearTimeout(this.timer);
    this.wake?.();
  }

  /** Try at once, whatever the pause would have been: the page was woken up, or the network is back. */
  retry() {
    this.tries = 0;
    if (this.wake) this.wake();
    else if (performance.now() - this.heardMs > SILENT_MS) this.abort?.abort();
  }

  async run() {
    while (this.isOn) {
      let ok = false;
      try {
        ok = await this.listen();
      } catch {
        ok = false;
      }
      if (!this.isOn) return;
      if (ok) this.tries = 0;
      else this.on.status("lost");
      const pauseMs = ok ? 200 : Math.min(LONGEST_MS, 500 * 2 ** this.tries++) * (0.7 + 0.6 * Math.random());
      await new Promise((done) => {
        this.wake = done;
        this.timer = setTimeout(done, pauseMs);
      });
      this.wake = null;
    }
  }

  /** One connection, until it ends; whether it ended as it should. */
  async listen() {
    const abort = (this.abort = new AbortController());
    const { epoch, version, lastEvent } = this.position();
    const query = new URLSearchParams({ epoch, version, event: lastEvent });
    this.hear(abort);
    try {
      const answer = await fetch(`/v1/updates?${query}`, {
        headers: { [HEADER]: this.key, Accept: "text/event-stream" }, signal: abort.signal, cache: "no-store",
        credentials: "same-origin",
      });
      if (answer.status === 401) {
        this.end();
        return true;
      }
      if (!answer.ok) return false;
      await this.read(answer.body.getReader(), abort);
      return true;
    } finally {
      clearTimeout(this.watchdog);
    }
  }

  async read(reader, abort) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      this.hear(abort);
      text += decoder.decode(value, { stream: true });
      const parts = text.split("\n\n");
      text = parts.pop();
      for (const part of parts) this.take(part);
      this.on.status("live");
    }
  }

  take(part) {
    const fields = new Map(part.split("\n").filter((line) => !line.startsWith(":")).map((line) => {
      const at = line.indexOf(": ");
      return [line.slice(0, at), line.slice(at + 2)];
    }));
    if (fields.get("event") === "update") this.on.update(JSON.parse(fields.get("data")));
    if (fields.get("event") === "end") this.end();
  }

  end() {
    this.isOn = false;
    this.on.ended();
  }

  hear(abort) {
    this.heardMs = performance.now();
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => abort.abort(), SILENT_MS);
  }
}

// What the page follows: through the worker that all pages share, or by a stream of its own where there are no workers.

import { apply, emptyModel } from "./model.js";
import { key } from "./session.js";
import { Stream } from "./stream.js";

const SPEAK_MS = 30000;

class Feed extends EventTarget {
  constructor() {
    super();
    this.model = emptyModel();
    this.status = "lost";
    this.heardMs = 0;
    this.close = () => {};
  }

  /** Follow from now on; `ended` is called when the session is over. */
  open(ended) {
    this.close();
    this.model = emptyModel();
    this.setStatus("lost");
    this.close = "SharedWorker" in window ? this.openShared(ended) : this.openOwn(ended);
  }

  openShared(ended) {
    const worker = new SharedWorker(workerUrl(), { type: "module", name: "fairlead" });
    const say = (type) => worker.port.postMessage({ type, key: key(), isVisible: !document.hidden });
    worker.port.addEventListener("message", ({ data }) => {
      if (data.type === "update") this.take(data.data);
      else if (data.type === "status") this.setStatus(data.status);
      else if (data.type === "ended") ended();
    });
    worker.port.start();
    say("hello");
    const timer = setInterval(() => say("here"), SPEAK_MS);
    const turned = () => say(document.hidden ? "here" : "woken");
    const back = () => say("woken");
    const shown = (event) => { if (event.persisted) say("hello"); };
    const left = () => say("bye");
    document.addEventListener("visibilitychange", turned);
    addEventListener("online", back);
    addEventListener("pageshow", shown);
    addEventListener("pagehide", left);
    return () => {
      say("bye");
      clearInterval(timer);
      document.removeEventListener("visibilitychange", turned);
      removeEventListener("online", back);
      removeEventListener("pageshow", shown);
      removeEventListener("pagehide", left);
      worker.port.close();
    };
  }

  openOwn(ended) {
    const stream = new Stream(key(), () => this.model, {
      update: (data) => this.take(data), status: (word) => this.setStatus(word), ended,
    });
    const turned = () => {
      if (document.hidden) return stream.stop();
      stream.start();
      return stream.retry();
    };
    const back = () => stream.retry();
    document.addEventListener("visibilitychange", turned);
    addEventListener("online", back);
    if (!document.hidden) stream.start();
    return () => {
      document.removeEventListener("visibilitychange", turned);
      removeEventListener("online", back);
      stream.stop();
    };
  }

  take(update) {
    const jobs = this.model.jobs;
    const changed = apply(this.model, update);
    this.offS = this.model.nowAtS - Date.now() / 1000;
    this.heardMs = performance.now();
    this.dispatchEvent(new CustomEvent("update", { detail: { update, changed, hasNewJobs: this.model.jobs !== jobs } }));
  }

  setStatus(status) {
    if (status === this.status) return;
    this.status = status;
    this.dispatchEvent(new CustomEvent("status"));
  }

  /** Now by the controller's clock, which may not be this machine's. */
  nowAtS() {
    return Date.now() / 1000 + (this.offS ?? 0);
  }
}

/** A constant of ours, and so to be trusted; without a policy of that name no script may be started at all. */
const policy = window.trustedTypes?.createPolicy("fairlead", { createScriptURL: (text) => text });

function workerUrl() {
  const url = new URL("./worker.js", import.meta.url).href;
  return policy ? policy.createScriptURL(url) : url;
}

export const feed = new Feed();

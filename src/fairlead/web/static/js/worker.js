// One stream for all pages of this browser: six connections to a host is all that a browser has, and each page on a
// stream of its own would leave none for the seventh. While no page is visible nothing is followed at all.

import { apply, asUpdate, emptyModel } from "./model.js";
import { Stream } from "./stream.js";

const GRACE_MS = 15000;
const GONE_MS = 200000; // hidden pages may speak once a minute only
const ports = new Map();
let model = emptyModel();
let stream = null;
let status = "lost";
let resting = null;

function post(message) {
  for (const port of ports.keys()) port.postMessage(message);
}

function follow(key) {
  if (stream?.key === key) return;
  stream?.stop();
  model = emptyModel();
  const mine = (stream = new Stream(key, () => model, {
    update: (data) => { if (stream === mine) { apply(model, data); post({ type: "update", data }); } },
    status: (word) => { if (stream === mine && status !== word) { status = word; post({ type: "status", status }); } },
    ended: () => { if (stream === mine) { stream = null; post({ type: "ended" }); } },
  }));
}

function look() {
  const nowMs = Date.now();
  for (const [port, page] of ports) if (nowMs - page.heardMs > GONE_MS) ports.delete(port);
  const isWanted = [...ports.values()].some((page) => page.isVisible);
  clearTimeout(resting);
  if (isWanted) stream?.start();
  else resting = setTimeout(() => stream?.stop(), GRACE_MS);
}

self.addEventListener("connect", (event) => {
  const port = event.ports[0];
  port.addEventListener("message", ({ data }) => {
    if (data.type === "bye") ports.delete(port);
    else ports.set(port, { isVisible: data.isVisible, heardMs: Date.now() });
    if (data.type === "hello") {
      follow(data.key);
      port.postMessage({ type: "status", status });
      if (model.version >= 0) port.postMessage({ type: "update", data: asUpdate(model) });
    }
    if (data.type === "woken") stream?.retry();
    look();
  });
  port.start();
});
setInterval(look, 60000);

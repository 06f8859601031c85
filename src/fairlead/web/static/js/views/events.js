// What happened, the last first; older events on demand.

import { get } from "../api.js";
import { field, fill, h } from "../dom.js";
import { feed } from "../feed.js";
import { eventItem } from "../parts/events.js";

const PAGE = 500;

export function view() {
  const list = h("ul", { class: "events" });
  const text = h("input", { type: "search", placeholder: "word, job or node", oninput: () => show() });
  const older = h("button", { type: "button", onclick: () => loadOlder() }, "Older ones");
  let events = [];
  let isClosed = false;

  function show() {
    const wanted = text.value.trim().toLowerCase();
    const matches = (event) => !wanted || `${event.what} ${event.about} ${event.node} job ${event.job_id ?? ""}`.toLowerCase().includes(wanted);
    const found = events.filter(matches);
    fill(list, found.slice(-1000).reverse().map(eventItem));
    if (!found.length) fill(list, h("li", { class: "soft" }, wanted ? "Nothing like that." : "Nothing has happened yet."));
  }

  function add(more) {
    const known = new Map([...events, ...more].map((event) => [event.id, event]));
    events = [...known.values()].sort((one, other) => one.id - other.id);
    show();
  }

  async function loadOlder() {
    const first = events[0]?.id ?? feed.model.lastEvent + 1;
    const after = Math.max(first - 1 - PAGE, 0);
    older.disabled = true;
    try {
      const found = await get("/v1/events", { after, limit: PAGE });
      if (isClosed) return;
      add(found.events.filter((event) => event.id < first));
      older.hidden = after === 0;
    } catch (error) {
      fill(list, h("li", { class: "problem" }, error.message));
    }
    older.disabled = false;
  }

  add(feed.model.events);
  return {
    title: "Events",
    nodes: [h("div", { class: "head" }, h("h1", {}, "Events"), h("div", { class: "actions" }, field("Find", text))), h("section", { class: "panel" }, list), older],
    update({ update, isFirst }) { if (isFirst) add(feed.model.events); else if (update?.events.length) add(update.events); },
    close() { isClosed = true; },
  };
}

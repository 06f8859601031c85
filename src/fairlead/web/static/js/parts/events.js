// One event as a line.

import { h } from "../dom.js";
import { moment } from "../format.js";
import { jobLink } from "./jobs.js";

export function eventItem(event) {
  const who = event.job_id !== null ? jobLink(event.job_id, "") : event.node ? `node ${event.node}` : "cluster";
  return h("li", {}, h("time", { class: "soft numbers", datetime: new Date(1000 * event.at_s).toISOString() }, moment(event.at_s)),
    h("span", {}, who, " ", h("strong", {}, event.what)), h("span", { class: "about soft" }, event.about === event.what ? "" : event.about));
}

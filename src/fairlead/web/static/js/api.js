// Requests to the controller, with what it says when it refuses.

import { HEADER, key } from "./session.js";

export class Refused extends Error {
  constructor(status, message, hint) {
    super(message);
    this.status = status;
    this.hint = hint;
  }

  get words() {
    return this.hint ? `${this.message} (${this.hint})` : this.message;
  }
}

let ended = () => {};

/** What to do when the session is over. */
export function onEnded(listener) {
  ended = listener;
}

async function call(method, path, { query = {}, body, signal, headers = {} } = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  const sent = { [HEADER]: key(), ...headers };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  const url = asked.size ? `${path}?${asked}` : path;
  let answer;
  try {
    answer = await fetch(url, {
      method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the controller does not answer", "it may be restarting; this page tries again by itself");
  }
  if (answer.status === 401) ended();
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, said.error ?? `the controller answered with ${answer.status}`, said.hint);
  }
  return answer;
}

export const get = async (path, query, signal) => (await call("GET", path, { query, signal })).json();
export const post = async (path, body, headers) => (await call("POST", path, { body, headers })).json();

/** A piece of a log, with where the next one begins. */
export async function logPiece(jobId, query, signal) {
  const answer = await call("GET", `/v1/jobs/${jobId}/log`, { query, signal });
  const said = (name) => Number(answer.headers.get(`X-Fairlead-${name}`));
  return {
    bytes: new Uint8Array(await answer.arrayBuffer()), next: said("Next-Offset"), attempt: said("Attempt"), isOver: said("Over") === 1,
  };
}

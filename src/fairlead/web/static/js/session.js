// Who is signed in. The cookie is the browser's and no script's; the key below goes with every request, and is kept for
// this origin alone, so that neither another site nor another port of this host can act as us.

const KEY = "fairlead.key";
export const HEADER = "X-Fairlead-Session";
export const session = { user: "", role: "", expiresAtS: null };

export function key() {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return memory;
  }
}

let memory = "";

function keep(value) {
  memory = value;
  try {
    if (value) localStorage.setItem(KEY, value);
    else localStorage.removeItem(KEY);
  } catch {
    // then it lasts as long as this page
  }
}

export const isOperator = () => session.role === "operator" || session.role === "admin";

function know(found) {
  Object.assign(session, { user: found.user, role: found.role, expiresAtS: found.expires_at_s });
}

/** Exchange a token or a one-time code for a session; an error in words where it lets nobody in. */
export async function signIn(body) {
  const answer = await fetch("/v1/session", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), credentials: "same-origin",
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error ?? `the controller answered with ${answer.status}`);
  keep(found.key);
  know(found);
}

/** Whether the session of before still stands. */
export async function resume() {
  if (!key()) return false;
  const answer = await fetch("/v1/session", { headers: { [HEADER]: key() }, credentials: "same-origin", cache: "no-store" });
  if (answer.status === 401) {
    keep("");
    return false;
  }
  if (!answer.ok) throw new Error(`the controller answered with ${answer.status}`);
  know(await answer.json());
  return true;
}

export async function signOut(everywhere = false) {
  const path = everywhere ? "/v1/sessions" : "/v1/session";
  await fetch(path, { method: "DELETE", headers: { [HEADER]: key() }, credentials: "same-origin" }).catch(() => {});
  forget();
}

export function forget() {
  keep("");
  Object.assign(session, { user: "", role: "", expiresAtS: null });
}

/** A code in the address is used at once and taken out of it, so that it stays in no history. */
export function takeCode() {
  const found = /^#sign-in=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", `${location.pathname}#/`);
  return found[1];
}

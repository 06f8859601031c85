// The frame: signing in, the parts of the page by their addresses, the line to the controller.

import { onEnded } from "./api.js";
import { fill, h, setText, svg, toast } from "./dom.js";
import { feed } from "./feed.js";
import { ago, moment } from "./format.js";
import { forget, resume, session, signIn, signOut, takeCode } from "./session.js";
import { openSubmit } from "./parts/submit.js";
import { signInView } from "./views/sign_in.js";

const VIEWS = [
  ["", "Cluster", () => import("./views/cluster.js")],
  ["jobs", "Jobs", () => import("./views/jobs.js")],
  ["users", "Users", () => import("./views/users.js")],
  ["energy", "Energy and cost", () => import("./views/energy.js")],
  ["events", "Events", () => import("./views/events.js")],
  ["whatif", "What if", () => import("./views/whatif.js")],
];
const app = document.getElementById("app");
let shown = null;
let frame = null;

function logo() {
  const lines = ["M4 16a8 8 0 0 1 16 0", "M8 16a4 4 0 0 1 8 0", "M2 20h20"];
  return svg("svg", { viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 2.4, "aria-hidden": "true" },
    lines.map((d) => svg("path", { d, "stroke-linecap": "round" })));
}

function makeFrame() {
  const links = VIEWS.map(([path, title]) => h("a", { href: `#/${path}` }, title));
  const where = h("span", { class: "where" });
  const fake = h("span", { class: "badge warn", hidden: true, title: "GPUs, watts, joules and heat are made up; processes are real" }, "made-up GPUs");
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  const words = h("span", { role: "status" }, "connecting");
  const line = h("span", { class: "line" }, dot, words);
  const main = h("main", { id: "main", tabindex: "-1" });
  const trouble = h("div", { class: "notice bad", role: "alert", hidden: true });
  const theme = h("button", { class: "plain", type: "button", "aria-label": "Light or dark", title: "Light or dark", onclick: turnTheme }, "◐");
  const out = h("button", { class: "plain", type: "button", onclick: leave }, "Sign out");
  const top = h("header", { class: "top" },
    h("a", { class: "brand", href: "#/" }, logo(), "Fairlead"), where, fake,
    h("nav", { "aria-label": "Parts of the page" }, h("ul", {}, links.map((link) => h("li", {}, link)))),
    h("div", { class: "tools" }, line,
      h("button", { class: "primary", type: "button", onclick: () => openSubmit() }, "Submit a job"),
      h("span", { class: "small soft who" }, `${session.user} (${session.role})`), theme, out));
  fill(app, h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
    top, main);
  return { links, where, fake, line, words, main, trouble };
}

function turnTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("fairlead.theme", root.dataset.theme);
  } catch {
    // then it lasts as long as this page
  }
  dispatchEvent(new Event("theme"));
}

async function leave() {
  feed.close();
  await signOut();
  askToSignIn("You are signed out.");
}

function over() {
  if (!session.user) return;
  feed.close();
  forget();
  askToSignIn("Your session has ended. Sign in to go on where you were.");
}

function askToSignIn(said = "") {
  close();
  frame = null;
  document.title = "Sign in · Fairlead";
  fill(app, signInView(said, begin));
}

function close() {
  shown?.close?.();
  shown = null;
}

async function route() {
  if (!frame) return;
  const [first = "", ...rest] = location.hash.replace(/^#\/?/, "").split("?")[0].split("/").map(decodeURIComponent);
  close();
  const found = VIEWS.find(([path]) => path === first) ?? VIEWS[0];
  frame.links.forEach((link, number) => {
    if (VIEWS[number] === found) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  const isJob = first === "jobs" && /^\d+$/.test(rest[0] ?? "");
  const asked = location.hash;
  const module = isJob ? await import("./views/job.js") : await found[2]();
  if (location.hash !== asked || !frame) return;
  const made = module.view(rest);
  document.title = `${made.title} · Fairlead`;
  fill(frame.main, frame.trouble, made.nodes);
  shown = made;
  if (feed.model.version >= 0) made.update?.({ changed: null, hasNewJobs: true, isFirst: true });
  if (performance.now() > 3000) frame.main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function tellLine() {
  if (!frame) return;
  const isLive = feed.status === "live";
  frame.line.classList.toggle("lost", !isLive);
  const age = (performance.now() - feed.heardMs) / 1000;
  setText(frame.words, isLive ? "live" : feed.heardMs ? `no connection, last heard ${ago(age)}` : "connecting");
}

function tellCluster({ detail }) {
  if (!frame) return;
  const { cluster, summary } = feed.model;
  setText(frame.where, cluster.name);
  frame.where.title = `${cluster.policy} · Fairlead ${cluster.version}`;
  frame.fake.hidden = !cluster.is_fake;
  frame.trouble.hidden = !summary.trouble;
  setText(frame.trouble, summary.trouble ? `Trouble: ${summary.trouble}` : "");
  shown?.update?.(detail);
}

function begin() {
  frame = makeFrame();
  feed.open(over);
  tellLine();
  route();
}

async function start() {
  onEnded(over);
  feed.addEventListener("update", tellCluster);
  feed.addEventListener("status", tellLine);
  addEventListener("hashchange", () => {
    if (takeCodeNow()) return;
    route();
  });
  setInterval(() => { tellLine(); warnOfEnd(); shown?.tick?.(); }, 1000);
  if (await takeCodeNow()) return;
  try {
    if (await resume()) begin();
    else askToSignIn();
  } catch (error) {
    askToSignIn(`The controller does not answer: ${error.message}`);
  }
}

/** A link with a code signs in at once; where the code does not help, the session of before may. */
function takeCodeNow() {
  const code = takeCode();
  if (!code) return null;
  return signIn({ code }).then(() => { begin(); return true; }).catch(async (error) => {
    if (await resume().catch(() => false)) {
      begin();
      toast(`${error.message}; you were signed in already`);
    } else askToSignIn(error.message);
    return true;
  });
}

let warned = null;

function warnOfEnd() {
  if (!session.expiresAtS || warned === session.expiresAtS) return;
  const leftS = session.expiresAtS - feed.nowAtS();
  if (leftS > 300) return;
  warned = session.expiresAtS;
  if (leftS > 0) toast(`Your session ends at ${moment(session.expiresAtS)}; then you sign in again.`);
}

start();

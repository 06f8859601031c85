// A token, once: the browser gets a session for it and forgets it.

import { field, fill, h } from "../dom.js";
import { signIn } from "../session.js";

export function signInView(said, done) {
  const token = h("input", { type: "password", name: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "sign-in-problem" });
  const problem = h("p", { class: "problem", id: "sign-in-problem", role: "alert" });
  const button = h("button", { class: "primary", type: "submit" }, "Sign in");
  async function submitted(event) {
    event.preventDefault();
    button.disabled = true;
    fill(problem);
    try {
      const given = token.value.trim();
      token.value = "";
      await signIn({ token: given });
      done();
    } catch (error) {
      fill(problem, error.message);
      token.focus();
    } finally {
      button.disabled = false;
    }
  }
  queueMicrotask(() => token.focus());
  return h("main", {},
    h("div", { class: "sign-in panel" },
      h("h1", {}, "Fairlead"),
      said ? h("p", { class: "notice warn", role: "status" }, said) : h("p", { class: "soft" }, "Who runs where, with whom, at what cost."),
      h("form", { class: "stack", onsubmit: submitted }, field("Your token", token, "begins with fl_"), problem, button),
      h("p", { class: "small soft" }, "On the machine of the controller ", h("code", {}, "fairlead page"),
        " prints a link that signs you in. Elsewhere an administrator makes a token for you: ", h("code", {}, "fairlead token create"), ".")));
}

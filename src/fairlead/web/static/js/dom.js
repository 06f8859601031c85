// Elements from data. Text goes in as text and there is no way to put markup in: names, logs and events are others' words.

/** An element; `props` are attributes, `on...` listeners, `class`, and `data-...`; children are nodes, texts or arrays. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

export function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** The same element with other children. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
  return parent;
}

/** Set a text only where it is another: assistive technology reads what changes. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, props = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) made.setAttribute(name, String(value));
  append(made, children);
  return made;
}

let fields = 0;

/** A label with its control, joined by an id. */
export function field(label, control, hint = "") {
  control.id ||= `field-${++fields}`;
  const said = hint ? h("span", { class: "soft" }, ` ${hint}`) : null;
  return h("div", { class: "field" }, h("label", { for: control.id }, label, said), control);
}

export function options(select, values, chosen = "") {
  fill(select, values.map((one) => {
    const [value, text] = Array.isArray(one) ? one : [one, one];
    return h("option", { value, selected: value === chosen }, text);
  }));
  return select;
}

/** A short message that goes away by itself, read out by screen readers. */
export function toast(text) {
  document.querySelector(".toast")?.remove();
  const shown = h("div", { class: "toast", role: "status" }, text);
  document.body.append(shown);
  setTimeout(() => shown.remove(), 6000);
}

/** Ask before something is done that cannot be taken back; a promise of yes or no. */
export function confirmed(question, verb) {
  return new Promise((answer) => {
    const dialog = h("dialog", { "aria-label": question },
      h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); dialog.close("yes"); } },
        h("p", {}, question),
        h("div", { class: "actions" },
          h("button", { type: "button", onclick: () => dialog.close("no") }, "No"),
          h("button", { class: "danger", type: "submit" }, verb))));
    dialog.addEventListener("close", () => { dialog.remove(); answer(dialog.returnValue === "yes"); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

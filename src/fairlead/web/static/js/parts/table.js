// A table of any length: the rows on the screen are there, others are asked for as they come into sight.

import { fill, h, setAttribute } from "../dom.js";

const ROW_PX = 38;
const CHUNK = 100;
const BEYOND = 8;
const LEAST_MS = 2000;

export class VirtualTable {
  /** Columns have title, cell(row), and may have sort, width, class. `ask(offset, limit)` gives total and rows. */
  constructor({ label, columns, ask, sorted, empty }) {
    Object.assign(this, { columns, ask, sorted, empty });
    this.chunks = new Map();
    this.rows = new Map();
    this.total = 0;
    this.generation = 0;
    this.askedMs = -Infinity;
    this.body = h("tbody");
    this.table = h("table", { "aria-label": label }, h("colgroup", {}, columns.map((one) => {
      const made = h("col", { class: one.class ?? null });
      if (one.width) made.style.setProperty("--width", one.width);
      return made;
    })), h("thead", {}, h("tr", {}, columns.map((one) => this.heading(one)))), this.body);
    this.element = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": `${label}, scrolls` }, this.table);
    this.element.addEventListener("scroll", () => this.render(), { passive: true });
    this.watcher = new ResizeObserver(() => this.render());
    this.watcher.observe(this.element);
  }

  heading(column) {
    const inside = column.sort ? h("button", { type: "button", onclick: () => this.sorted(column.sort) }, column.title) : column.title;
    column.head = h("th", { scope: "col", class: column.class ?? null, "data-sort": column.sort ?? null }, inside);
    return column.head;
  }

  showSort(sort, isDescending) {
    for (const { head, sort: own } of this.columns) setAttribute(head, "aria-sort", own && own === sort ? (isDescending ? "descending" : "ascending") : null);
  }

  /** Other rows altogether. */
  reset() {
    this.generation += 1;
    this.chunks.clear();
    this.element.scrollTop = 0;
    this.refresh(true);
  }

  /** The same rows may have changed: those in sight are asked for again, not too often. */
  refresh(isNow = false) {
    const waitMs = LEAST_MS - (performance.now() - this.askedMs);
    clearTimeout(this.timer);
    if (!isNow && waitMs > 0) {
      this.timer = setTimeout(() => this.refresh(true), waitMs);
      return;
    }
    this.askedMs = performance.now();
    const inSight = this.inSight();
    for (const number of this.chunks.keys()) if (!inSight.includes(number)) this.chunks.delete(number);
    for (const number of inSight) this.load(number);
  }

  inSight() {
    const first = Math.floor(this.element.scrollTop / ROW_PX);
    const last = first + Math.ceil((this.element.clientHeight || 600) / ROW_PX);
    const found = [];
    for (let chunk = Math.floor(Math.max(first - BEYOND, 0) / CHUNK); chunk <= Math.floor((last + BEYOND) / CHUNK); chunk += 1) {
      if (chunk === 0 || chunk * CHUNK < this.total) found.push(chunk);
    }
    return found;
  }

  async load(number) {
    const { generation } = this;
    try {
      const found = await this.ask(number * CHUNK, CHUNK);
      if (generation !== this.generation) return;
      this.total = found.total;
      this.chunks.set(number, found.rows);
      this.problem = null;
    } catch (error) {
      if (generation !== this.generation) return;
      this.problem = error;
    }
    this.render();
  }

  render() {
    const first = Math.max(Math.floor(this.element.scrollTop / ROW_PX) - BEYOND, 0);
    const last = Math.min(Math.ceil((this.element.scrollTop + this.element.clientHeight) / ROW_PX) + BEYOND, this.total);
    const rows = [];
    for (let number = first; number < last; number += 1) {
      const chunk = this.chunks.get(Math.floor(number / CHUNK));
      if (!chunk && !this.loading?.has(Math.floor(number / CHUNK))) this.loadOnce(Math.floor(number / CHUNK));
      rows.push(this.row(number, chunk?.[number % CHUNK]));
    }
    for (const number of this.rows.keys()) if (number < first || number >= last) this.rows.delete(number);
    setAttribute(this.table, "aria-rowcount", this.total + 1);
    if (!this.total) rows.push(h("tr", { class: "gap" }, h("td", { colspan: this.columnsShown() }, h("div", { class: "empty" }, this.problem ? this.problem.message : this.chunks.size ? this.empty() : "…"))));
    const children = [gap(first * ROW_PX), ...rows, gap((this.total - last) * ROW_PX)].filter(Boolean);
    // Rows that are there already stay: whoever has the focus in one keeps it.
    const same = children.length === this.body.children.length && children.every((child, at) => child === this.body.children[at]);
    if (!same) this.body.replaceChildren(...children);
  }

  columnsShown() {
    return Math.max(this.columns.filter(({ head }) => head.checkVisibility()).length, 1);
  }

  loadOnce(number) {
    this.loading ??= new Set();
    this.loading.add(number);
    this.load(number).finally(() => this.loading.delete(number));
  }

  row(number, data) {
    let made = this.rows.get(number);
    if (!made) {
      made = { tr: h("tr", { "aria-rowindex": number + 2 }), text: null };
      this.rows.set(number, made);
    }
    const text = data ? JSON.stringify(data) : "";
    if (made.text !== text) {
      const focused = made.tr.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      fill(made.tr, this.columns.map((column) => h("td", { class: column.class ?? null }, data ? column.cell(data) : "…")));
      if (focused) made.tr.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      made.text = text;
    }
    return made.tr;
  }

  close() {
    this.generation += 1;
    clearTimeout(this.timer);
    this.watcher.disconnect();
  }
}

/** One cell only: on a narrow screen columns are hidden, and a cell over all of them would bring their width back. */
function gap(px) {
  if (px <= 0) return null;
  const cell = h("td");
  const row = h("tr", { class: "gap", "aria-hidden": "true" }, cell);
  cell.style.height = `${px}px`;
  return row;
}

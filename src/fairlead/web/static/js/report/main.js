// A report: fills the places that the document has for what a script draws.

import { drawLines } from "./lines.js";
import { drawTimeline } from "./timeline.js";

const data = JSON.parse(document.getElementById("data").textContent);
for (const [name, lines] of Object.entries(data.lines ?? {})) drawLines(document.getElementById(name), lines);
if (data.timeline) drawTimeline(document.getElementById("timeline"), data.timeline);
for (const sample of document.querySelectorAll("[data-line]")) sample.style.borderTop = sample.dataset.line;
for (const box of document.querySelectorAll("input[data-layer]")) {
  const show = () => { document.getElementById(box.dataset.layer).hidden = !box.checked; };
  box.addEventListener("change", show);
  show();
}

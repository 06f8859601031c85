"""The look of the HTML report, in one place."""

CSS = """
:root { --ink: #1b2430; --soft: #5b6675; --line: #e3e7ec; --paper: #ffffff; --back: #f5f7f9; --accent: #0072b2; --win: #e2f3ec; --won: #00684a; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 36px 24px 24px; }
header { border-left: 4px solid var(--accent); padding-left: 16px; margin-bottom: 26px; }
.brand { margin: 0; color: var(--accent); font-weight: 600; letter-spacing: .02em; }
h1 { margin: 0; font-size: 28px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 0 0 12px; font-size: 18px; }
h3 { margin: 20px 0 6px; font-size: 15px; }
.lead { margin: 4px 0 0; color: var(--soft); overflow-wrap: anywhere; }
.lead span { opacity: .75; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px; margin-bottom: 20px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin-bottom: 20px; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px; }
.card p { margin: 0; color: var(--soft); font-size: 13px; }
.card strong { display: block; font-size: 24px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.card em { color: var(--won); font-style: normal; font-size: 13px; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.themes { display: flex; flex-wrap: wrap; gap: 8px 32px; align-items: flex-start; }
.themes > div { flex: 1 1 auto; }
th, td { padding: 7px 8px; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--soft); font-size: 13px; font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
.n { text-align: right; }
th.name { white-space: normal; min-width: 150px; }
thead .n { white-space: normal; }
table.all thead .n { min-width: 96px; }
td.best { background: var(--win); color: var(--won); font-weight: 700; }
tr.group th { padding-top: 14px; color: var(--accent); font-size: 13px; }
tr.group ~ tr:not(.group) th { font-weight: 400; color: var(--soft); }
.hint { margin: 10px 0 0; color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); gap: 22px; }
figure { margin: 0; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 20px; padding: 0; margin: 0 0 14px; font-size: 14px; }
.legend svg { margin-right: 7px; vertical-align: middle; }
figure img { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 18px; margin: 0; }
dt { color: var(--soft); max-width: 320px; overflow-wrap: anywhere; }
dd { margin: 0; overflow-wrap: anywhere; }
code, pre { font: 13px/1.5 ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: 12px 14px; background: var(--back); border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; }
ul { margin: 0; padding-left: 20px; }
footer { color: var(--soft); font-size: 13px; text-align: center; }
@media (max-width: 560px) { main { padding: 20px 12px; } section { padding: 16px 14px; } dl { grid-template-columns: 1fr; gap: 0 0; } dd { margin-bottom: 8px; } }
@media print { body { background: none; } section, .card { break-inside: avoid; } }
"""  # noqa: E501

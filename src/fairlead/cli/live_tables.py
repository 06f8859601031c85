"""Jobs, GPUs and events of a live cluster as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.printable import printable, printable_lines
from fairlead.report import units

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Shown = Mapping[str, Any]
STATE_STYLES = {
    "running": "green", "waiting": "yellow", "held": "dim", "backing-off": "magenta",
    "finished": "cyan", "parked": "bold red", "cancelled": "dim",
}  # fmt: skip
_DEADLINES = {"missed": "deadline missed", "at-risk": "deadline at risk"}
_WHOLE_S = 120
"""Shorter times are told in whole seconds."""
_HEIGHTS, _WIDTHS = " ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉█"
_BAR_CELLS = 10
_MANY_GPUS = 16
"""With more, a node is one line."""


def job_table(jobs: Iterable[Shown], now_s: float | None = None) -> Table:
    """A table with one line for each job."""
    from rich.text import Text

    now_s = time.time() if now_s is None else now_s
    table = _table()
    for title in ("job", "name", "user", "state"):
        table.add_column(title, no_wrap=True, justify="right" if title == "job" else "left")
    for title in ("GPUs", "epochs", "since"):
        table.add_column(title, no_wrap=True, justify="right")
    table.add_column("where, or why not", overflow="fold")
    for job in jobs:
        state = Text(_state(job), style=STATE_STYLES.get(job["state"], ""))
        name, user = (Text(printable(said)) for said in (job["name"] or "", job["user"] or ""))
        about = _about_text(job)
        table.add_row(str(job["id"]), name, user, state, _width(job), _epochs(job), _since(job, now_s), about)
    return table


def job_page(job: Shown) -> Table:
    """All about one job; what is not known is left out."""
    from rich.text import Text

    table = _table(header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for title, text in _facts(job):
        if text:
            text = printable_lines(text)  # before the table measures it
            table.add_row(title, Text(text, style=STATE_STYLES.get(job["state"], "") if title == "state" else ""))
    return table


def gpu_table(nodes: Sequence[Shown]) -> Table:
    """One line per GPU; per node where there are many."""
    from rich.text import Text

    gpus = [(node, gpu) for node in nodes for gpu in node["gpus"]]
    if len(gpus) > _MANY_GPUS:
        return _node_table(nodes)
    table = _table()
    for title in ("GPU", "model", "state", "busy"):
        table.add_column(title, no_wrap=True)
    table.add_column("memory", no_wrap=True, justify="right")
    table.add_column("power", no_wrap=True, justify="right")
    table.add_column("jobs", overflow="fold")
    for node, gpu in gpus:
        jobs = Text(printable(", ".join(_who(job) for job in gpu["jobs"])))
        bar = _bar(gpu["utilisation_frac"])
        power, memory = units.text(gpu["power_w"], units.power), _recovery(gpu)
        table.add_row(gpu["name"], gpu["model"], _gpu_state(node, gpu), bar, memory, power, jobs)
    return table


def event_text(event: Shown) -> Text:
    """An event as one line: when, what, whom it is about and why."""
    from rich.text import Text

    clock = time.strftime("%H:%M:%S", time.localtime(event["at_s"]))
    who = f"job {event['job_id']}" if event["job_id"] is not None else event["node"] or ""
    said = printable(event["about"] or "")  # on this line, so that a job's words cannot look like another event
    about = f"  {said}" if said and said != event["what"] else ""
    style = STATE_STYLES.get(event["what"], "")
    return Text.assemble((clock, "dim"), "  ", f"{who:<8}", "  ", (event["what"], style), about)


def places(names: Iterable[str]) -> str:
    """`n0:0, n0:1, n0:2, n1:0` as `n0:0-2, n1:0`."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        node, _, index = name.rpartition(":")
        if runs and runs[-1][0] == node and runs[-1][2] + 1 == int(index):
            runs[-1] = (node, runs[-1][1], int(index))
        else:
            runs.append((node, int(index), int(index)))
    return ", ".join(f"{node}:{first}" if first == last else f"{node}:{first}-{last}" for node, first, last in runs)


def _table(*, header: bool = True) -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, show_header=header, header_style="dim")


# ---- jobs ----


def _state(job: Shown) -> str:
    return f"{job['state']} ({job['phase']})" if job["phase"] else str(job["state"])


def _width(job: Shown) -> str:
    if job.get("gpu_frac", 1.0) < 1.0:
        return f"{job['gpu_frac']:g}"
    if job["min_gpus"] == job["max_gpus"]:
        return str(job["gpus"])
    now = f"{len(job['placement'])} of " if job["placement"] else ""
    return f"{now}{job['min_gpus']}-{job['max_gpus']}"


def _epochs(job: Shown) -> str:
    if job["epochs_done"] is None:
        return units.MISSING
    return f"{job['epochs_done']}/{job['epochs']}" if job["epochs"] else str(job["epochs_done"])


def _since(job: Shown, now_s: float) -> str:
    """Since it ended, started or was submitted: whichever was last."""
    moment = job["ended_at_s"] or job["started_at_s"] or job["submitted_at_s"]
    since_s = max(round(now_s - moment), 0)
    return f"{since_s} s" if since_s < _WHOLE_S else units.duration(since_s)


def _about(job: Shown) -> str:
    if job["placement"]:
        share = f", {job['sm_share']:.0%} of the SMs" if job["sm_share"] < 1.0 else ""
        return f"{places(job['placement'])}{', shared' if job['shared'] else ''}{share}"
    if job["state"] == "waiting":
        return str(job["wait_reason"] or job["reason"] or "")
    code = "" if job["exit_code"] is None else f" {job['exit_code']}"
    return f"{job['reason'] or ''}{code}"


def _about_text(job: Shown) -> Text:
    """With a word on its deadline, where there is something to say."""
    from rich.text import Text

    word = _DEADLINES.get(job["deadline_state"] or "", "")
    about = printable(_about(job))
    return Text.assemble(about, "; " if about and word else "", (word, "bold red"))


def _deadline(job: Shown) -> str:
    if not job["deadline_s"]:
        return ""
    word = _DEADLINES.get(job["deadline_state"] or "", job["deadline_state"] or "")
    return f"{units.duration(job['deadline_s'])}, until {_moment(job['deadline_at_s'])}{f': {word}' if word else ''}"


def _energy(job: Shown) -> str:
    if job["energy_j"] is None:
        return ""
    until = f" up to {_moment(job['energy_at_s'])}" if job["energy_at_s"] is not None else ""
    return f"{units.energy(job['energy_j'])}{until}{' (made up, as its GPUs are)' if job['is_fake'] else ''}"


def _facts(job: Shown) -> Iterable[tuple[str, str]]:
    yield "job", f"{job['id']}  {job['name']}"
    yield "user", str(job["user"] or "")
    yield "state", f"{_state(job)}{': ' if _about(job) else ''}{_about(job)}"
    yield "command", " ".join(job["command"] or ())
    yield "folder", str(job["cwd"] or "")
    yield "GPUs", _width(job) + (f", {units.digits(job['memory_mib'])} MiB each" if job["memory_mib"] else "")
    yield "profile", str(job["profile"] or "")
    yield "application", str(job["application"] or "")
    yield "priority", str(job["priority"] or "")
    yield "deadline", _deadline(job)
    for title in ("estimate", "slo"):
        yield title, units.duration(job[f"{title}_s"]) if job[f"{title}_s"] else ""
    yield "epochs", _epochs(job) if job["epochs_done"] is not None else ""
    yield "an epoch", units.duration(job["epoch_s"]) if job["epoch_s"] else ""
    yield "loss", f"{job['loss']:.4g}" if job["loss"] is not None else ""
    yield "energy", _energy(job)
    yield "output", str(job.get("output_path") or "")
    for title in ("submitted", "started", "ended"):
        yield title, _moment(job[f"{title}_at_s"])
    for one in job.get("attempts") or ():
        yield f"attempt {one['attempt']}", _attempt(one)
    yield "last words", str(job["detail"] or "")


def _attempt(one: Shown) -> str:
    began, ended = _moment(one["started_at_s"]), _moment(one["ended_at_s"])
    code = one["exit_code"]
    said = [f"on {places(one['placement'])}", f"from {began}" if began else "", f"to {ended}" if ended else ""]
    said += [f"status {code}" if code is not None else "", one["reason"] or one["stopping"]]
    return ", ".join(word for word in said if word)


def _moment(at_s: float | None) -> str:
    return "" if at_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


# ---- GPUs ----


def _node_table(nodes: Sequence[Shown]) -> Table:
    from rich.text import Text

    table = _table()
    for title in ("node", "state", "GPUs"):
        table.add_column(title, no_wrap=True)
    table.add_column("power", no_wrap=True, justify="right")
    table.add_column("jobs", overflow="fold")
    for node in nodes:
        cells = "".join(_cell(gpu["utilisation_frac"]) for gpu in node["gpus"])
        drawn = [gpu["power_w"] for gpu in node["gpus"] if gpu["power_w"] is not None]
        power = units.power(sum(drawn)) if drawn else units.MISSING
        jobs = dict.fromkeys(_who(job) for gpu in node["gpus"] for job in gpu["jobs"])
        drained = sum(gpu["is_drained"] for gpu in node["gpus"])
        state = f"{node['state']}, {drained} drained" if drained else node["state"]
        table.add_row(node["name"], state, Text(f"▕{cells}▏", style="green"), power, Text(printable(", ".join(jobs))))
    return table


def _who(job: Shown) -> str:
    return f"{job['id']} {job['name']}" if job.get("name") else str(job["id"])


def _gpu_state(node: Shown, gpu: Shown) -> str:
    if node["state"] != "up":
        return str(node["state"])
    # A guard has nothing to say before it has seen a service.
    guard = gpu["guard_state"] if gpu["guard_state"] not in ("", "init") else ""
    return ", ".join(word for word in ("drained" if gpu["is_drained"] else "", guard) if word) or "up"


def _bar(frac: float | None) -> Text:
    from rich.text import Text

    if frac is None:
        return Text(units.MISSING, style="dim")
    eighths = round(min(max(frac, 0.0), 1.0) * 8 * _BAR_CELLS)
    drawn = (_WIDTHS[8] * (eighths // 8) + _WIDTHS[eighths % 8]).ljust(_BAR_CELLS)[:_BAR_CELLS]
    return Text.assemble((drawn, "green"), f" {frac:4.0%}")


def _cell(frac: float | None) -> str:
    return "·" if frac is None else _HEIGHTS[round(min(max(frac, 0.0), 1.0) * 8)]


def _recovery(gpu: Shown) -> str:
    used, room = gpu["memory_used_mib"], gpu["memory_mib"]
    return f"{'–' if used is None else f'{used / 1024:.0f}'} / {room / 1024:.0f} GiB"

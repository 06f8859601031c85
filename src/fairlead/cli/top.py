"""`fairlead top`: the cluster at a glance, every second."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connect import ACTIVE, HomeOption, connect
from fairlead.cli.console import print_json, stdout_console
from fairlead.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from fairlead.live.client import Client

_LOOK_S = 1.0
_EVENTS = 8
_MOST_JOBS = 200
_LATE = {"missed": "missed", "at-risk": "at risk"}
_OLD_S = 1.5
_LEAST_ROWS = 4
_AROUND_ROWS = 14
"""Lines of a frame that are no jobs: header, titles, blanks, events."""


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture and exit.")] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Watch the cluster: GPUs and who is on them, jobs and why they wait, the last events. Ctrl-C ends it."""
    console = stdout_console()
    with connect(home) as client:
        eyes = Eyes(client)
        if json:
            print_json(eyes.look())
        elif once or not console.is_terminal:
            console.print(frame(eyes.look(), rows=_MOST_JOBS))
        else:
            with contextlib.suppress(KeyboardInterrupt):
                watch(eyes, until=lambda seen: False)


class Eyes:
    """Looks at a controller, and remembers the last events."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)
        self._after = -_EVENTS

    def look(self) -> dict[str, Any]:
        """Summary, nodes, jobs and events, all of one moment or nearly."""
        for event in self._client.events(after=self._after):
            self._events.append(event)
            self._after = event["id"]
        jobs = sorted(self._client.jobs(states=ACTIVE, most=_MOST_JOBS), key=lambda job: job["id"])
        return {
            "summary": self._client.summary(),
            "nodes": self._client.nodes()["nodes"],
            "running": [job for job in jobs if job["state"] == "running"],
            "waiting": [job for job in jobs if job["state"] != "running"],
            "events": list(self._events),
        }


def watch(eyes: Eyes, until: Callable[[dict[str, Any]], bool], said: str = "") -> None:
    """Frames in this terminal, until `until` says that it has seen enough, or Ctrl-C; `said` stands above each."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    console = stdout_console()

    def shown(seen: dict[str, Any]) -> Group:
        return Group(
            *([Text(said, overflow="fold"), Text()] if said else []), frame(seen, console.height - 2 * bool(said))
        )

    seen = eyes.look()
    with Live(shown(seen), console=console, screen=True, auto_refresh=False) as live:
        while not until(seen):
            time.sleep(_LOOK_S)
            seen = eyes.look()
            live.update(shown(seen), refresh=True)


def frame(seen: dict[str, Any], rows: int) -> Group:
    """One picture; of the jobs as many as there is room for."""
    from rich.console import Group
    from rich.text import Text

    from fairlead.cli.live_tables import event_text, gpu_table, job_table

    gpus = gpu_table(seen["nodes"])
    room = max(rows - _AROUND_ROWS - gpus.row_count, 2 * _LEAST_ROWS)
    running, waiting = seen["running"], seen["waiting"]
    shown = max(room - len(waiting), room // 2)
    parts: list[RenderableType] = [_header(seen["summary"]), Text(), gpus, Text()]
    for title, jobs, most in (("running", running, shown), ("waiting", waiting, room - min(len(running), shown))):
        if jobs:
            left = f", {len(jobs) - most} more" if len(jobs) > most else ""
            parts += [Text(f"{title}: {len(jobs)}{left}", style="bold"), job_table(jobs[:most]), Text()]
    parts += [event_text(event) for event in seen["events"]]
    return Group(*parts)


def _age(at_s: float | None) -> str:
    """Of readings: they are taken every second and fetched every few, and what runs may have changed since."""
    passed_s = 0.0 if at_s is None else time.time() - at_s
    return f" {passed_s:.0f} s ago" if passed_s >= _OLD_S else ""


def _header(summary: dict[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from fairlead.report import units

    gpus, jobs = summary["gpus"], summary["jobs"]
    fake = ("  FAKE GPUs  ", "bold black on yellow") if summary["is_fake"] else ""
    power = units.text(summary["power_w"], units.power) + _age(summary["power_at_s"])
    first = Text.assemble(
        ("fairlead ", "bold cyan"), summary["version"], "  ", (summary["cluster"], "bold"), "  ", fake, f"  {power}"
    )
    counts = ", ".join(f"{count} {state}" for state, count in jobs.items() if count) or "no jobs yet"
    drained = f", {gpus['drained']} drained" if gpus["drained"] else ""
    second = Text(f"{gpus['busy']} of {gpus['all']} GPUs busy{drained}; {counts}; {summary['policy']}", style="dim")
    late = [f"{n} {_LATE[state]}" for state, n in summary["deadlines"].items() if n and state in _LATE]
    if late:
        second.append(f"; deadlines: {', '.join(late)}", style="bold red")
    trouble = [Text(f"trouble: {summary['trouble']}", style="bold red")] if summary["trouble"] else []
    return Group(first, second, *trouble)

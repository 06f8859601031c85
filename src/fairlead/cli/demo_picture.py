"""The demo in a terminal: what happens in sentences, who ran where as a picture, what it cost as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairlead.cli import demo_story as story
from fairlead.report import units

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from fairlead.cli.demo_costs import Costs

Job = Mapping[str, Any]
_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "white", "bright_magenta")
_TICK_S = 10
_LEAST_COLUMNS = 40
_MOST_COLUMNS = 96
_LEGEND = 4
"""Jobs in a line of the legend."""


def story_line(told: Mapping[str, Any], style: str = "") -> Text:
    """A sentence with its second."""
    from rich.text import Text

    return Text.assemble((f"{told['at_s']:4.0f} s  ", "dim"), (str(told["said"]), style))


def _letter(name: str, is_service: bool) -> str:
    return name[0].upper() if is_service else name[0]


def picture(jobs: Sequence[Job], now_s: float, width: int) -> Group:
    """A line per GPU, time to the right: the letters are jobs; two that alternate share the GPU."""
    from rich.console import Group
    from rich.text import Text

    begun_s = min(job["submitted_at_s"] for job in jobs)
    columns = min(max(width - 12, _LEAST_COLUMNS), _MOST_COLUMNS)
    column_s = max(now_s - begun_s, 1.0) / columns
    styles = {job["name"]: f"black on {_COLOURS[i % len(_COLOURS)]}" for i, job in enumerate(jobs)}
    gpus = [f"node-{node}:{gpu}" for node in range(story.NODES) for gpu in range(story.NODE_GPUS)]
    lines = []
    for gpu in gpus:
        line = Text(f"{gpu:<10}", style="dim")
        for column in range(columns):
            there = _on(jobs, gpu, begun_s + (column + 0.5) * column_s)
            job = there[column % len(there)] if there else None
            letter = "·" if job is None else _letter(job["name"], job["kind"] == "service")
            line.append(letter, style="dim" if job is None else styles[job["name"]])
        lines.append(line)
    legend = Text(" " * 9)
    for number, job in enumerate(jobs):
        legend.append("\n" + " " * 9 if number and number % _LEGEND == 0 else "")
        letter = _letter(job["name"], job["kind"] == "service")
        legend.append(f" {letter} ", style=styles[job["name"]])
        legend.append(f" {job['name']} ({job['user']})  ")
    return Group(*lines, _axis(columns, column_s), legend)


def _axis(columns: int, column_s: float) -> Text:
    from rich.text import Text

    axis = [" "] * columns
    for tick_s in range(0, int(columns * column_s) + 1, _TICK_S):
        for at, letter in enumerate(f"|{tick_s} s", start=int(tick_s / column_s)):
            if at < columns:
                axis[at] = letter
    return Text(" " * 10 + "".join(axis), style="dim")


def _on(jobs: Sequence[Job], gpu: str, at_s: float) -> list[Job]:
    """Who was on a GPU at a moment, services first."""
    there = [
        job
        for job in jobs
        for one in job["attempts"]
        if gpu in one["placement"] and one["started_at_s"] is not None
        and one["started_at_s"] <= at_s < (one["ended_at_s"] or float("inf"))
    ]  # fmt: skip
    return sorted(there, key=lambda job: job["kind"] != "service")


def cost_table(ran: Costs, alone: Costs) -> Table:
    """The run against the simulation."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for title in ("as it ran", "without sharing (simulated)", "saved"):
        table.add_column(title, justify="right")
    rows = (
        ("time of a training, mean", units.duration, ran.mean_jct_s, alone.mean_jct_s),
        ("energy of the nodes", units.energy, ran.energy_j, alone.energy_j),
        ("rent of the nodes", lambda usd: f"${usd:.2f}", ran.cost_usd, alone.cost_usd),
        ("GPUs paid for, mean", lambda gpus: f"{gpus:.1f}", ran.paid_gpus, alone.paid_gpus),
    )
    for title, shown, one, other in rows:
        table.add_row(title, shown(one), shown(other), f"{1.0 - one / other:.0%}")
    return table


class Teller:
    """Turns the controller's events into sentences; those that say nothing to a newcomer are left out."""

    def __init__(self, jobs: Mapping[int, story.Scene]) -> None:
        self._jobs = jobs
        self._on: dict[int, tuple[str, ...]] = {}
        self._evicted: set[int] = set()
        self._paid = 0

    def beside(self, number: int) -> list[int]:
        """The jobs on the same GPUs."""
        own = set(self._on.get(number, ()))
        return [other for other, gpus in self._on.items() if other != number and own & set(gpus)]

    def tell(self, event: Mapping[str, Any]) -> str | None:
        """A sentence, if there is anything to say."""
        what, number = event["what"], event["job_id"]
        if what in ("node-rented", "node-given-back"):
            self._paid += story.NODE_GPUS * (1 if what == "node-rented" else -1)
            verb = "rents" if what == "node-rented" else "returns"
            return (
                f"Fairlead {verb} {event['node']}: {self._paid} GPUs paid for (budget {story.BUDGET_GPUS:g} on average)"
            )
        if number not in self._jobs:
            return None
        name = self._jobs[number].name
        if what in ("placed", "resized"):
            return self._placed(number, name, str(event["about"]))
        if what == "evicting":
            self._evicted.add(number)
            hosts = ", ".join(self._jobs[other].name for other in self.beside(number)) or "the service"
            return f"{hosts} is over its SLO: the guard freezes {name}, asks it to save a checkpoint, and evicts it"
        if what in ("waiting", "finished"):
            self._on.pop(number, None)
        return f"{name} is done" if what == "finished" else None

    def _placed(self, number: int, name: str, about: str) -> str:
        words = about.removeprefix("on ").split(", ")
        gpus = tuple(word for word in words if ":" in word)
        had, self._on[number] = len(self._on.get(number, ())), gpus
        hosts = [self._jobs[other].name for other in self.beside(number)]
        where = f"{', '.join(gpus)}, beside {' and '.join(hosts)}" if hosts else ", ".join(gpus)
        if had:
            how = "grows" if len(gpus) > had else "shrinks, for the budget," if len(gpus) < had else "moves"
            return f"{name} {how} from {_gpus(had)} to {_gpus(len(gpus))} and goes on from its checkpoint: {where}"
        if number in self._evicted:
            self._evicted.discard(number)
            return f"{name} has moved and goes on from its checkpoint: {where}"
        return f"{name} starts on {where}"


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"

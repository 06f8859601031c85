"""Options that several commands share, so that each is described once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairlead.cli.console import say
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.sim.result import Result
    from fairlead.traces import Trace

Watch = Literal["job", "rank"]
_INPUT, _WORLD, _OUTPUT = "What to run", "How the world behaves", "Results"

TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A trace in any known format, or synthetic:NAME. Without it, the built-in demo.",
        rich_help_panel=_INPUT,
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="The trace's format, if it cannot be found by content.", rich_help_panel=_INPUT),
]
SkipOption = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave out bad rows and count them.", rich_help_panel=_INPUT)
]
NoWrapOption = Annotated[
    bool,
    typer.Option(
        "--no-wrap",
        help="End a Sia-Philly trace with its last row, instead of repeating it until the measured jobs are done.",
        rich_help_panel=_INPUT,
    ),
]
ThroughputsOption = Annotated[
    str | None,
    typer.Option(
        "--throughputs",
        metavar="FILE[:GPU]",
        help="Steps per second of job types, for a Gavel trace: simulation_throughputs.json, of v100 unless said.",
        rich_help_panel=_INPUT,
    ),
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="COLUMN",
        help="A cluster for each vc (or user, group, model, kind): results per part and together. --cluster is then "
        "the same for each, or a csv with a row per part: its name, and a shape or a number of nodes.",
        rich_help_panel=_INPUT,
    ),
]
DropOption = Annotated[
    bool,
    typer.Option("--drop-too-wide", help="Leave out jobs that can never fit on the cluster.", rich_help_panel=_INPUT),
]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Only the first jobs of the trace.", rich_help_panel=_INPUT)
]
ClusterOption = Annotated[
    str,
    typer.Option("--cluster", metavar="SHAPE|FILE", help="NODESxGPUS[:model] or a TOML file.", rich_help_panel=_INPUT),
]
RentOption = Annotated[
    str | None,
    typer.Option(
        "--rent",
        metavar="TERMS",
        help="The cluster's nodes are rented: default, or terms in seconds, boot=120,minimum=60,step=1.",
        rich_help_panel=_INPUT,
    ),
]
ProfilesOption = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="FILE",
        help="Profiles, what jobs are like: a TOML file, as `fairlead measure colocation` writes one.",
        rich_help_panel=_INPUT,
    ),
]
TrainingOption = Annotated[
    Path | None,
    typer.Option(
        "--training",
        metavar="DIR|FILE",
        help="How jobs of each profile train, epoch by epoch: Pollux's measurements, or a csv of goodputs.",
        rich_help_panel=_INPUT,
    ),
]
ServicesOption = Annotated[
    Path | None,
    typer.Option(
        "--services",
        metavar="FILE",
        help="Services that are there from the start, a GPU each, as TOML; sharing=muxflow runs jobs beside them.",
        rich_help_panel=_INPUT,
    ),
]
RoundOption = Annotated[
    float | None,
    typer.Option("--round-s", help="Decide every N seconds, not at every event.", rich_help_panel=_INPUT),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.", rich_help_panel=_INPUT)]
VariabilityOption = Annotated[
    Path | None,
    typer.Option("--variability", metavar="FILE", help="How slow each GPU is, per class.", rich_help_panel=_WORLD),
]
LocalityOption = Annotated[
    str | None,
    typer.Option(
        "--locality",
        metavar="L|CLASS=L,...",
        help="Slowdown of a job that spans nodes, for all or per class: 1.7, or A=1.16,D=1.1. Default: its profile's.",
        rich_help_panel=_WORLD,
    ),
]
TrueVariabilityOption = Annotated[
    Path | None,
    typer.Option(
        "--true-variability",
        metavar="FILE",
        help="How slow each GPU really is, where --variability is only what policies believe.",
        rich_help_panel=_WORLD,
    ),
]
SlowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slow",
        metavar="GPU:FACTOR@SECONDS",
        help="A GPU that grows slow, unknown to policies: 35:2.0@86400. May be repeated.",
        rich_help_panel=_WORLD,
    ),
]
CorrectOption = Annotated[
    Watch | None,
    typer.Option(
        "--correct-scores",
        help="Correct what is believed of GPUs from observed iteration times: of the job, or of every rank of it.",
        rich_help_panel=_WORLD,
    ),
]
DrainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drain",
        metavar="GPU",
        help="A GPU that takes no jobs, as 35 or n8:3. May be repeated.",
        rich_help_panel=_WORLD,
    ),
]
RestartOption = Annotated[
    float | None,
    typer.Option(
        "--restart-s", help="Seconds lost to each preemption or move. Default: its profile's.", rich_help_panel=_WORLD
    ),
]
MtbfOption = Annotated[
    float | None,
    typer.Option("--mtbf-h", help="Hours between the failures of a node, on average.", rich_help_panel=_WORLD),
]
RepairOption = Annotated[
    float | None,
    typer.Option("--repair-h", help="Hours until a failed node is back. Default: 1.", rich_help_panel=_WORLD),
]
InterferenceOption = Annotated[
    str | None,
    typer.Option(
        "--interference",
        metavar="NAME|FILE",
        help="What jobs on one GPU cost each other: eaco (default), gavel-v100, none, or a file.",
        rich_help_panel=_WORLD,
    ),
]
HistoryOption = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="NAME|FILE",
        help="What the sharing policy knows of that at the start.",
        rich_help_panel=_WORLD,
    ),
]
CarbonOption = Annotated[
    str | None,
    typer.Option(
        "--carbon",
        metavar="G|FILE",
        help="Grid intensity in grams of CO2 per kWh, or a csv hour,g_per_kwh; adds carbon_kg.",
        rich_help_panel=_WORLD,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.", rich_help_panel=_OUTPUT)]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Write parquet, JSON, plots and an HTML report.", rich_help_panel=_OUTPUT
    ),
]


def parse_locality(text: str | None) -> float | dict[str, float] | None:
    """`1.7` for all, or `A=1.16,D=1.1` per class."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.partition("=") for part in text.split(",")]
        return {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        raise InputError(f"--locality {text!r} is no number", hint="for example 1.7, or A=1.16,D=1.1") from None


def read_trace(
    path: str | None,
    *,
    format: str | None = None,
    skip_bad_rows: bool = False,
    wrap: bool = True,
    jobs: int | None = None,
    throughputs: str | None = None,
) -> Trace:
    """The trace that the options name; what its reader wants to be known goes to stderr."""
    from fairlead import traces

    if path is None:
        for option, value in (("--format", format), ("--throughputs", throughputs)):
            if value is not None:
                raise InputError(f"{option} {value} says how to read a trace, but there is no --trace")
        trace = traces.builtin_demo()
    else:
        trace = traces.load(path, format=format, skip_bad_rows=skip_bad_rows, wrap=wrap, throughputs=throughputs)
    for note in trace.notes:
        say("note", note)
    return trace if jobs is None else trace.head(jobs)


def say_notes(results: Sequence[Result], trace: Trace) -> None:
    """What the runs want to be known, once each; the reader's own notes were said before."""
    for note in dict.fromkeys(note for result in results for note in result.notes):
        if note not in trace.notes:
            say("note", note)


@dataclass(frozen=True, slots=True)
class Report:
    """Where the files of `--out` go, checked before the run; does nothing without the option."""

    folder: Path | None

    @classmethod
    def at(cls, folder: Path | None) -> Report:
        """Make sure of the folder now, not after the run."""
        if folder is not None:
            from fairlead.report.write import prepare

            prepare(folder)
        return cls(folder)

    def write(self, results: Sequence[Result], names: Sequence[str], command: Any) -> None:
        """Write the files and say where they are."""
        if self.folder is None:
            return
        from fairlead.report.write import write

        written = write(results, self.folder, names=names, command=str(command or ""))
        if written.hint:
            say("hint", written.hint)
        say("report", str(written.page))

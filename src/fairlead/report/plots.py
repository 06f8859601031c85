"""Plots of one run or of several laid over each other: JCT, busy GPUs, queue and power; with services, their GPUs.

matplotlib is optional and slow to import, so it is imported where a figure is drawn, through its object-oriented API:
no global state, no display.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairlead.report import lines, units
from fairlead.report.metrics import rented

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fairlead.sim.result import Result

Floats = NDArray[np.float64]
Runs = Mapping[str, "Result"]

INSTALL_HINT = "plots need matplotlib: pip install 'fairlead[plots]'"

# Okabe and Ito's colours, which colour-blind readers can tell apart, less the yellow that is too pale for a line. The
# eighth run has the first one's colour, and dashes.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#333333")
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.6), (1.4, 1.2), (6, 1.6, 1.4, 1.6))
_CDF_POINTS = 1000
"""Enough for any page; a million jobs would make a file of 50 MB."""
_TIME_BINS = 160
"""A line over time is averaged to this many steps, or runs laid over each other could not be told apart."""
_TICKS_S = {
    1.0: "1 s", 10.0: "10 s", 60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 21600.0: "6 h",
    86400.0: "1 d", 604800.0: "1 wk", 2592000.0: "30 d", 31536000.0: "1 y",
}  # fmt: skip

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a94a3",
    "axes.labelcolor": "#3d4754",
    "xtick.color": "#3d4754",
    "ytick.color": "#3d4754",
    "axes.grid": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.dpi": 160,
    "svg.fonttype": "none",
    "svg.hashsalt": "fairlead",  # the same run gives the same file
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A kind of figure: its file's name, its title and what draws it."""

    name: str
    """Its file's name."""
    title: str
    says: str
    """How to read it, for the page's caption and for those who cannot see it."""
    draw: Callable[[Axes, Runs], None]


def available() -> bool:
    """Whether matplotlib is there to draw with."""
    return find_spec("matplotlib") is not None


def figure(plot: Plot, runs: Runs, *, legend: bool = True) -> Figure:
    """One figure. Its fonts are settled only when it is written, so write it with `save`."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        made = Figure(figsize=(6.4, 3.9), layout="constrained")
        axes = made.add_subplot()
        axes.set_title(plot.title)
        plot.draw(axes, runs)
        if legend and len(runs) > 1:
            longest = max(map(len, runs))
            columns = 1 if longest > 42 else 2 if longest > 22 else 3
            made.legend(loc="outside lower left", ncols=min(columns, len(runs)), fontsize=9, handlelength=2.6)
    return made


def save(plot: Plot, runs: Runs, format: Literal["png", "svg"], *, legend: bool = True) -> bytes:
    """The figure as the bytes of a `png` or `svg` file."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        buffer = io.BytesIO()
        metadata = {"Date": None} if format == "svg" else None
        figure(plot, runs, legend=legend).savefig(buffer, format=format, metadata=metadata)
    return buffer.getvalue()


def save_drawing(title: str, draw: Callable[[Axes], None]) -> bytes:
    """A drawing that is not of runs, in the same style, as the bytes of a `png` file."""
    with _drawn(title, draw) as (made, _):
        return _bytes(made, "png")


@dataclass(frozen=True, slots=True)
class Layer:
    """One line of a drawing, or the bars of one colour, by itself on a transparent ground."""

    label: str
    colour: str
    is_dashed: bool
    svg: bytes


def save_layers(draw: Callable[[Axes], None]) -> tuple[bytes, list[Layer]]:
    """A drawing without title and legend as `svg`: what is always there, and what can be switched off."""
    from matplotlib.colors import to_hex

    with _drawn("", draw) as (made, axes):
        if (legend := axes.get_legend()) is not None:
            legend.remove()
        parts: dict[str, list[Any]] = {str(one.get_label()): [one] for one in axes.get_lines()}
        parts |= {str(one.get_label()): list(one.patches) for one in axes.containers if hasattr(one, "patches")}
        parts = {label: artists for label, artists in parts.items() if not label.startswith("_")}
        made.draw_without_rendering()
        made.set_layout_engine("none")  # from here on everything stays where it is
        for artist in (one for artists in parts.values() for one in artists):
            artist.set_visible(False)
        ground = _bytes(made, "svg")
        for child in axes.get_children():
            child.set_visible(False)
        axes.set_axis_off()
        layers = []
        for label, artists in parts.items():
            for artist in artists:
                artist.set_visible(True)
            first = artists[0]
            colour = first.get_color() if hasattr(first, "get_color") else first.get_facecolor()
            layers.append(Layer(label, to_hex(colour), first.get_linestyle() in ("--", ":", "-."), _bytes(made, "svg")))
            for artist in artists:
                artist.set_visible(False)
    return ground, layers


@contextmanager
def _drawn(title: str, draw: Callable[[Axes], None]) -> Iterator[tuple[Figure, Axes]]:
    """In our style, as long as the block lasts: fonts are settled when a figure is written."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=_COLOURS)}):
        made = Figure(figsize=(6.4, 3.9), layout="constrained")
        axes = made.add_subplot()
        axes.set_title(title)
        draw(axes)
        yield made, axes


def _bytes(made: Figure, format: Literal["png", "svg"]) -> bytes:
    buffer = io.BytesIO()
    is_svg = format == "svg"
    made.savefig(buffer, format=format, transparent=is_svg, metadata={"Date": None} if is_svg else None)
    return buffer.getvalue()


def look(number: int) -> tuple[str, tuple[float, ...]]:
    """The colour and the dashes (none is a solid line) of a run by its place in the comparison."""
    return _COLOURS[number % len(_COLOURS)], _DASHES[number // len(_COLOURS) % len(_DASHES)]


def _line(number: int, name: str) -> dict[str, Any]:
    colour, dashes = look(number)
    return {"color": colour, "linestyle": (0, dashes) if dashes else "-", "label": name}


def _draw_jct(axes: Axes, runs: Runs) -> None:
    times = {name: lines.finite(result.jobs["jct_s"].to_numpy()) for name, result in runs.items()}
    for number, (name, jct_s) in enumerate(times.items()):
        if jct_s.size:
            share = np.linspace(0.0, 1.0, min(_CDF_POINTS, jct_s.size + 1))
            # A log axis has no place for a job that took no time.
            reached_s = np.maximum(np.quantile(jct_s, share), 1.0)
            axes.plot(reached_s, 100 * share, drawstyle="steps-post", **_line(number, name))
    axes.set_xscale("log")
    low_s, high_s = axes.get_xlim()
    ticks = {at_s: text for at_s, text in _TICKS_S.items() if low_s <= at_s <= high_s}
    if len(ticks) > 1:
        axes.set_xticks(list(ticks), labels=list(ticks.values()))
        axes.minorticks_off()
    axes.set(xlabel="job completion time (log scale)", ylabel="jobs done (%)", ylim=(0, 102))


def _draw_busy(axes: Axes, runs: Runs) -> None:
    _over_time(axes, runs, "busy_gpus")
    axes.set_ylabel("GPUs busy")
    if rented([r.summary for r in runs.values()]):
        # The size is then what could be rented at most, which says little and would flatten the lines.
        _over_time(axes, runs, "paid_gpus", thin=True)
        axes.set_ylabel("GPUs busy (thin: paid)")
        return
    gpus = max(int(r.summary.get("gpus", 0)) for r in runs.values())
    if gpus:
        axes.axhline(gpus, color="#8a94a3", linewidth=1, linestyle=(0, (2, 2)))
        axes.set_ylim(0, gpus * 1.06)


def _draw_queue(axes: Axes, runs: Runs) -> None:
    _over_time(axes, runs, "waiting_jobs")
    axes.set_ylabel("jobs waiting")


def _draw_power(axes: Axes, runs: Runs) -> None:
    largest = max((float(r.timeline["power_w"].max() or 0.0) for r in runs.values() if r.timeline.height), default=0.0)  # type: ignore[arg-type]
    watts, unit = units.axis_scale(largest, units.power)
    _over_time(axes, runs, "power_w", divide_by=watts)
    axes.set_ylabel(f"power ({unit})")


def _draw_fleet(axes: Axes, runs: Runs) -> None:
    _over_time(axes, runs, "sm_activity_frac", divide_by=0.01, of="fleet")
    axes.set_ylabel("SM activity (%)")


def _draw_slowdown(axes: Axes, runs: Runs) -> None:
    _over_time(axes, runs, "slowdown", of="fleet")
    axes.set_ylabel("time of a request over alone")


def _over_time(
    axes: Axes,
    runs: Runs,
    column: str,
    divide_by: float = 1.0,
    *,
    thin: bool = False,
    of: Literal["timeline", "fleet"] = "timeline",
) -> None:
    """A step line per run; thin where it goes with another line of the same run."""
    found = {name: lines.steps(getattr(result, of), column) for name, result in runs.items()}
    end_s = max((float(edges[-1]) for edges, _ in found.values()), default=1.0)
    seconds, unit = units.axis_scale(end_s, units.duration)
    for number, (name, (edges, values)) in enumerate(found.items()):
        if values.size > _TIME_BINS:
            bins = max(1, round(_TIME_BINS * float(edges[-1] - edges[0]) / (end_s - float(edges[0]))))
            edges, values = _rebinned(edges, values, bins)
        line = _line(number, name)
        if thin:
            line |= {"label": None, "alpha": 0.75}
        axes.stairs(values / divide_by, edges / seconds, baseline=None, linewidth=0.7 if thin else 1.6, **line)
        if len(found) == 1 and not thin:
            axes.stairs(values / divide_by, edges / seconds, fill=True, alpha=0.12, color=line["color"])
    axes.set_xlabel(f"time ({unit})")
    axes.set_xlim(left=0)
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))  # a queue that is always empty is a line at 0, not noise


def _rebinned(edges: Floats, values: Floats, bins: int) -> tuple[Floats, Floats]:
    """Time-weighted means over fewer, equal intervals: the area under the line stays what it was."""
    area = np.concatenate(([0.0], np.cumsum(values * np.diff(edges))))
    coarse = np.linspace(edges[0], edges[-1], bins + 1)
    return coarse, np.diff(np.interp(coarse, edges, area)) / np.diff(coarse)


PLOTS = (
    Plot("jct-cdf", "Job completion time", "Share of jobs done within a time; further left is better.", _draw_jct),
    Plot(
        "gpus-busy",
        "GPUs busy",
        "GPUs that a job holds. Dashed: the cluster's size. Thin, where nodes are rented: GPUs paid for.",
        _draw_busy,
    ),
    Plot("queue", "Queue", "Jobs that wait for their GPUs; lower is better.", _draw_queue),
    Plot("power", "Power", "What all nodes draw together, idle GPUs included.", _draw_power),
)
FLEET_PLOTS = (
    Plot(
        "fleet-activity",
        "SM activity beside services",
        "SM activity of GPUs with a service, the offline jobs beside them included; higher is better used.",
        _draw_fleet,
    ),
    Plot(
        "service-slowdown",
        "What services pay",
        "Time of a request on the GPU over that without a neighbour, mean over services; 1 is unharmed.",
        _draw_slowdown,
    ),
)


def of_runs(runs: Runs) -> tuple[Plot, ...]:
    """All plots that have something to show."""
    served = any(result.fleet is not None and result.fleet.height for result in runs.values())
    return (*PLOTS, *FLEET_PLOTS) if served else PLOTS

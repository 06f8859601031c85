"""Mean JCT against GPU-hours paid: each policy's curve, and how far apart curves are at equal GPU-hours."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fairlead.report.claims import Claim
from fairlead.reproduce.boa_runs import LINGERS_S, TERMS, Key
from fairlead.reproduce.boa_setting import (
    BASELINES,
    BOA,
    LEARNING,
    POLLUX,
    STATIC,
    Scene,
)
from fairlead.sim.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = Mapping[Key, Result]
UNIT = "% of BOA's"


@dataclass(frozen=True, slots=True)
class Point:
    """One run: where the knob was, what was paid, what came out."""

    knob: float
    gpu_hours: float
    jct_s: float


def curve(found: Results, *start: object) -> list[Point]:
    """All runs whose key is `start` and a knob, in order of the knob."""
    results = {key[-1]: result for key, result in found.items() if key[:-1] == start}
    points = [Point(float(str(k)), r.summary["gpu_hours_paid"], r.summary["mean_jct_s"]) for k, r in results.items()]
    return sorted(points, key=lambda p: p.knob)


def frontier(points: Iterable[Point]) -> list[Point]:
    """Those that no other beats in both, the cheapest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.gpu_hours, p.jct_s)):
        if not kept or point.jct_s < kept[-1].jct_s:
            kept.append(point)
    return kept


def jct_at(points: Sequence[Point], gpu_hours: float) -> float:
    """Mean JCT at so many GPU-hours: straight in log-log between points of the frontier, flat beyond the dearest.

    Infinite below the cheapest: this policy cannot do with so little.
    """
    best = frontier(points)
    hours = [p.gpu_hours for p in best]
    if not hours or gpu_hours < hours[0]:
        return math.inf
    i = bisect_left(hours, gpu_hours)
    if i == len(hours):
        return best[-1].jct_s
    if hours[i] == gpu_hours:
        return best[i].jct_s
    low, high = best[i - 1], best[i]
    share = math.log(gpu_hours / low.gpu_hours) / math.log(high.gpu_hours / low.gpu_hours)
    return float(low.jct_s * (high.jct_s / low.jct_s) ** share)


@dataclass(frozen=True)
class Comparison:
    """BOA at one budget, and every baseline at the GPU-hours that BOA paid."""

    scene: Scene
    budget: float
    boa: Point
    baselines: Mapping[str, float]
    """Mean JCT of those that can do with so little."""
    bound_jct_s: float
    run: Result

    @property
    def best(self) -> str:
        """The baseline with the smallest mean completion time."""
        return min(self.baselines, key=lambda name: self.baselines[name])

    @property
    def ratio(self) -> float:
        """Its mean JCT over BOA's."""
        return self.baselines[self.best] / self.boa.jct_s

    @property
    def most(self) -> float:
        """The same for the bound: what no policy can exceed."""
        return self.baselines[self.best] / self.bound_jct_s

    def against(self, name: str) -> float | None:
        """One baseline's mean JCT over BOA's."""
        return self.baselines[name] / self.boa.jct_s if name in self.baselines else None


def compare(found: Results, scene: Scene, line: str = BOA, names: Sequence[str] = BASELINES) -> list[Comparison]:
    """At each budget that is looked at, if some baseline can do with what BOA paid there."""
    curves = {name: curve(found, scene.name, name) for name in names}
    comparisons = []
    for point in curve(found, scene.name, line):
        if point.knob not in scene.judged:
            continue
        at = {name: jct_at(points, point.gpu_hours) for name, points in curves.items()}
        able = {name: jct_s for name, jct_s in at.items() if math.isfinite(jct_s)}
        if not able:
            continue
        bound_s, run = scene.bound_jct_s(point.gpu_hours), found[scene.name, line, point.knob]
        comparisons.append(Comparison(scene, point.knob, point, able, bound_s, run))
    return comparisons


def geomean(values: Iterable[float]) -> float:
    """The geometric mean of ratios."""
    logs = [math.log(v) for v in values]
    return math.exp(math.fsum(logs) / len(logs))


# -- rows -------------------------------------------------------------------------------------------------------------


def scene_rows(found: Results, scene: Scene) -> list[Claim]:
    """BOA against the best baseline and against the bound."""
    compared = compare(found, scene)
    rows = [_least_row(scene)]
    for c in compared:
        claim = f"best baseline at BOA's GPU-hours, {scene.name}, budget {c.budget:g}"
        wanted = scene.wanted
        holds = wanted is None or c.ratio >= wanted
        rows.append(Claim(claim, UNIT, _percent(wanted), 100.0 * c.ratio, holds, _why(c, wanted)))
    if len(compared) > 1:
        rows += _mean_rows(scene.name, compared, scene.wanted)
    rows += [*_bound_rows(scene, compared), *_learning_rows(found, scene)]
    if compared:
        rows += _own_rows(scene, compared[len(compared) // 2])
    return rows


def trace_rows(found: Results, scenes: Sequence[Scene]) -> list[Claim]:
    """Several traces together, and what an ideal BOA would gain on Pollux's own cluster of 64 GPUs."""
    compared = [c for scene in scenes for c in compare(found, scene)]
    rows = _mean_rows(f"Pollux's {len(scenes)} traces", compared, None) if len(scenes) > 1 else []
    gains = []
    for scene in scenes:
        number = int(scene.name.rsplit(" ", 1)[-1])
        run = found.get(("64 T4", "Pollux", number))
        if run is not None:
            bound_s = scene.bound_jct_s(float(run.summary["gpu_hours_paid"]))
            gains.append((number, float(run.summary["mean_jct_s"]) / bound_s))
    if gains:
        ours = geomean(gain for _, gain in gains)
        note = "; ".join(f"trace {number}: {100.0 * gain:.0f}" for number, gain in gains)
        note += "; no boot, restart or wait; the figure quoted is 170 to 220"
        claim = "Pollux on 64 owned T4 at its GPU-hours, mean JCT"
        rows.append(Claim(claim, "% of an ideal BOA's", 188.0, 100.0 * ours, 1.7 <= ours <= 2.2, note))
    return rows


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100.0 * ratio


def _listed(c: Comparison) -> str:
    ordered = sorted(c.baselines, key=lambda name: c.baselines[name])
    return ", ".join(f"{name} {100.0 * c.baselines[name] / c.boa.jct_s:.0f}" for name in ordered)


def _why(c: Comparison, wanted: float | None) -> str:
    note = f"{c.boa.gpu_hours:,.0f} h, {c.boa.jct_s:,.0f} s; {_listed(c)}"
    if wanted is None or c.ratio >= wanted:
        return note
    if c.most < wanted:
        why = f"no policy could: with neither boot, restart nor wait it would be {100.0 * c.most:.0f}"
    else:
        why = f"an ideal BOA, with no boot, restart or wait, would have {100.0 * c.most:.0f}"
    return f"{note}; {why}"


def _mean_rows(name: str, compared: Sequence[Comparison], wanted: float | None) -> list[Claim]:
    """Over several budgets: the best of all, and the best of those that adapt widths or order."""
    against = []
    for base in BASELINES:
        ratios = [r for c in compared if (r := c.against(base)) is not None]
        if ratios:
            missing = f" (at {len(ratios)} of {len(compared)})" if len(ratios) < len(compared) else ""
            against.append(f"{base} {100.0 * geomean(ratios):.0f}{missing}")
    over = f"at BOA's GPU-hours, {name}, geomean over {len(compared)} points"
    rows = [_mean_row(f"best baseline {over}", compared, wanted, ", ".join(against))]
    others = [replace(c, baselines={n: s for n, s in c.baselines.items() if n != STATIC}) for c in compared]
    able = [c for c in others if c.baselines]
    if able:
        note = f"at {len(able)} of them; without the one width for all, the best of which is known in hindsight only"
        rows.append(_mean_row(f"best scheduler {over}", able, wanted, note))
    return rows


def _mean_row(claim: str, compared: Sequence[Comparison], wanted: float | None, note: str) -> Claim:
    ours, most = (geomean(getattr(c, of) for c in compared) for of in ("ratio", "most"))
    holds = wanted is None or ours >= wanted
    note += "" if holds else f"; no policy could have more than {100.0 * most:.0f}"
    return Claim(claim, UNIT, _percent(wanted), 100.0 * ours, holds, note)


def _least_row(scene: Scene) -> Claim:
    note = f"at the most efficient widths, every GPU booted first; {scene.least_gpus:.0f} without boots and restarts"
    return Claim(f"smallest budget that can be kept, {scene.name}", "GPUs", None, scene.least_booted_gpus, True, note)


def _bound_rows(scene: Scene, compared: Sequence[Comparison]) -> list[Claim]:
    if not compared:
        return []
    above = geomean(c.boa.jct_s / c.bound_jct_s for c in compared)
    note = "any widths, no boot, no restart, no wait, at the GPU-hours that BOA paid; no policy can be below 100"
    return [
        Claim(f"BOA's mean JCT over the bound, {scene.name}", "% of bound", None, 100.0 * above, above >= 1.0, note),
    ]


def _learning_rows(found: Results, scene: Scene) -> list[Claim]:
    """With curves that are fitted while jobs run, for both."""
    compared = compare(found, scene, BOA + LEARNING, (POLLUX + LEARNING,))
    rows = []
    for c in compared:
        claim = f"Pollux autoscaled at BOA's GPU-hours, both learning, {scene.name}, budget {c.budget:g}"
        known = next((o for o in compare(found, scene) if o.budget == c.budget), None)
        note = f"{c.boa.gpu_hours:,.0f} h, {c.boa.jct_s:,.0f} s"
        if known is not None:
            note += f"; with known curves {known.boa.gpu_hours:,.0f} h, {known.boa.jct_s:,.0f} s"
        rows.append(Claim(claim, UNIT, None, 100.0 * c.ratio, c.ratio >= 1.0, note))
    return rows


def _own_rows(scene: Scene, c: Comparison) -> list[Claim]:
    """The rows that say where BOA itself loses."""
    summary = c.run.summary
    paid = 100.0 * float(summary["gpu_hours_paid"]) / float(summary["gpu_hours"])
    restarts = int(summary["resizes"]) + int(summary["moves"]) + int(summary["preemptions"])
    where = f"{scene.name}, budget {c.budget:g}"
    note = f"{summary['node_rentals']:,} rentals of a node, each of which boots for {scene.rental.boot_s:g} s"
    return [
        Claim(f"GPU-hours paid by BOA over those that jobs held, {where}", "%", None, paid, True, note),
        Claim(f"mean wait of BOA, {where}", "s", None, float(summary["mean_wait_s"]), True, "for nodes to boot"),
        Claim(f"restarts of BOA per job, {where}", "", None, restarts / int(summary["jobs"]), True, ""),
    ]


def tried_rows(found: Results, scene: Scene) -> list[Claim]:
    """What might have helped on the testbed's trace, against autoscaled Pollux on the same terms."""
    rows = []
    pollux = curve(found, scene.name, POLLUX)
    for linger_s in LINGERS_S:
        ours = curve(found, scene.name, "linger", linger_s)
        claim = f"tried: idle nodes kept for {linger_s:g} s, {scene.name}: autoscaled Pollux at BOA's GPU-hours"
        rows += _tried(claim, ours, pollux, "")
    for name in TERMS:
        ours = curve(found, scene.name, name, BOA)
        pollux = curve(found, scene.name, name, POLLUX)
        claim = f"{name}, {scene.name}: autoscaled Pollux at BOA's GPU-hours"
        rows += _tried(claim, ours, pollux, "for both; ")
    return rows


def _tried(claim: str, ours: Sequence[Point], theirs: Sequence[Point], note: str) -> list[Claim]:
    ratios = [jct_at(theirs, p.gpu_hours) / p.jct_s for p in ours]
    able = [r for r in ratios if math.isfinite(r)]
    note = f"{note}geomean over {len(able)} budgets"
    return [Claim(claim, UNIT, None, 100.0 * geomean(able), True, note)] if able else []


# -- plots ------------------------------------------------------------------------------------------------------------

_LOOKS = {
    BOA: ("#0072B2", "o", "-"),
    BOA + LEARNING: ("#0072B2", "o", ":"),
    POLLUX: ("#D55E00", "s", "-"),
    POLLUX + LEARNING: ("#D55E00", "s", ":"),
    "Pollux, fixed": ("#D55E00", "^", "--"),
    "Sia, fixed": ("#009E73", "^", "--"),
    "Optimus, fixed": ("#CC79A7", "^", "--"),
    "equal shares, fixed": ("#56B4E9", "^", "--"),
    "Tiresias, fixed": ("#333333", "^", "--"),
    STATIC: ("#E69F00", "D", "-"),
}


def draw_scene(found: Results, scene: Scene) -> Callable[[Axes], None]:
    """Every policy's curve, and the bound."""

    def draw(axes: Axes) -> None:
        boa = curve(found, scene.name, BOA)
        most = 1.6 * max(p.gpu_hours for p in boa)
        top = 4.0 * max(p.jct_s for p in boa)
        for name, (colour, marker, style) in _LOOKS.items():
            points = [p for p in frontier(curve(found, scene.name, name)) if p.gpu_hours <= most]
            if points:
                axes.plot(
                    [p.gpu_hours for p in points], [p.jct_s for p in points], color=colour, marker=marker,
                    markersize=3.5, linestyle=style, linewidth=2.0 if name == BOA else 1.2, label=name,
                )  # fmt: skip
        least = scene.least_gpus * scene.span_s / 3600.0
        hours = np.geomspace(least * 1.0005, most, 60)
        axes.plot(hours, [scene.bound_jct_s(h) for h in hours], color="#8a94a3", linewidth=1.2, label="ideal BOA")
        axes.axvline(least, color="#8a94a3", linestyle=":", linewidth=1.0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set(xlabel="GPU-hours paid", ylabel="mean JCT (s)", xlim=(0.93 * least, most), ylim=(None, top))
        _plain_ticks(axes)
        axes.legend(fontsize=6.5, ncols=2, loc="upper right")

    return draw


def _plain_ticks(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.set_minor_formatter(NullFormatter())


def curves_json(found: Results, scenes: Iterable[Scene]) -> list[dict[str, object]]:
    """All points of the curves, for `--json`."""
    listed: list[dict[str, object]] = []
    for scene in scenes:
        for name in _LOOKS:
            points = curve(found, scene.name, name)
            if points:
                values = [{"knob": p.knob, "gpu_hours_paid": p.gpu_hours, "mean_jct_s": p.jct_s} for p in points]
                listed.append({"trace": scene.name, "policy": name, "points": values})
    return listed

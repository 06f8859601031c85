"""Together: one scheduler that sizes, places, shares and rents, against each paper's policy and the baselines.

There is no paper to compare with: the rows say how much faster the preset `fairlead` is than another policy that spends
the same, and what is lost where one of its stages is taken out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.report.claims import Claim, Figure, Reproduction, at_least
from fairlead.reproduce.together_setting import JOINT, WORKLOADS, Key, Workload, planned, policies
from fairlead.sim.parallel import run_all
from fairlead.sim.run import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairlead.sim.result import Result

JOBS, SEEDS = 600, 5
AHEAD = 1.5
"""How much faster it should be on the workload with everything in it."""
_SAME = 0.98
"""Within 2 % counts as no worse."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one policy came to, over all seeds."""

    jct_s: float
    p99_s: float
    cost_usd: float
    energy_kwh: float
    late: float

    @classmethod
    def of(cls, results: Sequence[Result]) -> Point:
        """The means."""
        keys = ("mean_jct_s", "p99_jct_s", "cost_usd", "energy_j", "late_jobs")
        jct, p99, cost, energy, late = (float(np.mean([r.summary[key] for r in results])) for key in keys)
        return cls(jct, p99, cost, energy / 3.6e6, late)


Points = Mapping[str, list[Point]]
"""By name of the policy; one for every budget, the cheapest first."""


def reproduce(
    data: Path | None,
    progress: Progress | None = None,
    *,
    jobs: int = JOBS,
    seeds: int = SEEDS,
    workloads: Sequence[Workload] = WORKLOADS,
) -> Reproduction:
    """All rows and figures; it needs no data."""
    runs = planned(workloads, jobs, seeds)
    found = dict(zip(runs, run_all(list(runs.values()), progress=progress), strict=True))
    points = {w.name: _points(w, found, seeds) for w in workloads}
    rows = [row for w in workloads for row in _rows(w, points[w.name])]
    about = f"{len(workloads)} workloads of {jobs:,} jobs, means over {seeds} seeds; all made up but EaCO's table"
    return Reproduction("together", about, rows, [_figure(w, points[w.name]) for w in workloads])


def jct_at(points: Sequence[Point], cost_usd: float) -> float:
    """Mean completion time at that cost: between two budgets on a line of logarithms; NaN where none is as cheap."""
    order = sorted(points, key=lambda p: p.cost_usd)
    # A budget that costs more and is no faster is nobody's choice.
    front = [p for i, p in enumerate(order) if all(p.jct_s < q.jct_s for q in order[:i])]
    if not front or front[0].cost_usd > cost_usd * 1.02:
        return math.nan
    costs = [math.log(p.cost_usd) for p in front]
    return float(np.exp(np.interp(math.log(cost_usd), costs, [math.log(p.jct_s) for p in front])))


def _points(workload: Workload, found: Mapping[Key, Result], seeds: int) -> dict[str, list[Point]]:
    return {
        name: [Point.of([found[workload.name, spec, seed] for seed in range(seeds)]) for spec in specs]
        for name, specs in policies(workload).items()
    }


def _rows(workload: Workload, points: Points) -> list[Claim]:
    rows: list[Claim] = []
    joint = points[JOINT]
    wanted = AHEAD if workload.name == "everything" else _SAME
    for name, rivals in points.items():
        if name == JOINT:
            continue
        part = name.startswith(JOINT)
        for rival in rivals:
            ours_s = jct_at(joint, rival.cost_usd) if workload.rented else joint[0].jct_s
            what = f"{workload.name}: {name}, mean JCT over fairlead's"
            at = f"at ${rival.cost_usd:,.0f}" if workload.rented else "on the same GPUs"
            note = f"{rival.jct_s:,.0f} s {at}, {rival.energy_kwh:,.0f} kWh, {rival.late:.1f} late"
            if math.isnan(ours_s):
                note += "; no budget that was run is as cheap"
                rows.append(Claim(what, "x", None, math.nan, False, note))
            else:
                rows.append(at_least(what, "x", _SAME if part else wanted, rival.jct_s / ours_s, note))
    for own in joint:
        note = f"${own.cost_usd:,.0f}, {own.energy_kwh:,.0f} kWh, {own.late:.1f} late, p99 {own.p99_s:,.0f} s"
        rows.append(Claim(f"{workload.name}: fairlead, mean JCT", "s", None, own.jct_s, True, note))
    return rows


def _figure(workload: Workload, points: Points) -> Figure:
    def draw(axes: Axes) -> None:
        for name, found in points.items():
            if name.startswith(f"{JOINT},"):
                continue
            order = sorted(found, key=lambda p: p.cost_usd)
            style: dict[str, Any] = {"linewidth": 2.5, "color": "black"} if name == JOINT else {}
            x = [p.cost_usd for p in order] if workload.rented else [p.energy_kwh for p in order]
            axes.plot(x, [p.jct_s for p in order], marker="o", label=name, **style)
        axes.set_xlabel("paid (USD)" if workload.rented else "energy (kWh)")
        axes.set_ylabel("mean completion time (s)")
        axes.set_yscale("log")
        axes.legend(fontsize="small")

    return Figure(f"together-{workload.name}", f"{workload.name}: {workload.about}", draw)

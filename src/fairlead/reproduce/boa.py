"""BOA (arXiv 2602.01404, 2406.15560): the fastest training that a budget can buy, paper beside ours.

Its theory; Pollux and Tiresias on 64 owned GPUs beside their published figures; mean JCT against GPU-hours paid, every
policy swept over its own knob; and how well the budget is kept when first estimates are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from fairlead.report.claims import Claim, Figure, Reproduction
from fairlead.reproduce.boa_pareto import (
    Results,
    curves_json,
    draw_scene,
    scene_rows,
    trace_rows,
    tried_rows,
)
from fairlead.reproduce.boa_runs import CONTROLLED, ON_64, PUBLISHED, RIGHT, WRONG, paid_mean, planned
from fairlead.reproduce.boa_setting import (
    BOA,
    DECLARED,
    FULL,
    LEARNING,
    STREAM,
    TESTBED_G4DN,
    TESTBED_T4,
    Scale,
    Scene,
    scenes,
)
from fairlead.reproduce.boa_theory import epoch_rows, promise_rows, vector_rows
from fairlead.sim.parallel import run_all
from fairlead.sim.result import Result
from fairlead.sim.run import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NEAR = 0.10
"""How near the baselines on 64 owned GPUs should be to their published figures."""
KEPT = 0.02
"""How near to the budget the average of what is paid should be."""
_FILES = {
    TESTBED_T4: "testbed-t4",
    TESTBED_G4DN: "testbed-g4dn",
    "Pollux's trace 1": "trace-1",
    STREAM: "stream",
    DECLARED: "declared",
}


@dataclass(frozen=True)
class WithCurves(Reproduction):
    """The claims, and the points that the plots show."""

    curves: Sequence[Mapping[str, object]] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        """With a list of curves."""
        return {**super().as_json(), "curves": list(self.curves)}


def reproduce(data: Path | None, progress: Progress | None = None, scale: Scale = FULL) -> Reproduction:
    """All rows and figures of BOA's comparison."""
    world = scenes(data, scale)
    with TemporaryDirectory(prefix="fairlead-") as folder:
        plan = planned(data, world, Path(folder), scale)
        for run in plan.values():
            run.check()  # now, not after a quarter of an hour
        found = dict(zip(plan, run_all(list(plan.values()), progress=progress), strict=True))
    return shown(data, world, found, scale)


def shown(data: Path | None, world: Mapping[str, Scene], found: Results, scale: Scale) -> Reproduction:
    """The claims that follow from the runs."""
    rows = [*vector_rows(), *promise_rows(scale.promise_jobs)]
    if TESTBED_G4DN in world:
        rows += epoch_rows(world[TESTBED_G4DN])
    rows += on_64_rows(found)
    for scene in sorted(world.values(), key=lambda s: list(_FILES).index(s.name) if s.name in _FILES else len(_FILES)):
        rows += scene_rows(found, scene)
    rows += trace_rows(found, [s for s in world.values() if s.name.startswith("Pollux's trace")])
    if TESTBED_T4 in world:
        rows += tried_rows(found, world[TESTBED_T4])
    for name in CONTROLLED:
        if name in world:
            rows += _budget_rows(found, world[name])
    about = f"a drawn stream of {scale.stream_jobs:,} jobs with declared curves"
    if data is None:
        about += "; Pollux's traces and applications and the testbed's trace need --data and are left out"
    else:
        about += f", as many drawn from Pollux's traces, {len(scale.traces)} of these, the testbed's trace"
    return WithCurves("boa", about, rows, _figures(world, found), curves_json(found, world.values()))


# -- 64 GPUs of one's own ---------------------------------------------------------------------------------------------

_WHY_TIRESIAS = "published: 30 s also for a job's first start, times in whole minutes"
_WHY_POLLUX = f"{_WHY_TIRESIAS}, widths by a genetic search, ncf on one GPU"
OPTIMUS_S = 5682.0
"""Published, mean over eight traces."""


def on_64_rows(found: Results) -> list[Claim]:
    """Our figures on 64 T4 beside the published ones."""
    rows = []
    for name in ON_64:
        runs = {int(str(key[2])): r for key, r in found.items() if key[:2] == ("64 T4", name)}
        ours = {number: float(r.summary["mean_jct_s"]) for number, r in sorted(runs.items())}
        if name in PUBLISHED:
            for number, jct_s in ours.items():
                paper = PUBLISHED[name][number - 1]
                off = 100.0 * (jct_s / paper - 1.0)
                note = f"{off:+.1f} %; {_WHY_POLLUX if name == 'Pollux' else _WHY_TIRESIAS}"
                claim = f"mean JCT of {name} on 64 owned T4, trace {number}"
                rows.append(Claim(claim, "s", paper, jct_s, abs(jct_s - paper) <= NEAR * paper, note))
        elif ours:
            mean_s, paper_s = sum(ours.values()) / len(ours), OPTIMUS_S if name == "Optimus" else None
            note = f"over {len(ours)} traces" + ("; the published one is over eight" if paper_s else ", for comparison")
            holds = paper_s is None or abs(mean_s - paper_s) <= NEAR * paper_s
            rows.append(Claim(f"mean JCT of {name} on 64 owned T4", "s", paper_s, mean_s, holds, note))
    return rows


# -- the budget -------------------------------------------------------------------------------------------------------


def _budget_rows(found: Results, scene: Scene) -> list[Claim]:
    """What was paid on average until the last arrival, over the budget."""
    runs: dict[tuple[str, float], Result] = {}
    for line, name in ((BOA, RIGHT), (BOA + LEARNING, "right first rates, curves learnt")):
        runs |= {(name, float(str(key[2]))): r for key, r in found.items() if key[:2] == (scene.name, line)}
    for name in WRONG:
        if (scene.name, "control", name) in found:
            runs[name, CONTROLLED[scene.name]] = found[scene.name, "control", name]
    rows = []
    for (name, budget), result in runs.items():
        paid = paid_mean(result)
        off = 100.0 * (paid / budget - 1.0)
        holds = abs(off) <= 100.0 * KEPT
        why = "" if holds else f"; {_why_off(scene, budget, off)}"
        claim = f"paid on average, {scene.name}, budget {budget:g}, {name}"
        rows.append(Claim(claim, "GPUs", budget, paid, holds, f"{off:+.1f} %{why}"))
    return rows


def _why_off(scene: Scene, budget: float, off: float) -> str:
    if off > 0.0 and budget < 1.05 * scene.least_booted_gpus:
        return f"jobs need {scene.least_booted_gpus:.0f} GPUs at their most efficient widths"
    if scene.span_s < 20.0 * 28_800.0:
        return f"{scene.span_s / 3600.0:,.0f} h are few of the 8 h over which the controller makes up for a wrong start"
    return "not made up for by the controller"


# -- plots ------------------------------------------------------------------------------------------------------------


def _figures(world: Mapping[str, Scene], found: Results) -> list[Figure]:
    figures = [
        Figure(file, name[0].upper() + name[1:], draw_scene(found, world[name]))
        for name, file in _FILES.items()
        if name in world
    ]
    drawn = [name for name in CONTROLLED if name in world]

    def draw_budget(axes: Axes) -> None:
        scene = world[drawn[-1]]
        budget = CONTROLLED[scene.name]
        for name in (RIGHT, *WRONG):
            key = (scene.name, BOA, budget) if name == RIGHT else (scene.name, "control", name)
            if key not in found:
                continue
            result = found[key]
            timeline = result.timeline.filter(result.timeline["end_s"] <= scene.span_s)
            end_s = timeline["end_s"].to_numpy()
            paid = (timeline["paid_gpus"].to_numpy() * (end_s - timeline["start_s"].to_numpy())).cumsum() / end_s
            axes.plot(end_s / 3600.0, paid / budget, label=name)
        axes.axhspan(1.0 - KEPT, 1.0 + KEPT, color="#e3e7ec", zorder=0)
        axes.set(xlabel="hours since the start", ylabel="paid so far over the budget", ylim=(0.7, 1.3))
        axes.legend(fontsize=7, ncols=2)

    if drawn:
        figures.append(
            Figure("budget", "Running average of what is paid, first estimates right and wrong", draw_budget)
        )
    return figures

"""PAL (SC'24): variability-aware placement against packing, paper beside ours.

The comparison of the paper (64 GPUs, FIFO, rounds of 360 s, locality penalty 1.7), and what the paper leaves out: with
the one very slow GPU taken away or drained, on real nodes, under other orderings, and with scores that are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.measure import drifted
from fairlead.report.claims import Claim, Figure, Reproduction, about, at_least
from fairlead.reproduce.pal_setting import Setting, setting, without_outlier
from fairlead.sim.parallel import run_all
from fairlead.sim.result import Result
from fairlead.sim.run import Progress, Run
from fairlead.sim.truth import Drift, Watch
from fairlead.sim.world import World

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUND_S = 360.0
LOCALITY = 1.7
BASE, UNSTICKY, PM_FIRST, PAL = "packed-sticky", "packed-nonsticky", "pm-first:bins=2", "pal:bins=2"
SWEEP = (1.0, 1.5, 1.7, 2.0, 2.5, 3.0)
NOISE = 0.02
"""Differences up to this are within what the order of equal jobs or nodes makes."""
NOISY_SEEDS = (0, 1, 2)
WATCHED: dict[Watch | None, str] = {
    None: "never corrected, for comparison",
    "job": "corrected from job times",
    "rank": "corrected from rank times",
}

Key = tuple[object, ...]
Results = Mapping[Key, Result]


def reproduce(data: Path | None, progress: Progress | None = None) -> Reproduction:
    """All rows and figures of PAL's comparison."""
    world = setting(data)
    planned = {**_paper_runs(world), **_honest_runs(world), **_ordering_runs(world), **_wrong_score_runs(world)}
    found = dict(zip(planned, run_all(list(planned.values()), progress=progress), strict=True))
    rows = [
        *_published_rows(world, found),
        *_gain_rows(world, found),
        *_sweep_rows(world, found),
        *_honest_rows(world, found),
        *_ordering_rows(world, found),
        *_wrong_score_rows(world, found),
    ]
    if data is None:
        rows = [row if row.holds else _on_synthetic(row) for row in rows]
    return Reproduction("pal", world.data, rows, _figures(world, found))


def _on_synthetic(row: Claim) -> Claim:
    why = "on synthetic data" if row.paper is None else "on synthetic data the published figure is for orientation only"
    return replace(row, note=f"{row.note}; {why}".lstrip("; "))


# -- what is run ------------------------------------------------------------------------------------------------------


def _run(world: Setting, trace: str, placing: str, ordering: str = "fifo", locality: float = LOCALITY) -> Run:
    policy = f"ordering={ordering},placing={placing}"
    return Run(world.traces[trace], world.cluster, policy, World(locality=locality), ROUND_S)


def _paper_runs(world: Setting) -> dict[Key, Run]:
    runs: dict[Key, Run] = {}
    for trace in world.traces:
        for placing in (BASE, UNSTICKY, PM_FIRST, PAL, "pal"):
            runs["paper", trace, placing, LOCALITY] = _run(world, trace, placing)
        for locality in SWEEP:
            for placing in (BASE, PM_FIRST, PAL):
                runs["paper", trace, placing, locality] = _run(world, trace, placing, locality=locality)
    return runs


def _in(run: Run, **changed: Any) -> Run:
    """The same run in another world."""
    return replace(run, world=replace(run.world, **changed))


def _honest_runs(world: Setting) -> dict[Key, Run]:
    calm, outlier = without_outlier(world.cluster)
    runs: dict[Key, Run] = {}
    for trace in world.traces:
        runs["drained", trace, BASE] = _in(_run(world, trace, BASE), drained=(outlier,))
        for placing in (BASE, PM_FIRST, PAL, "pal"):
            runs["calm", trace, placing] = replace(_run(world, trace, placing), cluster=calm)
    return runs


def _ordering_runs(world: Setting) -> dict[Key, Run]:
    return {
        ("large", where, ordering, placing, locality): Run(
            world.large,
            cluster,
            f"ordering={ordering}:backfill=strict,placing={placing}",
            World(locality=locality),
            ROUND_S,
        )
        for where, cluster in world.large_clusters.items()
        for ordering in ("las", "srtf")
        for placing in (UNSTICKY, "pm-first", "pal")
        for locality in SWEEP
    }


def _wrong_score_runs(world: Setting) -> dict[Key, Run]:
    runs: dict[Key, Run] = {}
    true = world.cluster.variability
    assert true is not None
    healthy = world.cluster.gpus // 4 + 1
    drift = (Drift(86_400.0, healthy, 2.0),)
    for trace in world.traces:
        believed = _run(world, trace, "pal")
        for seed in NOISY_SEEDS:
            measured = world.cluster.with_variability(drifted(true, noise=0.1, seed=seed))
            noisy = replace(believed, cluster=measured)
            for watch in WATCHED:
                runs["noise", trace, seed, watch] = _in(noisy, true_variability=true, correct_scores=watch)
        runs["drift", trace, BASE] = _in(_run(world, trace, BASE), drifts=drift)
        for watch in WATCHED:
            runs["drift", trace, watch] = _in(believed, drifts=drift, correct_scores=watch)
        # Perfect knowledge of it: nobody is put there once it is slow. It is slow for all but the first day.
        runs["drift", trace, "perfect"] = _in(believed, drained=(healthy,))
    return runs


# -- what comes out ---------------------------------------------------------------------------------------------------


def _jct(result: Result) -> float:
    return float(result.summary["mean_jct_s"])


def gain(results: Iterable[Result], bases: Iterable[Result], of: str = "mean_jct_s") -> float:
    """Geometric mean over traces of what is saved against the base, in %."""
    ratios = [r.summary[of] / b.summary[of] for r, b in zip(results, bases, strict=True)]
    return 100.0 * (1.0 - math.exp(sum(map(math.log, ratios)) / len(ratios)))


def _of(found: Results, world: Setting, kind: str, *rest: object) -> list[Result]:
    return [found[(kind, trace, *rest)] for trace in world.traces]


def _published_rows(world: Setting, found: Results) -> list[Claim]:
    rows = []
    for placing, within in ((BASE, 1.0), (UNSTICKY, 1.0), (PM_FIRST, 1.0), (PAL, None)):
        name = placing.split(":")[0].replace("-", "_")
        for trace in world.traces:
            expected = world.published.get(trace, {}).get(name)
            if expected is None:
                continue
            summary = found["paper", trace, placing, LOCALITY].summary
            for key, what in (("mean_jct_s", "mean JCT"), ("makespan_s", "makespan")):
                slack = within if within is not None else 0.01 * expected[key]
                rows.append(about(f"{what} of {placing}, {trace}", "s", expected[key], summary[key], slack))
    return rows


def _gain_rows(world: Setting, found: Results) -> list[Claim]:
    base = _of(found, world, "paper", BASE, LOCALITY)
    pm_first, pal, ours = (_of(found, world, "paper", placing, LOCALITY) for placing in (PM_FIRST, PAL, "pal"))
    each = sorted(100.0 * (1.0 - _jct(p) / _jct(b)) for p, b in zip(pal, base, strict=True))
    here = f"over {len(base)} traces; the paper has eight"
    smallest = "a replica of the published code gives 5.5 to 62.4 over the eight traces, not the paper's 21 to 59"
    return [
        _gain("PM-First, mean JCT saved against packed-sticky (geomean)", 40.0, gain(pm_first, base), here),
        _gain("PAL, mean JCT saved against packed-sticky (geomean)", 43.0, gain(pal, base), here),
        _gain("PAL, makespan saved against packed-sticky (geomean)", 47.0, gain(pal, base, "makespan_s"), here),
        _gain("PAL, smallest gain of a trace", 21.0, each[0], smallest),
        _gain("PAL, largest gain of a trace", 59.0, each[-1], here),
        at_least(
            "PAL with true silhouette bins, mean JCT saved (geomean)", "%", gain(pal, base) - 2.0, gain(ours, base),
            "our default; the published code always takes two bins",
        ),
        _utilisation(world, pal, base),
    ]  # fmt: skip


def _gain(claim: str, paper: float, ours: float, note: str) -> Claim:
    """A gain that is borne out when ours is no more than two points less."""
    return Claim(claim, "%", paper, ours, ours >= paper - 2.0, note)


def _utilisation(world: Setting, pal: Sequence[Result], base: Sequence[Result]) -> Claim:
    """Nominal work of the measured jobs over what the cluster could have done until they were done."""

    def mean(results: Sequence[Result]) -> float:
        done = [r.jobs.select((r.jobs["gpus"] * r.jobs["duration_s"]).sum()).item() for r in results]
        capacity = [world.cluster.gpus * float(r.summary["makespan_s"]) for r in results]
        return sum(float(d) / c for d, c in zip(done, capacity, strict=True)) / len(results)

    ours = 100.0 * (mean(pal) / mean(base) - 1.0)
    note = "the paper does not say how it counts; here: nominal work over GPUs x makespan"
    return Claim("PAL, utilisation gained against packed-sticky", "%", 28.0, ours, ours >= 28.0, note)


def _sweep_rows(world: Setting, found: Results) -> list[Claim]:
    rows = []
    for placing, name, paper in ((PM_FIRST, "PM-First", (30.0, 9.0)), (PAL, "PAL", (30.0, 20.0))):
        for locality, figure in zip((1.0, 3.0), paper, strict=True):
            ours = gain(_of(found, world, "paper", placing, locality), _of(found, world, "paper", BASE, locality))
            holds = abs(ours - figure) <= 5.0
            note = (
                ""
                if holds
                else "the published sweep does not reproduce; a replica of its code gives 44 % and 35 to 40 %"
            )
            rows.append(
                Claim(f"{name}, mean JCT saved at locality penalty {locality:g}", "%", figure, ours, holds, note)
            )
    return rows


def _honest_rows(world: Setting, found: Results) -> list[Claim]:
    base = _of(found, world, "paper", BASE, LOCALITY)
    pal = _of(found, world, "paper", PAL, LOCALITY)
    drained = _of(found, world, "drained", BASE)
    calm_base, calm_pm, calm_pal = (_of(found, world, "calm", placing) for placing in (BASE, PM_FIRST, PAL))
    left, left_pm_first = gain(calm_pal, calm_base), gain(calm_pm, calm_base)
    return [
        at_least(
            "packed-sticky with the slowest GPU drained, mean JCT saved", "%", 20.0, gain(drained, base),
            "how much of the headline an operator gets by draining one GPU (replica: 30.7)",
        ),
        at_least("PAL against draining that GPU, mean JCT saved", "%", 0.0, gain(pal, drained), "what PAL itself adds"),
        at_least("PAL without that outlier, mean JCT saved", "%", 0.0, left),
        at_least(
            "PM-First without that outlier, mean JCT saved", "%", 0.0, left_pm_first,
            "it pays for good GPUs with spanning nodes",
        ),
    ]  # fmt: skip


def _ordering_rows(world: Setting, found: Results) -> list[Claim]:
    rows = []
    for where in world.large_clusters:
        for ordering in ("las", "srtf"):
            for other in ("pm-first", UNSTICKY):
                loss, at = max((_loss(found, where, ordering, other, at), at) for at in SWEEP)
                holds = loss <= 100.0 * NOISE
                note = f"the worst is at locality penalty {at:g}" + ("" if holds else f"; {_WHY_WORSE}")
                claim = f"PAL against {other}, {ordering}, 256 GPUs, {where}: most that it loses over penalties 1 to 3"
                rows.append(Claim(claim, "%", None, loss, holds, note))
    return rows


def _loss(found: Results, where: str, ordering: str, other: str, locality: float) -> float:
    """By how much PAL's mean JCT is above another placing's, in %."""
    pal = _jct(found["large", where, ordering, "pal", locality])
    return 100.0 * (pal / _jct(found["large", where, ordering, other, locality]) - 1.0)


_WHY_WORSE = "PAL keeps to fast GPUs and so breaks up nodes that wider jobs behind it need whole"


def _wrong_score_rows(world: Setting, found: Results) -> list[Claim]:
    base = _of(found, world, "paper", BASE, LOCALITY)
    perfect = gain(_of(found, world, "paper", "pal", LOCALITY), base)
    rows = []
    for watch, how in WATCHED.items():
        kept = [100.0 * gain(_of(found, world, "noise", seed, watch), base) / perfect for seed in NOISY_SEEDS]
        note = f"of a gain of {perfect:.1f} %; over {len(kept)} draws: {min(kept):.0f} to {max(kept):.0f}"
        rows.append(
            _kept(f"PAL with scores 10 % wrong, {how}: part of the gain kept", sum(kept) / len(kept), note, watch)
        )
    drift_base = _of(found, world, "drift", BASE)
    best = gain(_of(found, world, "drift", "perfect"), drift_base)
    for watch, how in WATCHED.items():
        kept_drift = 100.0 * gain(_of(found, world, "drift", watch), drift_base) / best
        note = f"of the {best:.1f} % of a PAL that never uses that GPU, not even on the first day, when it is good"
        rows.append(
            _kept(f"PAL with one GPU twice as slow after a day, {how}: part of the gain kept", kept_drift, note, watch)
        )
    return rows


def _kept(claim: str, ours: float, note: str, watch: Watch | None) -> Claim:
    holds = ours >= 90.0
    if not holds:
        note += {
            None: "; this is what correction is for",
            "job": "; a job's time shows its slowest GPU only, and the others stay as uncertain as they were",
            "rank": "",
        }[watch]
    return Claim(claim, "%", None, ours, holds, note)


# -- plots ------------------------------------------------------------------------------------------------------


def _figures(world: Setting, found: Results) -> list[Figure]:
    def draw_traces(axes: Axes) -> None:
        names = (BASE, UNSTICKY, PM_FIRST, PAL)
        for i, placing in enumerate(names):
            base = _of(found, world, "paper", BASE, LOCALITY)
            ratios = [
                _jct(r) / _jct(b) for r, b in zip(_of(found, world, "paper", placing, LOCALITY), base, strict=True)
            ]
            at = [t + (i - 1.5) * 0.2 for t in range(len(ratios))]
            axes.bar(at, ratios, width=0.2, label=placing.split(":")[0])
        axes.set_xticks(range(len(world.traces)), labels=[t.split("-")[-1] for t in world.traces])
        axes.set(xlabel="trace", ylabel="mean JCT over packed-sticky", ylim=(0, 1.35))
        axes.legend(ncols=4, fontsize=8, loc="upper center")

    def draw_sweep(axes: Axes) -> None:
        for placing in (PM_FIRST, PAL):
            gains = [
                gain(_of(found, world, "paper", placing, at), _of(found, world, "paper", BASE, at)) for at in SWEEP
            ]
            (line,) = axes.plot(SWEEP, gains, marker="o", label=placing.split(":")[0])
            ends = (30.0, 9.0) if placing == PM_FIRST else (30.0, 20.0)
            axes.plot(
                (1.0, 3.0), ends, linestyle="--", color=line.get_color(), label=f"{placing.split(':')[0]}, the paper"
            )
        axes.set_xticks(SWEEP)
        axes.set(xlabel="locality penalty", ylabel="mean JCT saved (%)", ylim=(0, None))
        axes.legend()

    def draw_honest(axes: Axes) -> None:
        base = _of(found, world, "paper", BASE, LOCALITY)
        calm = _of(found, world, "calm", BASE)
        bars = {
            "PAL": gain(_of(found, world, "paper", PAL, LOCALITY), base),
            "drain the\noutlier": gain(_of(found, world, "drained", BASE), base),
            "PAL against\ndraining": gain(
                _of(found, world, "paper", PAL, LOCALITY), _of(found, world, "drained", BASE)
            ),
            "PAL, no\noutlier": gain(_of(found, world, "calm", PAL), calm),
            "PM-First,\nno outlier": gain(_of(found, world, "calm", PM_FIRST), calm),
        }
        axes.bar(list(bars), list(bars.values()), color=["#0072b2", "#8a94a3", "#009e73", "#56b4e9", "#e69f00"])
        axes.set_ylabel("mean JCT saved against packed-sticky (%)")

    return [
        Figure("traces", "Mean completion time by trace", draw_traces),
        Figure("locality", "What is left of the gain as spanning nodes costs more", draw_sweep),
        Figure("outlier", "How much of it is one GPU", draw_honest),
    ]

"""MuxFlow (arXiv 2303.13803): best-effort jobs beside latency-critical services, paper beside ours.

1,000 GPUs over a working day and a whole day under every way to share, the ablations, how much hangs on what we had to
make up (offline load, the drawn fleet, the predictor), and bursts.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl

from fairlead.policy.guarding import GuardConfig
from fairlead.report.claims import Claim, Figure, Reproduction, about, at_least
from fairlead.reproduce import muxflow_setting as setting
from fairlead.reproduce.muxflow_setting import (
    BEFORE,
    MUXFLOW,
    PREDICTED,
    PRIORITY,
    SCENES,
    TIME,
    Results,
    Scene,
    mean_jct_s,
    misses_ppm,
    percent,
    slower,
)
from fairlead.sim.parallel import run_all
from fairlead.sim.run import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairlead.sim.result import Result

_USED = {
    "GPU utilisation": ("fleet_utilisation_frac", 26.0, 76.0),
    "SM activity": ("fleet_sm_activity_frac", 16.0, 33.0),
    "memory": ("fleet_memory_frac", 42.0, 48.0),
}
"""The paper's fleet before and after, in %."""
_AS_DRAWN = 3.0
"""Points by which the drawn fleet may differ from the paper's."""
JCT, OVERSOLD = (1.10, 2.24), (1.08, 1.97)
"""The paper's ranges against the two kinds of time-sharing."""
SLOWER, SLOWER_TIME = 20.0, 50.0
MISSES_PPM = 1000.0
"""What sharing may add: 0.1 % of the requests."""


def reproduce(data: Path | None, progress: Progress | None = None) -> Reproduction:
    """All rows and figures of MuxFlow's comparison."""
    with TemporaryDirectory(prefix="fairlead-") as folder:
        predictor = Path(folder) / "predictor.json"
        setting.train_predictor(predictor)
        planned = setting.planned(data, predictor)
        found = dict(zip(planned, run_all(list(planned.values()), progress=progress), strict=True))
    rows: list[Claim] = []
    for scene in SCENES:
        rows += [*_fleet_rows(scene, found), *_service_rows(scene, found), *_job_rows(scene, found)]
    rows += [*_ablation_rows(found), *_sensitivity_rows(found), *_burst_rows(found)]
    if data is not None:
        rows += _data_rows(found, data)
    about_it = f"a drawn fleet of {setting.GPUS:,} services with offline jobs; contention and loads are ours"
    about_it += "" if data is not None else "; measured request rates and Gavel's pairs need --data and are left out"
    return Reproduction("muxflow", about_it, rows, _figures(found))


# -- one scene --------------------------------------------------------------------------------------------------------


def _fleet_rows(scene: Scene, found: Results) -> list[Claim]:
    before, after = found[scene.name, BEFORE], found[scene.name, MUXFLOW]
    rows = []
    for what, (key, paper, _) in _USED.items():
        note = "by design: the fleet is drawn to look like the paper's over a whole day"
        if scene is setting.WORKING_DAY:
            note = "the fleet of the whole day, looked at from 8 to 20 o'clock: busier than the paper's mean"
        within = _AS_DRAWN if scene is setting.WHOLE_DAY else 3 * _AS_DRAWN
        rows.append(about(f"{what} before, {scene.name}", "%", paper, percent(before, key), within, note))
    for what, (key, _, paper) in _USED.items():
        ours = percent(after, key)
        rows.append(at_least(f"{what} after, {scene.name}", "%", paper, ours, paper=paper))
    note = (
        f"the paper: up to 86 %. Not comparable: we put in offline work for {100 * setting.LOAD:.0f} % of the GPUs, "
        "and our contention model takes next to nothing from jobs beside services that are this idle"
    )
    oversold = "fleet_oversold_frac"
    rows.append(about(f"oversold GPU, {scene.name}", "%", 86.0, percent(after, oversold), _AS_DRAWN, note))
    for base in (TIME, PRIORITY):
        ours = percent(after, oversold) / percent(found[scene.name, base], oversold)
        note = f"the paper: {OVERSOLD[0]} to {OVERSOLD[1]} times"
        claim = f"oversold GPU over that of {base}, {scene.name}"
        rows.append(at_least(claim, "x", OVERSOLD[0], ours, note, paper=OVERSOLD[0]))
    return rows


def _service_rows(scene: Scene, found: Results) -> list[Claim]:
    after, sliced = found[scene.name, MUXFLOW], found[scene.name, TIME]
    rows = []
    for what, key in (("mean", "service_slowdown"), ("p99", "service_p99_slowdown")):
        ours = slower(after, key)
        rows.append(
            Claim(f"services slower, {what}, {scene.name}", "%", SLOWER, ours, ours < SLOWER, "the paper: under")
        )
    ours = slower(sliced)
    note = "the paper: up to; not what MuxFlow is to show, but what it is better than"
    rows.append(
        Claim(f"services slower under time-sharing, {scene.name}", "%", SLOWER_TIME, ours, ours > slower(after), note)
    )
    with_it, alone = misses_ppm(after), misses_ppm(after, "slo_miss_alone_frac")
    note = f"alone {alone:.1f}, time-sharing {misses_ppm(sliced):,.0f}; allowed: alone + {MISSES_PPM:,.0f}"
    rows.append(Claim(f"SLO misses, {scene.name}", "ppm", None, with_it, with_it <= alone + MISSES_PPM, note))
    evicted, disabled = int(after.summary["evictions"]), int(after.summary["gpus_disabled"])
    jobs = setting.offline(after).height
    note = f"of {jobs:,} offline jobs; Overlimits {after.summary['overlimits']}, GPUs disabled {disabled}"
    rows.append(Claim(f"evictions, {scene.name}", "jobs", None, float(evicted), evicted <= jobs / 100, note))
    return rows


def _job_rows(scene: Scene, found: Results) -> list[Claim]:
    whole = found[scene.name, MUXFLOW]
    jct_s, makespan_s = mean_jct_s(whole), setting.makespan_s(whole)
    rows = []
    for base in (TIME, PRIORITY):
        other = found[scene.name, base]
        ours = mean_jct_s(other) / jct_s
        note = f"{mean_jct_s(other) / 3600:.2f} against {jct_s / 3600:.2f} h; the paper: {JCT[0]} to {JCT[1]} times"
        rows.append(at_least(f"offline JCT of {base} over ours, {scene.name}", "x", JCT[0], ours, note, paper=JCT[0]))
        ours = setting.makespan_s(other) / makespan_s
        note = f"{setting.makespan_s(other) / 3600:.1f} against {makespan_s / 3600:.1f} h"
        rows.append(at_least(f"offline makespan of {base} over ours, {scene.name}", "x", 1.0, ours, note))
    for name in setting.ABLATIONS:
        longer = _longer(found[scene.name, name], whole)
        note = "matching itself brings little here, see below" if "dynamic" not in name and "both" not in name else (
            "with a static share of 0.5, which only VGG16 feels; see the other shares below"
        )  # fmt: skip
        rows.append(Claim(f"offline JCT longer {name}, {scene.name}", "%", None, longer, longer > 0.0, note))
    return rows


# -- what hangs on what -----------------------------------------------------------------------------------------------


def _longer(other: Result, whole: Result) -> float:
    """By how much offline jobs take longer, in %."""
    return 100.0 * (mean_jct_s(other) / mean_jct_s(whole) - 1.0)


def _ablation_rows(found: Results) -> list[Claim]:
    """What dynamic shares, matching and the predictor bring, where our choices do not decide it."""
    rows = []
    by_seed = [
        _longer(found["fleet", setting.LOAD, seed, setting.UNMATCHED], found["fleet", setting.LOAD, seed, MUXFLOW])
        for seed in setting.SEEDS
    ]
    note = (
        f"seeds {', '.join(map(str, setting.SEEDS))}: {', '.join(f'{x:.2f}' for x in by_seed)}; nearly every pair keeps"
    )
    note += " all of its throughput, so there is little to choose"
    claim = f"offline JCT longer without matching, least of {len(by_seed)} seeds, {setting.SMALL_GPUS} GPUs"
    rows.append(Claim(claim, "%", None, min(by_seed), min(by_seed) > 0.0, note))
    for kind in (setting.LIGHT, setting.HEAVY):
        whole = found[kind, MUXFLOW]
        for share in setting.STATIC:
            static = found[kind, share]
            longer = _longer(static, whole)
            note = f"{_harm(static)}; dynamic: {_harm(whole)}"
            note += "" if longer > 0.0 else ": faster, at that price"
            claim = f"offline JCT longer with a static share of {share}, {kind}"
            rows.append(Claim(claim, "%", None, longer, longer > 0.0, note))
        unmatched, trained = _longer(found[kind, setting.UNMATCHED], whole), _longer(found[kind, PREDICTED], whole)
        rows.append(Claim(f"offline JCT longer without matching, {kind}", "%", None, unmatched, unmatched > 0.0))
        note = f"trees on {setting.PAIRS:,} noisy pairs of other workloads; without matching {unmatched:.2f} % longer"
        note += "" if trained < unmatched else ": no better than no matching"
        claim = f"offline JCT longer with a trained predictor than by the rule, {kind}"
        rows.append(Claim(claim, "%", None, trained, trained < unmatched, note))
        ratio = mean_jct_s(found[kind, TIME]) / mean_jct_s(whole)
        note = f"services slower by {slower(whole):.1f} %, p99 {slower(whole, 'service_p99_slowdown'):.1f} %"
        claim = f"offline JCT of time-sharing over ours, {kind}"
        rows.append(at_least(claim, "x", JCT[0], ratio, note, paper=JCT[0]))
    return rows


def _harm(result: Result) -> str:
    evicted, disabled = result.summary["evictions"], result.summary["gpus_disabled"]
    return f"{evicted} evictions, {disabled} GPUs disabled, {misses_ppm(result):.0f} ppm over the SLO"


def _sensitivity_rows(found: Results) -> list[Claim]:
    rows = []
    for load, seed in [*((x, setting.SEED) for x in setting.LOADS), *((setting.LOAD, x) for x in setting.SEEDS[1:])]:
        ours, sliced, last = (found["fleet", load, seed, name] for name in setting.COMPARED)
        where = f"{setting.SMALL_GPUS} GPUs, 24 h, offline load {load:g}, seed {seed}"
        note = (
            f"priority {mean_jct_s(last) / mean_jct_s(ours):.2f}; "
            f"utilisation {percent(ours, _USED['GPU utilisation'][0]):.0f} %, "
            f"services slower by {slower(ours):.1f} %, p99 {slower(ours, 'service_p99_slowdown'):.1f} %"
        )
        ratio = mean_jct_s(sliced) / mean_jct_s(ours)
        rows.append(at_least(f"offline JCT of time-sharing over ours, {where}", "x", JCT[0], ratio, note, paper=JCT[0]))
    return rows


def _burst_rows(found: Results) -> list[Claim]:
    config = GuardConfig()
    reacts_s = config.slo_windows * config.window_s
    calm, burst = found["fleet", setting.LOAD, setting.SEED, MUXFLOW], found["bursts", MUXFLOW]
    assert burst.evictions is not None
    during = burst.evictions.filter(pl.col("time_s").is_between(setting.BURST.start_s, setting.BURST.end_s))
    first = during.group_by("gpu").agg(pl.col("time_s").min())["time_s"] - setting.BURST.start_s
    at_once = int((first <= reacts_s + config.window_s).sum())
    some = f"{setting.SMALL_GPUS // setting.EVERY} of {setting.SMALL_GPUS} services"
    windows = f"{config.slo_windows} windows of {config.window_s:g} s"
    note = f"{some} at 5 times their load, 12:00 to 12:30; {windows}; {at_once} of {len(first)} GPUs in that time"
    waited_s = _number(first.median())
    claim = "bursts: from the start to the eviction, median"
    rows = [Claim(claim, "s", None, waited_s, 0 < waited_s <= reacts_s + config.window_s, note)]
    over_alone = during.select(
        before=pl.col("p99_s") / pl.col("p99_alone_s"), after=pl.col("p99_after_s") / pl.col("p99_alone_s")
    )
    after = 100.0 * (_number(over_alone["after"].max()) - 1.0)
    worst = _number(over_alone["before"].max())
    note = f"p99 over that alone, right after the eviction; before it up to {worst:.1f} times"
    rows.append(Claim("bursts: services slower after the eviction", "%", None, after, abs(after) < 1e-6, note))
    added, by_time = _added_ppm(burst), _added_ppm(found["bursts", TIME])
    alone = misses_ppm(burst, "slo_miss_alone_frac")
    note = f"alone {alone:,.0f}: five times the load is more than many can serve; time-sharing adds {by_time:,.0f}"
    rows.append(Claim("bursts: SLO misses more than alone", "ppm", None, added, added <= MISSES_PPM, note))
    return [*rows, _nothing_lost(burst, calm), _later(burst, calm)]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _added_ppm(result: Result) -> float:
    return misses_ppm(result) - misses_ppm(result, "slo_miss_alone_frac")


def _nothing_lost(burst: Result, calm: Result) -> Claim:
    jobs = setting.offline(burst)
    ended = jobs.filter(pl.col("finish_s") > 0.0).height
    lost = float(jobs.height - ended)
    hours = jobs["duration_s"].sum() / 3600
    note = f"all {ended:,} end, with {hours:,.0f} GPU-hours of work; {burst.summary['evictions']} evictions in 24 h"
    same = jobs.height == setting.offline(calm).height
    return Claim("bursts: offline jobs lost", "jobs", None, lost, lost == 0 and same, note)


def _later(burst: Result, calm: Result) -> Claim:
    longer = _longer(burst, calm)
    note = f"than without bursts; GPUs disabled {burst.summary['gpus_disabled']}"
    return Claim("bursts: offline JCT longer", "%", None, longer, longer < 10.0, note)


def _data_rows(found: Results, data: Path) -> list[Claim]:
    before, ours, sliced, last = (found["measured", name] for name in (BEFORE, *setting.COMPARED))
    where = f"Alibaba's request rate, {setting.SMALL_GPUS} GPUs, {setting.MEASURED_H:g} h"
    key = _USED["GPU utilisation"][0]
    note = f"before {percent(before, key):.1f} %"
    ratio = mean_jct_s(sliced) / mean_jct_s(ours)
    slow = slower(ours, "service_p99_slowdown")
    pairs = setting.gavel(data)
    known = pairs.matching_trained_frac
    score = pairs.throughput
    held_out = 100.0 * (pairs.matching_frac or 0.0)
    note_pairs = (
        f"trees, {pairs.pairs} pairs (V100), four fifths known, as in use; {held_out:.0f} % where every pair is "
        f"held out; error {score.mae:.3f}, rank correlation {score.spearman:.2f} on held-out pairs"
    )
    return [
        at_least(f"GPU utilisation after, {where}", "%", 76.0, percent(ours, key), note, paper=76.0),
        at_least(f"offline JCT of time-sharing over ours, {where}", "x", JCT[0], ratio,
                 f"priority {mean_jct_s(last) / mean_jct_s(ours):.2f}", paper=JCT[0]),
        Claim(f"services slower, p99, {where}", "%", SLOWER, slow, slow < SLOWER, "the paper: under"),
        at_least("throughput of the matching by a trained predictor over the best, Gavel's pairs", "%", 95.0,
                 100.0 * (known or 0.0), note_pairs),
    ]  # fmt: skip


# -- plots ------------------------------------------------------------------------------------------------------------


def _figures(found: Results) -> list[Figure]:
    looks = {
        "GPU utilisation": ("utilisation_frac", "#0072b2"),
        "SM activity": ("sm_activity_frac", "#e69f00"),
        "memory": ("memory_frac", "#009e73"),
        "oversold": ("oversold_frac", "#d55e00"),
    }

    def draw_day(axes: Axes) -> None:
        for name, style in ((BEFORE, (0, (3, 2))), (MUXFLOW, "-")):
            fleet = found[setting.WHOLE_DAY.name, name].fleet
            assert fleet is not None
            hourly = fleet.group_by((pl.col("start_s") // 1200.0).alias("part")).mean().sort("part")
            for label, (column, colour) in looks.items():
                if name == MUXFLOW or column != "oversold_frac":
                    shown = f"{label}, after" if name == MUXFLOW else None
                    axes.plot(
                        hourly["start_s"] / 3600.0, 100.0 * hourly[column], linestyle=style, color=colour, label=shown
                    )
        axes.set(xlabel="hour of the day (dashed: before)", ylabel="% of all GPUs", xlim=(0, 24), ylim=(0, 105))
        axes.legend(fontsize=8, loc="lower center", ncols=2)

    def draw_jct(axes: Axes) -> None:
        names = [*POLICY_BARS]
        for group, scene in enumerate(SCENES):
            at = [place + (group - 0.5) * 0.4 for place in range(len(names))]
            hours = [mean_jct_s(found[scene.name, name]) / 3600.0 for name in names]
            axes.bar(at, hours, width=0.38, label=scene.name, color=("#56b4e9", "#0072b2")[group])
        axes.set_xticks(range(len(names)), labels=[n.replace(" ", "\n", 1) for n in names], fontsize=8)
        axes.set(ylabel="mean JCT of offline jobs (h)")
        axes.legend(fontsize=8)

    def draw_slower(axes: Axes) -> None:
        names = (MUXFLOW, TIME, PRIORITY)
        for group, (label, key) in enumerate((("mean", "service_slowdown"), ("p99", "service_p99_slowdown"))):
            at = [place + (group - 0.5) * 0.4 for place in range(len(names))]
            values = [slower(found[setting.WHOLE_DAY.name, name], key) for name in names]
            axes.bar(at, values, width=0.38, label=label, color=("#56b4e9", "#0072b2")[group])
        axes.axhline(SLOWER, color="#1b2430", linewidth=1, linestyle=":", label="the paper's bound for MuxFlow")
        axes.set_xticks(range(len(names)), labels=list(names))
        axes.set(ylabel="services slower than alone (%)")
        axes.legend(fontsize=8)

    return [
        Figure("day", "A fleet of services over the day, before and after", draw_day),
        Figure("jct", "Offline jobs by way of sharing", draw_jct),
        Figure("latency", "What services pay, 24 h", draw_slower),
    ]


POLICY_BARS = (MUXFLOW, *setting.ABLATIONS, TIME, PRIORITY)

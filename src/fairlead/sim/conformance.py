"""What every policy must satisfy, as a check that policy authors run over their own.

`check("ordering=mine,placing=packed")` raises `ConformanceError` with the first law that was broken:

- every job of some crowded little traces ends, and every plan obeys the laws;
- the same run twice gives the same plans;
- names change nothing;
- the future is not read: jobs that later turn out longer change no plan before they would have ended (policies that
  declare an oracle are excused);
- a new stack that is shown the view as it is decides as the one that saw it grow, so that a controller can restart
  (policies that draw lots are excused; sharings, whose trials a controller has to save; and elastic sizings, which
  learn curves and rates).
"""

from __future__ import annotations

import random

import polars as pl

from fairlead.errors import FairleadError, RunError
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.plan import Place, Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.failures import Failures
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace

Story = list[tuple[float, list[int], list[Place]]]
"""Every plan that changed something: when, who was evicted, who was placed where."""


class ConformanceError(RunError):
    """A policy breaks one of the rules that all policies obey."""


def check(spec: str, *, round_s: float | None = None, traces: int = 4) -> None:
    """Raise `ConformanceError` unless the policy behaves."""
    for seed in range(traces):
        trace, cluster = _crowd(seed), _cluster(seed)
        if registry.build(spec, round_s=round_s).powering.rents:
            cluster = cluster.rented(Rental(boot_s=7.0, minimum_s=10.0, step_s=5.0))
        story, finish_s = _run(spec, round_s, trace, cluster, fresh=True)
        if _run(spec, round_s, trace, cluster)[0] != story:
            raise ConformanceError(f"{spec} decides differently when the same run is repeated (seed {seed})")
        renamed = Trace(trace.frame.with_columns(pl.concat_str(pl.lit("x"), "job_id").alias("job_id")))
        if _run(spec, round_s, renamed, cluster)[0] != story:
            raise ConformanceError(f"{spec} decides differently when jobs are renamed (seed {seed})")
        if not registry.build(spec, round_s=round_s).needs_oracle:
            _check_future(spec, round_s, trace, cluster, story, finish_s, seed)


def _check_future(
    spec: str, round_s: float | None, trace: Trace, cluster: Cluster, story: Story, finish_s: list[float], seed: int
) -> None:
    rng = random.Random(seed)
    longer = [rng.random() < 0.5 for _ in finish_s]
    durations = [d * 3.0 if more else d for d, more in zip(trace.frame["duration_s"], longer, strict=True)]
    until_s = min((f for f, more in zip(finish_s, longer, strict=True) if more), default=float("inf"))
    other = Trace(trace.frame.with_columns(pl.Series("duration_s", durations)))
    retold = _run(spec, round_s, other, cluster)[0]
    if [part for part in story if part[0] < until_s] != [part for part in retold if part[0] < until_s]:
        raise ConformanceError(
            f"{spec} reads the future: plans before {until_s} s depend on what ends later (seed {seed})"
        )


def _run(
    spec: str, round_s: float | None, trace: Trace, cluster: Cluster, *, fresh: bool = False
) -> tuple[Story, list[float]]:
    witness = _Witness(spec, round_s, fresh)
    try:
        result = Simulation(trace, cluster, witness, failures=Failures(2.0, 0.1), locality=1.5, restart_s=2.0).run()
    except ConformanceError:
        raise
    except FairleadError as error:
        raise ConformanceError(f"{spec}: {error}") from error
    return witness.story, result.jobs["finish_s"].to_list()


class _Witness(Stack):
    """The stack itself, writing down what it decides, and comparing it with a new one."""

    def __init__(self, spec: str, round_s: float | None, fresh: bool) -> None:
        made = registry.build(spec, round_s=round_s)
        super().__init__(
            made.sizing, made.ordering, made.sharing, made.placing, made.powering, round_s=round_s, spec=made.spec
        )
        self._args = (spec, round_s)
        learns = made.sharing.shares or made.sizing.elastic
        self._fresh = fresh and not made.placing.redraws and not learns
        self.story: Story = []

    def decide(self, view: View) -> Plan:
        """Decide, and write it down."""
        plan = super().decide(view)
        if self._fresh:
            again = registry.build(self._args[0], round_s=self._args[1]).decide(view)
            if (sorted(plan.evict), sorted(plan.place)) != (sorted(again.evict), sorted(again.place)):
                raise ConformanceError(
                    f"{self.spec} at {view.now_s} s: {plan}, but when shown the same view anew: {again}"
                )
        if plan.evict or plan.place:
            self.story.append((view.now_s, list(plan.evict), list(plan.place)))
        return plan


def _crowd(seed: int) -> Trace:
    """More jobs than the cluster holds, of all widths, many at the same moments."""
    rng = random.Random(seed)
    rows = sorted(
        (float(rng.randrange(400)), rng.choice((1, 1, 1, 2, 4, 4, 6, 12)), float(rng.randrange(5, 300)))
        for _ in range(40)
    )
    frame = {
        "job_id": [str(i) for i in range(len(rows))],
        "submit_s": [r[0] for r in rows],
        "gpus": [r[1] for r in rows],
        "duration_s": [r[2] for r in rows],
        "min_gpus": [rng.choice((1, r[1])) for r in rows],
        "max_gpus": [rng.choice((12, r[1])) for r in rows],
        "model": [rng.choice(("resnet50", "BERT", "PointNet", "vgg19")) for _ in rows],
        "priority": [rng.randrange(3) for _ in rows],
    }
    return Trace.from_columns(pl.DataFrame(frame))


def _cluster(seed: int) -> Cluster:
    rng = random.Random(seed)
    scores = {name: [rng.choice((0.9, 1.0, 1.1, 1.6)) for _ in range(12)] for name in "ABCD"}
    return parse_shape("3x4").with_variability(Variability(scores))

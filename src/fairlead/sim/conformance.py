"""What every policy must satisfy, as a check that policy authors run over their own.

`check("ordering=mine,placing=packed")` raises `ConformanceError` with the first law that was broken:

- every job of some crowded little traces ends, and every plan obeys the laws;
- the same run twice gives the same plans;
- names change nothing;
- the future is not read: jobs that later turn out longer change no plan before they would have ended (policies that
  declare an oracle are excused);
- a new stack that recalls what the old one knew, through JSON, and is shown the view as it is decides as the one that
  saw it grow: the same plan and the same moment to be asked again. A run in which the stack is replaced again and again
  is the same run, so that a controller can be killed at any moment.
"""

from __future__ import annotations

import json
import random

import polars as pl

from fairlead.errors import FairleadError, RunError
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.interference import EMPTY, Interference
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.plan import Place, Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.failures import Failures
from fairlead.sim.simulation import Simulation
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace

Story = list[tuple[float, list[int], list[Place]]]
"""Every plan that changed something: when, who was evicted, who was placed where."""


_EVERY = 3
"""A new stack is tried at one of so many decisions, drawn at random."""


class ConformanceError(RunError):
    """A policy breaks one of the rules that all policies obey."""


def check(spec: str, *, round_s: float | None = None, traces: int = 4) -> None:
    """Raise `ConformanceError` unless the policy behaves."""
    made = registry.build(spec, round_s=round_s)
    if made.sharing.at_once:
        check_restarts(spec, service_fleet(6, 1.0), parse_shape("1x8:T4"))
    for seed in range(traces):
        trace, cluster = _crowd(seed), _cluster(seed)
        if made.powering.rents:
            cluster = cluster.rented(Rental(boot_s=7.0, minimum_s=10.0, step_s=5.0))
        story, finish_s = check_restarts(spec, trace, cluster, round_s=round_s)
        renamed = Trace(trace.frame.with_columns(pl.concat_str(pl.lit("x"), "job_id").alias("job_id")))
        if _run(spec, round_s, renamed, cluster)[0] != story:
            raise ConformanceError(f"{spec} decides differently when jobs are renamed (seed {seed})")
        if not made.needs_oracle:
            _check_future(spec, round_s, trace, cluster, story, finish_s, seed)


def check_restarts(
    spec: str, trace: Trace, cluster: Cluster, *, round_s: float | None = None, interference: Interference = EMPTY
) -> tuple[Story, list[float]]:
    """Raise `ConformanceError` unless this run is the same whenever the stack is replaced by one that recalls it."""
    story, finish_s = _run(spec, round_s, trace, cluster, interference, compares=True)
    if _run(spec, round_s, trace, cluster, interference, restarts=True)[0] != story:
        if _run(spec, round_s, trace, cluster, interference)[0] != story:
            raise ConformanceError(f"{spec} decides differently when the same run is repeated")
        raise ConformanceError(f"{spec} decides differently in a run with restarts")
    return story, finish_s


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
    spec: str,
    round_s: float | None,
    trace: Trace,
    cluster: Cluster,
    interference: Interference = EMPTY,
    *,
    compares: bool = False,
    restarts: bool = False,
) -> tuple[Story, list[float]]:
    witness = _Witness(spec, round_s, compares=compares, restarts=restarts)
    try:
        result = Simulation(
            trace,
            cluster,
            witness,
            failures=Failures(2.0, 0.1),
            locality=1.5,
            restart_s=2.0,
            interference=interference,
        ).run()
    except ConformanceError:
        raise
    except FairleadError as error:
        raise ConformanceError(f"{spec}: {error}") from error
    return witness.story, result.jobs["finish_s"].to_list()


class _Witness(Stack):
    """Lets a stack decide and writes it down; at some decisions a new stack is tried, or takes over for good."""

    def __init__(self, spec: str, round_s: float | None, *, compares: bool, restarts: bool) -> None:
        made = registry.build(spec, round_s=round_s)
        super().__init__(
            made.sizing, made.ordering, made.sharing, made.placing, made.powering, round_s=round_s, spec=made.spec
        )
        self._args = (spec, round_s)
        self._now = made
        self._compares, self._restarts = compares, restarts
        self._rng = random.Random(1)
        self.story: Story = []

    def decide(self, view: View) -> Plan:
        """Decide, and write it down."""
        tries = (self._compares or self._restarts) and not self._rng.randrange(_EVERY)
        saved = json.dumps(self._now.knowledge(), allow_nan=False) if tries else ""
        if tries and self._restarts:
            self._now = self._anew(saved, view)
        plan = self._now.decide(view)
        if tries and self._compares:
            again = self._anew(saved, view).decide(view)
            if _told(plan) != _told(again):
                raise ConformanceError(
                    f"{self.spec} at {view.now_s} s: {plan}, but a new stack that recalls what it knew: {again}"
                )
        if plan.evict or plan.place:
            self.story.append((view.now_s, list(plan.evict), list(plan.place)))
        return plan

    def _anew(self, saved: str, view: View) -> Stack:
        # It is shown the same changes as the old one, so it has missed nothing.
        made = registry.build(self._args[0], round_s=self._args[1])
        made.recall(json.loads(saved), view, missed=False)
        return made


def _told(plan: Plan) -> tuple[object, ...]:
    return plan.evict, plan.place, plan.sleep, plan.wake, plan.wake_s


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

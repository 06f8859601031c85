"""What every policy must satisfy, as a check that policy authors run over their own.

`check("ordering=mine,placing=packed")` raises `ConformanceError` with the first law that was broken:

- every job of some crowded little traces ends, and every plan obeys the laws; one of the traces has jobs that ask for
  parts of GPUs and hosts, unless the policy refuses them;
- the same run twice gives the same plans;
- names change nothing;
- the future is not read: jobs that later turn out longer change no plan before they would have ended (policies that
  declare an oracle are excused; for one that goes by declared epochs only jobs without a deadline turn out longer);
- a decision leads on: there is an end to the decisions of one moment, and to the run;
- a new stack that recalls what the old one knew, through JSON, and is shown the view as it is decides as the one that
  saw it grow: the same plan and the same moment to be asked again, with indexes and without. A run in which the stack
  is replaced again and again is the same run, so that a controller can be killed at any moment.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace

import polars as pl

from fairlead.errors import FairleadError, RunError
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.files import read_text
from fairlead.model.interference import EMPTY, Interference, built_in
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.by_parts import refusal
from fairlead.policy.plan import Place, Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.failures import Failures
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import World
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace

Story = list[tuple[float, list[int], list[Place]]]
"""Every plan that changed something: when, who was evicted, who was placed where."""


_EVERY = 3
"""A new stack is tried at one of so many decisions, drawn at random."""


_AT_ONE_MOMENT = 20
"""Decisions at one moment for each job in the system; the most seen of a stack that is in order is 1."""
_PER_JOB = 200
"""Decisions for each job that came; the most seen is 10."""


class ConformanceError(RunError):
    """A policy breaks one of the rules that all policies obey."""


def check(spec: str, *, round_s: float | None = None, traces: int = 4) -> None:
    """Raise `ConformanceError` unless the policy behaves."""
    made = registry.build(spec, round_s=round_s, read=read_text)
    terms = Rental(boot_s=7.0, minimum_s=10.0, step_s=5.0) if made.powering.rents else None
    if made.sharing.at_once:
        cluster = parse_shape("1x8:T4")
        check_restarts(spec, service_fleet(6, 1.0), cluster.rented(terms) if terms else cluster, round_s=round_s)
    if refusal(made) is None:
        divided = _with_hosts(_cluster(0))
        check_restarts(spec, _crowd_by_parts(0), divided.rented(terms) if terms else divided, round_s=round_s)
    for seed in range(traces):
        trace, cluster = _crowd(seed), _cluster(seed)
        cluster = cluster.rented(terms) if terms else cluster
        story, finish_s = check_restarts(spec, trace, cluster, round_s=round_s)
        renamed = Trace(trace.frame.with_columns(pl.concat_str(pl.lit("x"), "job_id").alias("job_id")))
        if _run(spec, round_s, renamed, cluster)[0] != story:
            raise ConformanceError(f"{spec} decides differently when jobs are renamed (seed {seed})")
        if not made.needs_oracle:
            declared = trace.frame["deadline_s"].is_not_null().to_list() if made.sharing.declared_epochs else []
            _check_future(spec, round_s, trace, cluster, (story, finish_s), declared, seed)


def check_mix(spec: str, *, round_s: float | None = None, seed: int = 0, jobs: int = 200) -> None:
    """Raise `ConformanceError` unless a crowd of everything runs to its end under the laws and adds up.

    Services, elastic and rigid jobs, deadlines, users in groups, memory, unequal GPUs; nodes fail with odd seeds.
    """
    cluster = parse_shape("4x4:V100").with_variability(_scores(16, seed))
    if registry.build(spec, round_s=round_s, read=read_text).powering.rents:
        cluster = cluster.rented(Rental(boot_s=30.0, minimum_s=60.0, step_s=10.0))
    failures = Failures(5.0, 0.1) if seed % 2 else None
    trace, known = _mix(seed, jobs), built_in("eaco")
    stack = _Witness(spec, round_s)
    try:
        world = World(failures=failures, locality=1.3, restart_s=5.0, interference=known)
        Simulation(trace, cluster, stack, world).run()
    except ConformanceError:
        raise
    except FairleadError as error:
        raise ConformanceError(f"{spec}, seed {seed}: {error}") from error


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
    spec: str,
    round_s: float | None,
    trace: Trace,
    cluster: Cluster,
    told: tuple[Story, list[float]],
    declared: list[bool],
    seed: int,
) -> None:
    """Jobs whose length is `declared` are as long as they said."""
    rng, (story, finish_s) = random.Random(seed), told
    longer = [rng.random() < 0.5 and not said for _, said in itertools.zip_longest(finish_s, declared)]
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
            World(failures=Failures(2.0, 0.1), locality=1.5, restart_s=2.0, interference=interference),
        ).run()
    except ConformanceError:
        raise
    except FairleadError as error:
        raise ConformanceError(f"{spec}: {error}") from error
    return witness.story, result.jobs["finish_s"].to_list()


class _Witness(Stack):
    """Lets a stack decide and writes it down; at some decisions a new stack is tried, or takes over for good."""

    def __init__(self, spec: str, round_s: float | None, *, compares: bool = False, restarts: bool = False) -> None:
        made = registry.build(spec, round_s=round_s, read=read_text)
        super().__init__(
            made.sizing, made.ordering, made.sharing, made.placing, made.powering, round_s=round_s, spec=made.spec
        )
        self._args = (spec, round_s)
        self._now = made
        self._compares, self._restarts = compares, restarts
        self._rng = random.Random(1)
        self.story: Story = []
        self._arrived = self._decisions = 0
        self._moment: list[Plan] = []
        """The plans of the present moment."""
        self._moment_s = -1.0

    def decide(self, view: View) -> Plan:
        """Decide, and write it down."""
        tries = (self._compares or self._restarts) and not self._rng.randrange(_EVERY)
        saved = json.dumps(self._now.knowledge(), allow_nan=False) if tries else ""
        if tries and self._restarts:
            self._now = self._anew(saved, view)
        plan = self._now.decide(view)
        if tries and self._compares:
            # One of the two that are compared sorts everybody anew and walks the list, without indexes.
            for plain, what in ((False, "a new stack that recalls what it knew"), (True, "one without indexes")):
                again = self._anew(saved, view, plain=plain).decide(view)
                if _told(plan) != _told(again):
                    raise ConformanceError(f"{self.spec} at {view.now_s} s: {plan}, but {what}: {again}")
        self._check_progress(plan, view)
        if plan.evict or plan.place:
            self.story.append((view.now_s, list(plan.evict), list(plan.place)))
        return plan

    def _check_progress(self, plan: Plan, view: View) -> None:
        """A stack that asks again at once for ever, or undoes what it did over and over, must not hang the check."""
        self._arrived += len(view.changes.arrived)
        self._decisions += 1
        if view.now_s != self._moment_s:
            self._moment, self._moment_s = [], view.now_s
        self._moment.append(plan)
        most = _AT_ONE_MOMENT * (1 + len(view.running) + len(view.waiting))
        if len(self._moment) > most:
            last = "; ".join(map(str, self._moment[-4:]))
            raise ConformanceError(
                f"{self.spec} decides at {view.now_s} s again and again, {most} times by now: {last}"
            )
        if self._decisions > _PER_JOB * self._arrived:
            last = "; ".join(f"at {at_s} s: evict {evict}, place {place}" for at_s, evict, place in self.story[-4:])
            raise ConformanceError(
                f"{self.spec} does not come to an end: {self._decisions} decisions about {self._arrived} jobs by"
                f" {view.now_s} s, {len(view.waiting)} of them wait; the last: {last}"
            )

    def _anew(self, saved: str, view: View, *, plain: bool = False) -> Stack:
        # It is shown the same changes as the old one, so it has missed nothing.
        made = registry.build(self._args[0], round_s=self._args[1], plain=plain, read=read_text)
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
        "profile": [rng.choice(("resnet50", "BERT", "PointNet", "vgg19")) for _ in rows],
        "priority": [rng.randrange(3) for _ in rows],
        "user": [rng.choice(("ann", "bob", "cy")) for _ in rows],
        "group": [rng.choice(("", "lab", "lab.vision")) for _ in rows],
        "deadline_s": [rng.choice((None, 2.0 * r[2], 20.0 * r[2])) for r in rows],
    }
    return Trace.from_columns(pl.DataFrame(frame, schema_overrides={"deadline_s": pl.Float64}))


def _crowd_by_parts(seed: int) -> Trace:
    """A crowd of which most ask for parts of GPUs, and for CPUs; with services among them."""
    rng, frame = random.Random(seed), _crowd(seed).frame.head(28)
    parts = [rng.choice((0.1, 0.3, 0.5, 0.7)) if gpus == 1 else 1.0 for gpus in frame["gpus"]]
    return Trace.from_columns(
        frame.with_columns(
            pl.Series("gpu_frac", parts),
            pl.Series("max_gpus", [1 if p < 1.0 else most for p, most in zip(parts, frame["max_gpus"], strict=True)]),
            pl.Series("memory_mib", [rng.choice((0.0, 0.0, 9000.0, 20_000.0)) for _ in parts]),
            pl.Series("cpus", [rng.choice((0.0, 1.0, 2.0)) * gpus for gpus in frame["gpus"]]),
            pl.Series(
                "kind", [rng.choice(("training", "training", "service")) if p < 1.0 else "training" for p in parts]
            ),
        )
    )


def _with_hosts(cluster: Cluster) -> Cluster:
    nodes = tuple(replace(node, cpus=8.0) for node in cluster.nodes)
    return Cluster(nodes, cluster.variability, cluster.rental)


def _mix(seed: int, jobs: int) -> Trace:
    """Services on some GPUs, and beside them jobs of all kinds."""
    rng = random.Random(seed)
    fleet = service_fleet(4, 1.0, load=0.0, seed=seed)
    widths = [rng.choice((1, 1, 1, 2, 2, 4, 8)) for _ in range(jobs)]
    lasts_s = [float(rng.randrange(20, 900)) for _ in widths]
    frame = {
        "job_id": [f"job-{i}" for i in range(jobs)],
        "submit_s": sorted(float(rng.randrange(3000)) for _ in widths),
        "gpus": widths,
        "duration_s": lasts_s,
        "min_gpus": [rng.choice((1, width)) for width in widths],
        "max_gpus": [rng.choice((width, width, 8)) for width in widths],
        "profile": [rng.choice(("resnet50", "BERT", "PointNet", "vgg19", "AlexNet")) for _ in widths],
        "memory_mib": [rng.choice((0.0, 2000.0, 9000.0)) for _ in widths],
        "deadline_s": [rng.choice((None, 1.5 * s, 10.0 * s)) for s in lasts_s],
        "priority": [rng.randrange(3) for _ in widths],
        "user": [rng.choice(("ann", "bob", "cy")) for _ in widths],
        "group": [rng.choice(("", "lab", "lab.vision")) for _ in widths],
    }
    both = pl.concat([fleet.frame, pl.DataFrame(frame, schema_overrides={"deadline_s": pl.Float64})], how="diagonal")
    return Trace.from_columns(both, profiles=fleet.profiles)


def _cluster(seed: int) -> Cluster:
    return parse_shape("3x4").with_variability(_scores(12, seed))


def _scores(gpus: int, seed: int) -> Variability:
    rng = random.Random(seed)
    return Variability({name: [rng.choice((0.9, 1.0, 1.1, 1.6)) for _ in range(gpus)] for name in "ABCD"})

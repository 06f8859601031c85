"""The event loop: a clock that shows a policy what happened and carries out its plans.

Progress is exact: between events every job runs at the speed that the model gives, so an end is computed, not stepped
to. In round mode the same loop runs with two things rounded up to the next multiple of the round: when a job that is
done leaves, and when the policy is asked. At one moment ends come first, then failures and repairs, then arrivals, then
one decision.

This file is the loop, and where the parts of the world are joined: what happens to jobs (jobs.py), their speeds and
ends (pace.py), nodes (nodes.py), all that happens by itself (world.py), and what policies may ask (answers.py).

A run may also begin in the middle (`Simulation.from_snapshot`, warm.py), on the snapshot's clock, with a decision at
once. It ends when all training jobs have ended, or when those that are left never will: as things stand, on the nodes
that are up. What it counts and meters is from there on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from fairlead.errors import RunError
from fairlead.model.cluster import Cluster
from fairlead.model.interference import EMPTY, Interference
from fairlead.model.job import Job
from fairlead.model.profile import Locality
from fairlead.model.snapshot import Snapshot
from fairlead.model.variability import Variability
from fairlead.policy import laws
from fairlead.policy.guarding import GuardConfig
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.answers import Answers
from fairlead.sim.failures import FailureProcess, Failures
from fairlead.sim.feasible import check_feasible
from fairlead.sim.jobs import Jobs
from fairlead.sim.meters import Meters
from fairlead.sim.nodes import Nodes
from fairlead.sim.notes import about_endless, about_gpus, about_rent
from fairlead.sim.online import Online
from fairlead.sim.pace import Pace
from fairlead.sim.result import JobRows, Result
from fairlead.sim.rounds import NEVER, at_round
from fairlead.sim.simjob import SimJob
from fairlead.sim.summary import COUNTED, audit, summarise
from fairlead.sim.truth import Drift, Truth, Watch
from fairlead.sim.warm import Warm, resume, taken, warm
from fairlead.sim.work import Works
from fairlead.sim.world import World
from fairlead.traces.trace import Trace

_PROGRESS_EVERY = 500
_IDLE_EVENTS = 20_000
"""So many failures, repairs and decisions in a row with nobody running or to come: the policy never starts them."""


class Simulation:
    """One run of one policy over one trace on one cluster."""

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        stack: Stack,
        *,
        seed: int = 0,
        locality: Locality | None = None,
        restart_s: float | None = None,
        failures: Failures | None = None,
        true_variability: Variability | None = None,
        drifts: tuple[Drift, ...] = (),
        correct_scores: Watch | None = None,
        drained: tuple[int, ...] = (),
        interference: Interference = EMPTY,
        progress: Callable[[int, int], None] | None = None,
        begin: Warm | None = None,
    ) -> None:
        self._trace = trace
        self._cluster = cluster
        self._stack = stack
        self._round_s = stack.round_s
        self._progress = progress
        self._begin = begin
        begin_s = begin.snapshot.now_s if begin is not None else 0.0
        self._arrivals: Iterator[tuple[Job, float]] = trace.arrivals(locality=locality, restart_s=restart_s)
        self._counts = counts = dict.fromkeys(COUNTED, 0)
        self._wake_s = NEVER
        """When the policy wants to be asked, whatever happens."""
        self._stuck: list[str] = []
        """Why jobs were left that never end."""
        # The parts of the world, each made from those before it.
        fails = FailureProcess(failures, len(cluster.nodes), seed)
        truth = Truth(cluster, true_variability, drifts)
        self._view = view = View(cluster)
        view.now_s = begin_s
        for gpu in drained:
            view.drain(gpu)
        watch = correct_scores if view.scores is not None else None
        self._meters = meters = Meters(cluster, view, interference, begin_s)
        self._rows = rows = JobRows(trace, cluster.gpus, begin.services if begin is not None else ())
        self._pace = pace = Pace(view, meters, truth, interference, round_s=stack.round_s, watched=watch is not None)
        self._online = pace.online = online = _services(trace, cluster, stack, pace, begin_s)
        works, elastic = Works(cluster.node_gpus, stack.sizing.adapts_batch), stack.sizing.elastic
        self._jobs = jobs = Jobs(view, meters, pace, online, works, rows, counts, tells_epochs=elastic)
        self._nodes = nodes = Nodes(view, meters, jobs, stack.powering, counts)
        self._world = World(view, fails, truth, pace, online, jobs, nodes, counts, watch=watch)
        self.answers = answers = Answers(view, meters, interference, pace, online)
        """What policies may ask."""
        view.oracle = answers if stack.needs_oracle else None
        view.epochs = view.reports = view.bill = answers
        view.meter = answers if online is not None else None
        self._eventful = bool(failures or drifts or watch or stack.powering.active or online is not None)
        self._eventful |= begin is not None and bool(begin.snapshot.waking or begin.snapshot.asleep)
        """Whether anything can happen besides arrivals and ends; most runs need not ask at every event."""
        if begin is None:
            if stack.powering.rents:
                nodes.give_all_back()
            check_feasible(trace, cluster, stack, cluster.gpus - len(view.drained))
        else:
            resume(begin, self._arrivals, view, jobs, nodes)
            self._wake_s = begin_s  # the policy is asked at once
        self._arrival = next(self._arrivals, None)

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot,
        stack: Stack,
        *,
        later: Trace | None = None,
        seed: int = 0,
        interference: Interference = EMPTY,
        progress: Callable[[int, int], None] | None = None,
    ) -> Simulation:
        """Run on from a snapshot, under any policy; `later` has jobs that are still to come."""
        begin = warm(snapshot, later)
        return cls(
            begin.trace, snapshot.cluster, stack, seed=seed, interference=interference, progress=progress, begin=begin
        )

    def advance(self, until_s: float) -> None:
        """Run up to a moment, all that happens then included; `run` goes on from there."""
        self._loop(until_s)

    def snapshot(self) -> Snapshot:
        """The world as it is now. Jobs that train by goodput have no place in it."""
        return taken(self._view, self._stack.spec, self._nodes.awake, self._history())

    def run(self) -> Result:
        """Run until every job of the trace has ended."""
        began = time.perf_counter()
        self._loop()
        wall_s = time.perf_counter() - began
        self._settle()
        online, stack, jobs = self._online, self._stack, self._rows.frame()
        return Result(
            policy=stack.spec,
            cluster=self._cluster.describe(),
            trace=self._trace.source or self._trace.format,
            summary=summarise(jobs, self._meters, self._counts, self._cluster, wall_s, online),
            jobs=jobs,
            timeline=self._meters.timeline(),
            notes=(
                *self._trace.notes,
                *self._stuck,
                *about_rent(self._cluster, rents=stack.powering.rents),
                *about_gpus(self._view),
                *stack.sizing.notes,
            ),
            history=self._history(),
            fleet=online.timeline() if online is not None else None,
            evictions=online.evicted() if online is not None else None,
        )

    # -- the clock -------------------------------------------------------------------------------------------------

    def _loop(self, until_s: float = NEVER) -> None:
        view, meters, rows, ends = self._view, self._meters, self._rows, self._pace.ends
        jobs, world, round_s = self._jobs, self._world, self._round_s
        total = rows.awaited
        arrival = self._arrival
        arrival_s = at_round(arrival[0].submit_s, round_s) if arrival else NEVER
        reported = idle = 0
        while rows.finished < total:
            idle = 0 if arrival is not None or self._anybody_works() else idle + 1
            end_s = ends[0][0] if ends else NEVER
            world_s = at_round(world.next_s(), round_s) if self._eventful else NEVER
            now_s = min(arrival_s, end_s, self._wake_s, world_s)
            if now_s > until_s:
                meters.advance(until_s)
                view.now_s = until_s
                break
            if now_s == NEVER or idle > _IDLE_EVENTS:
                self._give_up()
                break
            meters.advance(now_s)
            view.now_s = now_s
            if end_s == now_s:
                jobs.end_due(now_s)
                if rows.finished == total:
                    break
            while self._eventful and at_round(world.next_s(), round_s) <= now_s:
                world.happen()
            while arrival_s <= now_s:
                assert arrival is not None
                jobs.arrive(*arrival)
                arrival = self._arrival = next(self._arrivals, None)
                arrival_s = at_round(arrival[0].submit_s, round_s) if arrival else NEVER
            if view.changes or self._wake_s <= now_s:
                self._decide()
            if self._progress is not None and rows.finished >= reported + _PROGRESS_EVERY:
                reported = rows.finished
                self._progress(reported, total)
        if self._progress is not None and rows.finished == total:
            self._progress(total, total)

    def _decide(self) -> None:
        view = self._view
        plan = self._stack.decide(view)
        laws.check(view, plan)
        view.decided()
        self._counts["events"] += 1
        self._jobs.carry_out(plan)
        self._nodes.carry_out(plan)
        self._wake_s = NEVER if plan.wake_s is None else max(at_round(plan.wake_s, self._round_s), view.now_s)

    def _anybody_works(self) -> bool:
        """Whether somebody runs whose end the run waits for."""
        if self._begin is None:
            return bool(self._view.running)
        return any(state.job.kind != "service" for state in self._view.running.values())

    def _give_up(self) -> None:
        """Nothing will happen any more, and not all jobs have ended: an error of a run of its own."""
        why, hint = about_endless(self._view)
        if self._begin is None:
            raise RunError(why, hint=hint)
        self._stuck.append(why)

    # -- when it is over -------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Count what is still there: jobs without an end, rented nodes, services. Then everything must add up."""
        view, meters, jobs = self._view, self._meters, self._jobs
        active = [cast(SimJob, s) for s in (*view.running.values(), *view.waiting.values())]
        for job in active:
            if job.gpus:
                job.bank(view.now_s)
                meters.regauge(job)
            if self._begin is not None:
                self._rows.leave_open(job)
        for node, since_s in view.rented_s.items():
            meters.settle(node, view.now_s - since_s)
        if self._online is not None:
            self._online.settle(view.now_s)
        ended = (jobs.ended_gpu_s, jobs.ended_energy_j)
        audit(self._rows, meters, self._counts, active, *ended, jobs.before_gpu_s)

    def _history(self) -> dict[str, Any] | None:
        """What the sharing policy has learnt."""
        learnt = self._stack.sharing.learnt
        return learnt.to_dict() if learnt is not None else None


def _services(trace: Trace, cluster: Cluster, stack: Stack, pace: Pace, begin_s: float) -> Online | None:
    """The GPUs with services; None where the trace has none."""
    if not any(trace.profile(m).service is not None for m in trace.frame["model"].unique()):
        return None
    guard = GuardConfig() if stack.sharing.guarded else None
    return Online(cluster, stack.sharing.mode, guard=guard, retime=pace.retime_beside, begin_s=begin_s)

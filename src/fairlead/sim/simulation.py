"""The event loop: a clock that shows a policy what happened and carries out its plans.

Progress is exact: between events every job runs at the speed that the model gives, so an end is computed, not stepped
to. In round mode the same loop runs with two things rounded up to the next multiple of the round: when a job that is
done leaves, and when the policy is asked. At one moment ends come first, then failures and repairs, then arrivals, then
one decision.

This file is the loop, and where the parts of the world are joined: who decides and when (policy/driver.py), what
happens to jobs (jobs.py), their speeds and ends (speeds.py), nodes (nodes.py), all that happens by itself
(incidents.py), and what policies may ask (observations.py).

A run may also begin in the middle (`Simulation.from_snapshot`, resume.py), on the snapshot's clock. In rounds jobs then
leave when they are done, as on a live cluster: only decisions wait. It ends when all training jobs have ended, or when
those that are left never will: as things stand, on the nodes that are up. What it counts and meters is from there on,
and up to a moment where one is given (`run`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from fairlead.errors import RunError
from fairlead.model.cluster import Cluster
from fairlead.model.interference import EMPTY, Interference
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot
from fairlead.policy.driver import Driver, Effects, Sources, at_round
from fairlead.policy.guarding import GuardConfig
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.policy.working_job import NEVER
from fairlead.sim.failures import FailureProcess
from fairlead.sim.feasible import check_feasible
from fairlead.sim.incidents import Incidents
from fairlead.sim.jobs import Jobs
from fairlead.sim.meters import Meters
from fairlead.sim.nodes import Nodes
from fairlead.sim.notes import about_endless, about_gpus, about_rent
from fairlead.sim.observations import Observations
from fairlead.sim.online import Online
from fairlead.sim.plain_run import plain_run
from fairlead.sim.recording import Recording
from fairlead.sim.result import JobRows, Result
from fairlead.sim.resume import Warm, resume, taken, warm
from fairlead.sim.simjob import SimJob
from fairlead.sim.speeds import Speeds
from fairlead.sim.summary import COUNTED, audit, summarise
from fairlead.sim.truth import Truth
from fairlead.sim.work import Works
from fairlead.sim.world import PLAIN, World
from fairlead.traces.trace import Trace

_PROGRESS_EVERY = 500
_IDLE_EVENTS = 20_000
"""So many failures, repairs and decisions in a row with nobody running or to come: the policy never starts them."""


_QUIET_EVENTS, _QUIET_S = 1_000, 2 * 86400.0
"""From a snapshot, where no node fails, so many over so much time are enough: services have the same load every day."""


class Simulation:
    """One run of one policy over one trace on one cluster."""

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        stack: Stack,
        world: World = PLAIN,
        *,
        progress: Callable[[int, int], None] | None = None,
        begin: Warm | None = None,
    ) -> None:
        self._trace = trace
        self._cluster = cluster
        self._stack = stack
        self._grid_s = stack.round_s if begin is None else None
        """What happens is rounded up to multiples of this."""
        self._progress = progress
        self._begin = begin
        self._world = world
        begin_s = begin.snapshot.now_s if begin is not None else 0.0
        self._arrivals: Iterator[tuple[Job, float]] = trace.arrivals(locality=world.locality, restart_s=world.restart_s)
        self._counts = counts = dict.fromkeys(COUNTED, 0)
        self._stuck: list[str] = []
        """Why jobs were left that never end."""
        # The parts of the world, each made from those before it.
        fails = FailureProcess(world.failures, len(cluster.nodes), world.seed)
        truth = Truth(cluster, world.true_variability, world.drifts)
        self._driver = driver = Driver[SimJob](cluster, stack)
        self._view = view = driver.view
        view.now_s = begin_s
        for gpu in world.drained:
            view.drain(gpu)
        watch = world.correct_scores if view.scores is not None else None
        self._meters = meters = Meters(cluster, view, world.interference, begin_s)
        self._rows = rows = _rows(trace, cluster, begin)
        self._speeds = speeds = Speeds(
            view, meters, truth, world.interference, round_s=self._grid_s, watched=watch is not None
        )
        self._online = speeds.online = online = _services(trace, cluster, stack, speeds, begin)
        works = Works(cluster.node_gpus, stack.sizing.adapts_batch)
        self._jobs = jobs = Jobs(driver, meters, speeds, online, works, rows, counts)
        self._nodes = nodes = Nodes(driver, meters, jobs, counts)
        self._incidents = Incidents(driver, fails, truth, speeds, online, jobs, nodes, counts, watch=watch)
        paid_before_gpu_s = begin.snapshot.paid_gpu_s if begin is not None else 0.0
        self.observations = asked = Observations(view, meters, world.interference, online, paid_before_gpu_s)
        """What policies may ask."""
        driver.inform(Sources(asked, asked, asked, asked if online is not None else None, asked))
        self._eventful = bool(world.failures or world.drifts or watch or stack.powering.active or online is not None)
        self._eventful |= begin is not None and bool(begin.snapshot.waking or begin.snapshot.asleep)
        """Whether anything can happen besides arrivals and ends; most runs need not ask at every event."""
        if begin is None:
            if stack.powering.rents:
                nodes.give_all_back()
            check_feasible(trace, cluster, stack, view.drained)
        else:
            self._arrivals = begin.later(self._arrivals)
            resume(begin, driver, jobs, nodes)
        driver.effects = Effects(
            jobs.leaves, jobs.left, jobs.started, jobs.retimed, meters.regauge, jobs.planned, nodes.slept, nodes.woke
        )
        self._recording: Recording | None = None
        if world.records:
            self._recording = Recording(view, rents=stack.powering.rents)
            driver.effects = self._recording.around(driver.effects)
            nodes.on_change = self._recording.node_changed
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
        begin, world = warm(snapshot, later), World(seed=seed, interference=interference)
        return cls(begin.trace, snapshot.cluster, stack, world, progress=progress, begin=begin)

    @property
    def view(self) -> View:
        """The world as policies see it; to look at."""
        return self._view

    def advance(self, until_s: float) -> None:
        """Run up to a moment, all that happens then included; `run` goes on from there."""
        self._loop(until_s)

    def snapshot(self) -> Snapshot:
        """The world as it is now. Jobs that train by goodput have no place in it."""
        return taken(self._driver, self.observations.paid_gpu_s())

    def run(self, until_s: float = NEVER) -> Result:
        """Run until every job of the trace has ended; from a snapshot also up to a moment, whoever has ended by then.

        Totals are comparable over equal times only: a run that gives jobs up has waited for them for days.
        """
        began = time.perf_counter()
        if until_s < NEVER or not self._run_plain():
            self._loop(until_s)
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
            occupancy=None if self._recording is None else self._recording.occupancy(),
            needs_oracle=stack.needs_oracle,
        )

    def _run_plain(self) -> bool:
        """Run in columns where nothing but arrivals and ends can happen; whether it was so."""
        if self._begin is not None or self._counts["arrived"]:
            return False
        plain = plain_run(self._trace, self._cluster, self._stack, self._world, self._meters)
        if plain is None:
            return False
        plain.run(self._meters, self._rows, self._progress, _PROGRESS_EVERY)
        self._view.now_s = self._meters.now_s
        self._counts |= {"events": plain.events, "arrived": len(self._trace), "ended": len(self._trace)}
        self._jobs.ended_gpu_s, self._jobs.ended_energy_j = plain.ended_gpu_s, plain.ended_energy_j
        return True

    # -- the clock -------------------------------------------------------------------------------------------------

    def _loop(self, until_s: float = NEVER) -> None:
        driver, view, meters, rows, ends = self._driver, self._view, self._meters, self._rows, self._speeds.ends
        jobs, incidents, grid_s = self._jobs, self._incidents, self._grid_s
        total = rows.awaited
        arrival = self._arrival
        arrival_s = at_round(arrival[0].submit_s, grid_s) if arrival else NEVER
        reported = idle = 0
        busy_s = view.now_s
        is_bounded = until_s < NEVER
        while rows.finished < total or (is_bounded and view.now_s < until_s):
            end_s = ends[0][0] if ends else NEVER
            incident_s = at_round(incidents.next_s(), grid_s) if self._eventful else NEVER
            now_s = min(arrival_s, end_s, driver.next_s, incident_s)
            moves = is_bounded and now_s > view.now_s  # towards its bound, however little happens
            if moves or arrival is not None or self._anybody_works():
                idle, busy_s = 0, view.now_s
            else:
                idle += 1
            if now_s > until_s:
                meters.advance(until_s)
                view.now_s = until_s
                break
            if now_s == NEVER or self._is_hopeless(idle, now_s - busy_s):
                self._give_up()
                break
            meters.advance(now_s)
            view.now_s = now_s
            if end_s == now_s:
                jobs.end_due(now_s)
                if rows.finished == total and not is_bounded and not self._service_waits():
                    break
            while self._eventful and at_round(incidents.next_s(), grid_s) <= now_s:
                incidents.happen()
            while arrival_s <= now_s:
                assert arrival is not None
                jobs.arrive(*arrival)
                arrival = self._arrival = next(self._arrivals, None)
                arrival_s = at_round(arrival[0].submit_s, grid_s) if arrival else NEVER
            if driver.is_due(now_s):
                self._counts["events"] += 1
                driver.decide()
            if self._progress is not None and rows.finished >= reported + _PROGRESS_EVERY:
                reported = rows.finished
                self._progress(reported, total)
        if self._progress is not None and rows.finished == total:
            self._progress(total, total)

    def _anybody_works(self) -> bool:
        """Whether somebody runs whose end the run waits for."""
        if self._begin is None:
            return bool(self._view.running)
        return any(state.job.kind != "service" for state in self._view.running.values())

    def _is_hopeless(self, idle: int, quiet_s: float) -> bool:
        """Whether so much has happened in vain that nobody will ever start."""
        return idle > _IDLE_EVENTS or (self._begin is not None and idle > _QUIET_EVENTS and quiet_s > _QUIET_S)

    def _service_waits(self) -> bool:
        """Whether a service may get the GPUs of the last job: the policy is asked once more."""
        return self._begin is not None and bool(self._view.waiting)

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
        active = list(self._driver.jobs.values())
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


def _rows(trace: Trace, cluster: Cluster, begin: Warm | None) -> JobRows:
    if begin is None:
        return JobRows(trace, cluster.gpus)
    return JobRows(trace, cluster.gpus, begin.services, begin.row_of)


def _services(trace: Trace, cluster: Cluster, stack: Stack, speeds: Speeds, begin: Warm | None) -> Online | None:
    """The GPUs with services; None where the trace has none."""
    if not any(trace.profile(m).service is not None for m in trace.frame["profile"].unique()):
        return None
    guard = GuardConfig() if stack.sharing.guarded else None
    begin_s, accepting = (begin.snapshot.now_s, begin.snapshot.accepting) if begin is not None else (0.0, None)
    retime = speeds.retime_beside
    return Online(cluster, stack.sharing.mode, guard=guard, retime=retime, begin_s=begin_s, accepting=accepting or ())

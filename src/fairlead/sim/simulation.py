"""The event loop: a clock that shows a policy what happened and carries out its plans.

Progress is exact: between events every job runs at the speed that the model gives, so an end is computed, not stepped
to. In round mode the same loop runs with two things rounded up to the next multiple of the round: when a job that is
done leaves, and when the policy is asked. At one moment ends come first, then failures and repairs, then arrivals, then
one decision.

A run may also begin in the middle (`Simulation.from_snapshot`, warm.py), on the snapshot's clock, with a decision at
once. It ends when all training jobs have ended, or when those that are left never will: as things stand, on the nodes
that are up. What it counts and meters is from there on.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import polars as pl

from fairlead.errors import InputError, RunError
from fairlead.model.cluster import Cluster
from fairlead.model.interference import EMPTY, Interference
from fairlead.model.job import Job
from fairlead.model.placement import Placement
from fairlead.model.profile import Locality
from fairlead.model.snapshot import Snapshot
from fairlead.model.speed import speed
from fairlead.model.variability import Variability
from fairlead.policy import laws
from fairlead.policy.guarding import GuardConfig
from fairlead.policy.plan import Place
from fairlead.policy.stack import Stack
from fairlead.policy.view import Fleet, JobState, Report, View
from fairlead.sim.failures import FailureProcess, Failures
from fairlead.sim.feasible import check_feasible
from fairlead.sim.meters import Meters
from fairlead.sim.online import Online
from fairlead.sim.result import JobRows, Result
from fairlead.sim.simjob import SimJob
from fairlead.sim.summary import audit, summarise
from fairlead.sim.truth import Drift, Truth, Watch
from fairlead.sim.warm import Warm, recall, taken, warm
from fairlead.sim.work import Works
from fairlead.traces.trace import Trace

_NEVER = float("inf")
_PROGRESS_EVERY = 500
_SHOWN = 5
_IDLE_EVENTS = 20_000
"""So many failures, repairs and decisions in a row with nobody running or to come: the policy never starts them."""
_LOOK_AFTER_S = 60.0
"""Iteration times are believed after this long: some hundred iterations."""


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
        self._failures = FailureProcess(failures, len(cluster.nodes), seed)
        self._truth = Truth(cluster, true_variability, drifts)
        self._interference = interference
        oracle = self if stack.needs_oracle else None
        self._online: Online | None = None
        if any(trace.profile(m).service is not None for m in trace.frame["model"].unique()):
            guard = GuardConfig() if stack.sharing.guarded else None
            self._online = Online(cluster, stack.sharing.mode, guard=guard, retime=self._retime_beside, begin_s=begin_s)
        meter = self if self._online is not None else None
        self._view = View(cluster, oracle, epochs=self, reports=self, bill=self, meter=meter)
        self._view.now_s = begin_s
        self._works = Works(cluster.node_gpus, stack.sizing.adapts_batch)
        self._rents = stack.powering.rents
        for gpu in drained:
            self._view.drain(gpu)
        self._watch = correct_scores if self._view.scores is not None else None
        self._looks: list[tuple[float, int, int]] = []
        """(moment, job, version): when a run has lasted long enough for its iteration time to be believed."""
        self._meters = Meters(cluster, self._view, interference, begin_s)
        if self._rents and cluster.rental is None:
            raise InputError(
                "the policy rents nodes, but the cluster has no rental terms",
                hint="give --rent, or a table [rental] in the cluster's file",
            )
        if self._rents and begin is None:
            self._give_all_back()
        self._rows = JobRows(trace, cluster.gpus, begin.services if begin is not None else ())
        self._ends: list[tuple[float, int, int]] = []
        """(moment, job, version) of each end; entries of older versions are stale."""
        self._eventful = bool(failures or drifts or self._watch or stack.powering.active or self._online is not None)
        self._eventful |= begin is not None and bool(begin.snapshot.waking or begin.snapshot.asleep)
        """Whether anything can happen besides arrivals and ends; most runs need not ask at every event."""
        self._wake_s = _NEVER
        self._awake: list[tuple[float, int]] = []
        """(moment, node): when a waking node can be used."""
        self._spared: set[int] = set()
        """Nodes that slept through a failure: its repair is none."""
        self._counts = dict.fromkeys(
            (
                "events",
                "preemptions",
                "moves",
                "resizes",
                "node_failures",
                "arrived",
                "ended",
                "sleeps",
                "rentals",
            ),
            0,
        )
        self._ended_gpu_s = 0.0
        self._ended_energy_j = 0.0
        self._before_gpu_s = 0.0
        """What jobs had had when the run began."""
        self._stuck: list[str] = []
        """Why jobs were left that never end."""
        if begin is None:
            check_feasible(trace, cluster, stack, cluster.gpus - len(self._view.drained))
        else:
            self._resume(begin)
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
        learnt = self._stack.sharing.learnt
        history = learnt.to_dict() if learnt is not None else None
        return taken(self._view, self._stack.spec, self._left_now_s, self._awake, history)

    def remaining_s(self, state: JobState) -> float:
        """The oracle: what only the world knows."""
        job = cast(SimJob, state)
        if job.work is not None and job.gpus:
            left_s, nodes = self._left_now_s(job), self._cluster.spanned(job.gpus)
            run_s = job.work.run_s(left_s, job.epoch, len(job.gpus), nodes)
            if job.speed > 0.0:
                run_s *= job.work.speed(job.epoch, len(job.gpus), nodes) / job.speed  # slow GPUs, in all epochs alike
            return max(0.0, job.progress_from_s - self._view.now_s) + run_s
        return job.end_s - self._view.now_s if job.gpus else job.left_s

    def paid_gpu_s(self) -> float:
        """GPU-seconds paid for so far."""
        return self._meters.paid_gpu_s

    def fleet(self) -> Fleet:
        """The services on their GPUs, as metered."""
        assert self._online is not None
        fleet = self._online.fleet(self._view.now_s)
        if self._view.drained:
            fleet.accepts[:] &= [gpu not in self._view.drained for gpu in fleet.gpu.tolist()]
        return fleet

    def report(self, state: JobState) -> Report | None:
        """What a job says of its training."""
        job = cast(SimJob, state)
        if job.work is None or not job.gpus or self._view.now_s <= job.run_from_s:
            return None
        training, epoch, width, nodes = job.work.training, job.epoch, len(job.gpus), self._cluster.spanned(job.gpus)
        goodput, steps = training.goodput_at(epoch, width, nodes), training.steps_at(epoch, width, nodes)
        return Report(epoch, len(training.samples), training.samples[epoch], nodes, goodput, steps)

    # -- what jobs report of themselves ------------------------------------------------------------------------------

    def done(self, state: JobState) -> int:
        """Whole epochs done."""
        job = cast(SimJob, state)
        if job.work is not None:
            return job.epoch
        return int(self._done_s(job) / job.job.profile.epoch_s + 1e-9)

    def next_end_s(self, state: JobState) -> float:
        """When the present epoch ends; the last one ends with the job."""
        job = cast(SimJob, state)
        if job.work is not None:
            return job.end_s
        epoch_s = job.job.profile.epoch_s
        done_s = self._done_s(job)
        to_go_s = epoch_s * (int(done_s / epoch_s + 1e-9) + 1) - done_s
        return min(job.end_s, max(self._view.now_s, job.progress_from_s) + to_go_s / job.speed)

    def left_s(self, state: JobState) -> float:
        """What is left, alone on the GPUs asked for."""
        return self._left_now_s(cast(SimJob, state))

    def kept_speed(self, state: JobState) -> float:
        """What neighbours leave of its speed."""
        job = cast(SimJob, state)
        return self._interference.predict(job.job.profile, self._neighbours(job)) if job.shared else 1.0

    def utilisation(self, gpu: int) -> float:
        """How busy a GPU is."""
        running = self._view.running
        return self._interference.utilisation([running[j].job.profile for j in self._view.on_gpu[gpu]])

    def _done_s(self, job: SimJob) -> float:
        """Of a service without end, nothing ever is."""
        return job.duration_s - self._left_now_s(job) if job.duration_s < _NEVER else 0.0

    def _left_now_s(self, job: SimJob) -> float:
        if not job.gpus:
            return job.left_s
        return job.left_s - max(0.0, self._view.now_s - job.progress_from_s) * job.speed

    def run(self) -> Result:
        """Run until every job of the trace has ended."""
        began = time.perf_counter()
        self._loop()
        wall_s = time.perf_counter() - began
        active = [cast(SimJob, s) for s in (*self._view.running.values(), *self._view.waiting.values())]
        for job in active:
            if job.gpus:
                self._bank(job)
                self._meters.regauge(job)
            if self._begin is not None:
                self._rows.leave_open(job)
        for node, since_s in self._view.rented_s.items():
            self._meters.settle(node, self._view.now_s - since_s)
        ended = (self._ended_gpu_s, self._ended_energy_j)
        audit(self._rows, self._meters, self._counts, active, *ended, self._before_gpu_s)
        jobs = self._rows.frame()
        summary = summarise(jobs, self._meters, self._counts, self._cluster, wall_s)
        if self._online is not None:
            self._online.settle(self._view.now_s)
            summary.update(self._online.summary())
            others = jobs.filter(pl.col("kind") != "service")
            summary["offline_mean_jct_s"] = others["jct_s"].mean()
            summary["offline_makespan_s"] = others["finish_s"].max()
        return Result(
            policy=self._stack.spec,
            cluster=self._cluster.describe(),
            trace=self._trace.source or self._trace.format,
            summary=summary,
            jobs=jobs,
            timeline=self._meters.timeline(),
            notes=(
                *self._trace.notes,
                *self._stuck,
                *self._about_rent(),
                *self._about_gpus(),
                *self._stack.sizing.notes,
            ),
            history=learnt.to_dict() if (learnt := self._stack.sharing.learnt) is not None else None,
            fleet=self._online.timeline() if self._online is not None else None,
            evictions=self._online.evicted() if self._online is not None else None,
        )

    # -- the clock -------------------------------------------------------------------------------------------------

    def _loop(self, until_s: float = _NEVER) -> None:
        view, meters, rows, ends = self._view, self._meters, self._rows, self._ends
        total = rows.awaited
        arrival = self._arrival
        arrival_s = self._at_round(arrival[0].submit_s) if arrival else _NEVER
        reported = idle = 0
        while rows.finished < total:
            idle = 0 if arrival is not None or self._anybody_works() else idle + 1
            end_s = ends[0][0] if ends else _NEVER
            world_s = self._at_round(self._next_in_world_s()) if self._eventful else _NEVER
            now_s = min(arrival_s, end_s, self._wake_s, world_s)
            if now_s > until_s:
                meters.advance(until_s)
                view.now_s = until_s
                break
            if now_s == _NEVER or idle > _IDLE_EVENTS:
                self._give_up()
                break
            meters.advance(now_s)
            view.now_s = now_s
            if end_s == now_s:
                self._end_due(now_s)
                if rows.finished == total:
                    break
            while self._eventful and self._at_round(self._next_in_world_s()) <= now_s:
                self._world_event()
            while arrival_s <= now_s:
                assert arrival is not None
                self._arrive(*arrival)
                arrival = self._arrival = next(self._arrivals, None)
                arrival_s = self._at_round(arrival[0].submit_s) if arrival else _NEVER
            if view.changes or self._wake_s <= now_s:
                self._decide()
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

    def _give_up(self) -> None:
        """Nothing will happen any more, and not all jobs have ended: an error of a run of its own."""
        view = self._view
        if not view.waiting:
            why = f"{len(view.running)} jobs run without progress: {self._names(view.running)}"
            hint = "no batch of theirs feeds the GPUs that the policy gives them"
        else:
            why = f"{len(view.waiting)} jobs wait for ever: {self._names(view.waiting)}"
            hint = "the policy never starts them"
        if self._begin is None:
            raise RunError(why, hint=hint)
        self._stuck.append(why)

    def _next_in_world_s(self) -> float:
        """The next failure, repair, drift, node that has woken, or look at a running job."""
        looks = self._looks
        awake_s = self._awake[0][0] if self._awake else _NEVER
        online_s = self._online.next_s if self._online is not None else _NEVER
        return min(self._failures.next_s, self._truth.next_s, awake_s, online_s, looks[0][0] if looks else _NEVER)

    def _at_round(self, moment_s: float, slack: float = 0.0) -> float:
        """The first round at or after a moment; the moment itself where there are no rounds."""
        if self._round_s is None or moment_s == _NEVER:
            return moment_s
        return math.ceil(moment_s / self._round_s - slack) * self._round_s

    def _decide(self) -> None:
        view = self._view
        plan = self._stack.decide(view)
        laws.check(view, plan)
        view.decided()
        self._counts["events"] += 1
        for job_id in plan.evict:
            job = cast(SimJob, view.running[job_id])
            job.preemptions += 1
            self._counts["preemptions"] += 1
            self._stop(job)
        moved = [p for p in plan.place if p.job_id in view.running]
        for place in moved:
            # All leave before any arrives: two jobs may change places.
            job = cast(SimJob, view.running[place.job_id])
            if len(place.gpus) == len(job.gpus):
                job.moves += 1
                self._counts["moves"] += 1
            else:
                job.resizes += 1
                self._counts["resizes"] += 1
            self._stop(job)
        for place in plan.place:
            self._start(place)
        for node in plan.sleep:
            self._sleep(node)
        for node in plan.wake:
            self._wake(node)
        self._wake_s = _NEVER if plan.wake_s is None else max(self._at_round(plan.wake_s), view.now_s)

    def _sleep(self, node: int) -> None:
        view, meters = self._view, self._meters
        held_s = view.now_s - view.rented_s.get(node, view.now_s)
        view.sleep(node)
        if self._rents:
            meters.node_given_back(node, held_s)
        else:
            self._counts["sleeps"] += 1
            meters.node_asleep(node)

    def _wake(self, node: int) -> None:
        view, meters, rental = self._view, self._meters, self._cluster.rental
        view.wake(node)
        if self._rents and rental is not None:
            self._counts["rentals"] += 1
            meters.node_rented(node)
            delay_s = rental.boot_s
        else:
            meters.node_waking(node)
            delay_s = self._cluster.nodes[node].wake_s
        heapq.heappush(self._awake, (view.now_s + delay_s, node))

    def _give_all_back(self) -> None:
        """A rented cluster has no nodes until the policy rents some."""
        for node in range(len(self._cluster.nodes)):
            self._view.sleep(node)
            self._meters.node_given_back(node, None)

    # -- from a snapshot ---------------------------------------------------------------------------------------------

    def _resume(self, begin: Warm) -> None:
        """Put everything where it was, and ask the policy at once."""
        view, meters, snapshot = self._view, self._meters, begin.snapshot
        # Jobs are numbered anew, in the same order: those that have ended leave no gaps.
        numbered = zip(begin.jobs, self._arrivals, strict=False)
        made = {saved.id: SimJob(job, left_s, self._works.of(job)) for saved, (job, left_s) in numbered}
        for saved in (saved for saved in snapshot.jobs if saved.id in made):
            job = made[saved.id]
            self._counts["arrived"] += 1
            self._before_gpu_s += saved.attained_gpu_s(snapshot.now_s)
            view.arrive(job)
            if saved.placement:
                view.start(job, saved.placement, shared=saved.shared, sm_share=saved.sm_share)
                meters.started(job)
            recall(job, saved, snapshot.now_s)
            if saved.placement and self._online is not None:
                self._online.started(job, snapshot.now_s)
        for state in view.running.values():
            self._set_speed(cast(SimJob, state))
            meters.regauge(cast(SimJob, state))
        for gpu in snapshot.drained:
            view.drain(gpu)
        self._resume_nodes(snapshot)
        view.decided()
        self._wake_s = snapshot.now_s

    def _resume_nodes(self, snapshot: Snapshot) -> None:
        view, meters = self._view, self._meters
        for node in snapshot.down:
            view.node_down(node)
            meters.node_down(node)
        for node in snapshot.asleep:
            view.sleep(node)
            if self._rents:
                meters.node_given_back(node, None)
                continue
            meters.node_asleep(node)
            if not self._stack.powering.active:
                self._wake(node)  # nobody else would
        for node, awake_s in snapshot.waking:
            view.sleep(node)
            view.wake(node)
            heapq.heappush(self._awake, (max(awake_s, snapshot.now_s), node))
        if self._rents:
            on = set(range(len(self._cluster.nodes))) - set(snapshot.asleep)
            view.rented_s.update({**dict.fromkeys(sorted(on), snapshot.now_s), **dict(snapshot.rented)})

    # -- what happens to jobs ----------------------------------------------------------------------------------------

    def _arrive(self, spec: Job, duration_s: float) -> None:
        work = self._works.of(spec)
        job = SimJob(spec, duration_s if work is None else work.duration_s, work)
        meters = self._meters
        job.active_job_s_before = meters.running_job_s + meters.waiting_job_s
        self._counts["events"] += 1
        self._counts["arrived"] += 1
        self._view.arrive(job)

    def _start(self, place: Place) -> None:
        view = self._view
        job = cast(SimJob, view.waiting[place.job_id])
        view.start(job, place.gpus, shared=place.shared, sm_share=place.sm_share)
        now_s = view.now_s
        if job.first_start_s < 0.0:
            job.first_start_s = now_s
        job.progress_from_s = now_s if job.starts == 1 else now_s + job.job.profile.restart_s
        job.run_from_s = job.progress_from_s
        self._meters.started(job)
        if self._online is not None:
            self._online.started(job, now_s)
        self._set_speed(job)
        if place.shared:
            self._retime_neighbours(place.gpus, job)

    def _stop(self, job: SimJob, *, failed: bool = False, evicted: bool = False) -> None:
        now_s, gpus, shared = self._view.now_s, job.gpus, job.shared
        job.progress(now_s)
        if failed:
            job.lose_progress(now_s)
        job.version += 1
        job.held_s += now_s - job.since_s
        self._view.stop(job, returned=failed or evicted)
        self._meters.stopped(job, gpus)
        if self._online is not None:
            self._online.left(job, gpus, now_s)
        if shared:
            self._retime_neighbours(gpus, job)

    def _end_due(self, now_s: float) -> None:
        ends, running = self._ends, self._view.running
        while ends and ends[0][0] <= now_s:
            _, job_id, version = heapq.heappop(ends)
            job = cast("SimJob | None", running.get(job_id))
            if job is not None and job.version == version:
                if job.work is not None and job.epoch + 1 < len(job.work.training.samples):
                    self._turn(job)
                else:
                    self._end(job)

    def _turn(self, job: SimJob) -> None:
        """A job begins its next epoch, in which it has another speed."""
        assert job.work is not None
        self._counts["events"] += 1
        job.epoch += 1
        job.left_s = job.work.left_s[job.epoch]
        job.progress_from_s = self._view.now_s
        self._set_speed(job)
        if self._stack.sizing.elastic:
            self._view.changes.turned.append(job)

    def _end(self, job: SimJob) -> None:
        now_s, gpus, shared, meters = self._view.now_s, job.gpus, job.shared, self._meters
        job.progress(now_s)
        job.held_s += now_s - job.since_s
        self._view.end(job)
        meters.stopped(job, gpus)
        if self._online is not None:
            self._online.left(job, gpus, now_s)
        self._counts["events"] += 1
        self._counts["ended"] += 1
        self._ended_gpu_s += job.banked_gpu_s
        self._ended_energy_j += job.energy_j
        if job.left_s > 1e-6 + 1e-9 * job.duration_s:
            raise RunError(f"{job} ended with {job.left_s} s of work left")
        if job.job.id < len(self._rows):
            self._rows.write(job, now_s, meters.running_job_s + meters.waiting_job_s)
        if shared:
            self._retime_neighbours(gpus, job)

    def _set_speed(self, job: SimJob) -> None:
        """Speed and end from where it is and who else is there."""
        beside_service = self._online is not None
        neighbours = self._neighbours(job) if job.shared and not beside_service else ()
        work, scaled, left_s = job.work, None, job.left_s
        last = True
        if work is not None:
            scaled = work.speed(job.epoch, len(job.gpus), self._cluster.spanned(job.gpus))
            left_s -= work.left_s[job.epoch + 1]
            last = job.epoch + 1 == len(work.training.samples)
        job.speed = speed(job.job, job.gpus, self._truth.cluster, neighbours, self._interference, scaled)
        if self._online is not None:
            # A service lasts as long as it lasts.
            job.speed = 1.0 if job.job.kind == "service" else job.speed * self._online.throughput(job)
        run_s = left_s if job.speed == 1.0 else left_s / job.speed if job.speed > 0.0 else _NEVER
        job.end_s = job.progress_from_s + max(run_s, 0.0)
        job.version += 1
        # What ends a hair after a round by rounding ends on it; an epoch ends when it does.
        end_s = self._at_round(job.end_s, slack=1e-9) if last else job.end_s
        heapq.heappush(self._ends, (end_s, job.job.id, job.version))
        if self._watch is not None and not neighbours:
            look_s = max(job.progress_from_s, self._view.now_s) + _LOOK_AFTER_S
            heapq.heappush(self._looks, (look_s, job.job.id, job.version))

    def _neighbours(self, job: SimJob) -> list[Any]:
        """Profiles of the others on the most crowded of its GPUs."""
        running, on_gpu, own = self._view.running, self._view.on_gpu, job.job.id
        others = ([running[j].job.profile for j in on_gpu[g] if j != own] for g in job.gpus)
        return max(others, key=lambda profiles: sum(p.activity_frac for p in profiles))

    def _retime_neighbours(self, gpus: Placement, job: SimJob) -> None:
        on_gpu = self._view.on_gpu
        for job_id in dict.fromkeys(j for g in gpus for j in on_gpu[g] if j != job.job.id):
            neighbour = cast(SimJob, self._view.running[job_id])
            if neighbour.job.kind == "service" and self._online is not None:
                self._meters.regauge(neighbour)
            else:
                self._retime(neighbour)

    def _retime(self, job: SimJob) -> None:
        """It runs on at another speed."""
        job.progress(self._view.now_s)
        self._set_speed(job)
        self._meters.regauge(job)
        self._view.changes.retimed.append(job)

    def _retime_beside(self, job: SimJob, until_s: float) -> None:
        """The load of the service beside it has changed. Ends after the next look need not be known yet."""
        assert self._online is not None
        job.progress(self._view.now_s)
        if job.work is not None:
            self._set_speed(job)  # by epochs, each of which ends by itself
            return
        alone = speed(job.job, job.gpus, self._truth.cluster)
        job.speed = alone * self._online.throughput(job)
        job.end_s = max(job.progress_from_s, self._view.now_s) + (job.left_s / job.speed if job.speed > 0.0 else _NEVER)
        job.version += 1
        if job.end_s <= until_s:
            heapq.heappush(self._ends, (job.end_s, job.job.id, job.version))

    # -- what happens to the world -----------------------------------------------------------------------------------

    def _world_event(self) -> None:
        self._counts["events"] += 1
        next_s = self._next_in_world_s()
        if next_s == self._failures.next_s:
            self._node_event()
        elif next_s == self._truth.next_s:
            gpu = self._truth.drift()
            for job_id in self._view.on_gpu[gpu]:
                self._retime(cast(SimJob, self._view.running[job_id]))
        elif self._awake and next_s == self._awake[0][0]:
            self._view.awake(heapq.heappop(self._awake)[1])
        elif self._online is not None and next_s == self._online.next_s:
            for job in self._online.advance(self._view.now_s):
                job.preemptions += 1
                self._stop(job, evicted=True)
        else:
            self._look()

    def _look(self) -> None:
        """A job has run for a while: what its iteration time says of its GPUs."""
        _, job_id, version = heapq.heappop(self._looks)
        job = cast("SimJob | None", self._view.running.get(job_id))
        if job is None or job.version != version:
            return
        scores, app_class = self._view.scores, job.job.profile.app_class
        assert scores is not None
        if self._watch == "rank":
            changed = scores.observe_ranks(app_class, job.gpus, self._truth.of_ranks(job))
        else:
            changed = scores.observe(app_class, job.gpus, self._truth.of_job(job))
        if changed:
            self._view.changes.rescored.add(app_class)

    def _node_event(self) -> None:
        node, down = self._failures.pop()
        view, meters = self._view, self._meters
        if down and (node in view.asleep or node in view.waking):
            self._spared.add(node)
            return
        if node in self._spared:
            self._spared.discard(node)
            return
        if not down:
            view.node_up(node)
            meters.node_up(node)
            return
        self._counts["node_failures"] += 1
        first, last = self._cluster.first_gpu[node], self._cluster.first_gpu[node + 1]
        for job_id in sorted({j for g in range(first, last) for j in view.on_gpu[g]}):
            job = cast(SimJob, view.running[job_id])
            job.failures += 1
            self._stop(job, failed=True)
        view.node_down(node)
        meters.node_down(node)

    def _bank(self, job: SimJob) -> None:
        """A job that still runs when the run is over: what it has had so far."""
        now_s = self._view.now_s
        job.banked_gpu_s = job.attained_gpu_s(now_s)
        job.since_s = now_s

    def _about_rent(self) -> list[str]:
        """A rented cluster that nobody gives back."""
        if self._cluster.rental is None or self._rents:
            return []
        return ["the nodes are rented, but the policy keeps and pays all of them throughout; powering=rent does not"]

    def _about_gpus(self) -> list[str]:
        """What an operator should know: GPUs without a score, and GPUs that are far too slow."""
        scores, profile = self._view.scores, self._cluster.variability
        if scores is None or profile is None:
            return []
        notes = []
        if profile.unscored:
            notes.append(f"GPUs without a score, given the median of their class: {self._listed(profile.unscored)}")
        slow = {g: by_class for g, by_class in scores.slow_gpus().items() if g not in self._view.drained}
        for gpu, by_class in list(slow.items())[:_SHOWN]:
            shown = ", ".join(f"{score:.2f} times in class {c}" for c, score in by_class.items())
            name = self._cluster.gpu_name(gpu)
            notes.append(f"GPU {gpu} ({name}) is believed slower than the median, {shown}: look at it, or drain it")
        for app_class, suspects in scores.hunts():
            notes.append(f"one of these GPUs has become slow for class {app_class}: {self._listed(suspects)}")
        return notes

    def _listed(self, gpus: Sequence[int]) -> str:
        names = [self._cluster.gpu_name(g) for g in gpus[:_SHOWN]]
        return ", ".join(names) + (f" and {len(gpus) - _SHOWN} more" if len(gpus) > _SHOWN else "")

    def _names(self, jobs: Mapping[int, JobState]) -> str:
        names = [s.job.name for s in jobs.values()]
        return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")

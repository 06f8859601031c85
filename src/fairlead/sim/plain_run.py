"""The loop of plain runs, in columns: the same events, decisions and sums as `simulation.py`, without job objects.

A run is plain where nothing happens but arrivals and ends, every job has the GPUs that it asked for, all of one model,
from its start to its end, and the order of those that wait is known beforehand (`plain_queue.py`); placing packs. The
general loop has a view, a plan and its laws for each decision; here is one pass over numbers. The results are the same
to the last bit, and a test says so.

What the bits depend on: at one moment ends come first, in order of (moment, job), then arrivals, then one decision; all
sums are taken in that order; a job's watts are added when it starts and taken off when it ends. Which GPUs of a node a
job has makes no difference, so nodes are counts here.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from fairlead.errors import RunError
from fairlead.model.cluster import Cluster
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.model.speed import speed
from fairlead.policy.placing.packed import Packed
from fairlead.policy.ranking_index import IndexedRanking
from fairlead.policy.sharing.exclusive import Exclusive
from fairlead.policy.sizing.fixed import Fixed
from fairlead.policy.stack import Stack
from fairlead.policy.working_job import NEVER
from fairlead.sim.meters import Meters
from fairlead.sim.plain_nodes import PackedNodes, Where
from fairlead.sim.plain_queue import NOBODY, StrictQueue, queue_of
from fairlead.sim.result import Floats, JobRows
from fairlead.sim.world import World
from fairlead.traces.trace import Trace

Kind = tuple[int, float, float, float, float, float]
"""Jobs of one profile and width: GPUs, watts, active GPUs, watts of the GPUs if idle; speed in one node and across."""


@dataclass(slots=True)
class PlainRun:
    """The jobs of a plain run as columns, in order of submission."""

    submit_s: array[float]
    duration_s: array[float]
    end_s: array[float]
    """Known from a job's start on."""
    kinds: list[Kind]
    """Of each job."""
    queue: StrictQueue
    nodes: PackedNodes
    ended_gpu_s: float = 0.0
    ended_energy_j: float = 0.0
    events: int = 0

    def run(self, meters: Meters, rows: JobRows, progress: Callable[[int, int], None] | None, every: int) -> None:
        """Run to the end; the meters and the rows of the jobs are then as the general loop leaves them."""
        total, gpus, now_s = len(self.submit_s), meters.paid_gpus, meters.now_s
        submit_s, duration_s, end_s, kinds = self.submit_s, self.duration_s, self.end_s, self.kinds
        take, give, push, pop, ended = self.nodes.take, self.nodes.give, self.queue.push, self.queue.pop, None
        if type(self.queue).ended is not StrictQueue.ended:
            ended = self.queue.ended
        start_s, active_job_s = _zeros(total), _zeros(total)
        speeds: dict[int, float] = {}
        """Of jobs that do not run at their nominal speed."""
        ends: list[tuple[float, int, Where, Kind]] = []
        idle_w, jobs_w, activity_gpus, usd_per_s = meters.idle_w, 0.0, 0.0, meters.usd_per_s
        up_gpu_s = usd = held_gpu_s = activity_gpu_s = idle_j = jobs_j = running_s = waiting_s = active_s = 0.0
        free, arrived, started, decisions = gpus, 0, 0, 0
        arrival_s, row_s = submit_s[0], meters.next_row_s
        report_at = every if progress is not None else total + 1
        while True:
            moment_s = ends[0][0] if ends and ends[0][0] < arrival_s else arrival_s
            dt_s = moment_s - now_s
            if dt_s > 0.0:
                up_gpu_s += gpus * dt_s
                usd += usd_per_s * dt_s
                held_gpu_s += (gpus - free) * dt_s
                activity_gpu_s += activity_gpus * dt_s
                idle_j += idle_w * dt_s
                jobs_j += jobs_w * dt_s
                running_s += len(ends) * dt_s
                waiting_s += (arrived - started) * dt_s
                active_s = running_s + waiting_s
                now_s = moment_s
                if now_s >= row_s:
                    meters.set_integrals(
                        now_s, up_gpu_s, usd, held_gpu_s, activity_gpu_s, idle_j, jobs_j, running_s, waiting_s
                    )
                    row_s = meters.next_row_s
            while ends and ends[0][0] <= now_s:
                _, job, where, kind = heapq.heappop(ends)
                width, watts, active, idle, _, _ = kind
                give(where, width)
                free += width
                jobs_w -= watts
                activity_gpus -= active
                idle_w += idle
                if free == gpus:
                    jobs_w = activity_gpus = 0.0  # as the meters do: sums of many small steps drift
                active_job_s[job] = active_s - active_job_s[job]
                if ended is not None:
                    ended(job)
            if arrival_s <= now_s:
                while arrival_s <= now_s:
                    active_job_s[arrived] = active_s
                    push(arrived, now_s)
                    arrived += 1
                    arrival_s = submit_s[arrived] if arrived < total else NEVER
            elif started == total and not ends:
                break
            decisions += 1
            while (job := pop(free, now_s)) != NOBODY:
                kind = kinds[job]
                width, watts, active, idle, together, apart = kind
                where = take(width)
                free -= width
                started += 1
                idle_w -= idle
                jobs_w += watts
                activity_gpus += active
                run_s, pace = duration_s[job], together if type(where) is int else apart
                if pace != 1.0:
                    speeds[job] = pace
                    run_s /= pace
                start_s[job] = now_s
                end_s[job] = now_s + run_s
                heapq.heappush(ends, (now_s + run_s, job, where, kind))
            if started - len(ends) >= report_at:
                report_at = started - len(ends) + every
                assert progress is not None
                progress(started - len(ends), total)
        meters.set_integrals(now_s, up_gpu_s, usd, held_gpu_s, activity_gpu_s, idle_j, jobs_j, running_s, waiting_s)
        if progress is not None:
            progress(total, total)
        self.events = 2 * total + decisions
        self._write(rows, np.frombuffer(start_s), np.frombuffer(active_job_s), speeds)

    def _write(self, rows: JobRows, start_s: Floats, active_job_s: Floats, speeds: dict[int, float]) -> None:
        end_s, duration_s = np.frombuffer(self.end_s), np.frombuffer(self.duration_s)
        held_s = end_s - start_s
        done_s = held_s.copy()
        done_s[list(speeds)] *= list(speeds.values())
        left_s = duration_s - done_s
        if (left_s > 1e-6 + 1e-9 * duration_s).any():
            job = int(np.argmax(left_s > 1e-6 + 1e-9 * duration_s))
            raise RunError(f"job {job} ended with {left_s[job]} s of work left")
        gpu_s = np.array([kind[0] for kind in self.kinds]) * held_s
        energy_j = np.array([kind[1] for kind in self.kinds]) * held_s
        rows.write_all(
            first_start_s=start_s, finish_s=end_s, held_s=held_s, gpu_s=gpu_s, energy_j=energy_j,
            active_job_s=active_job_s,
        )  # fmt: skip
        self.ended_gpu_s, self.ended_energy_j = float(gpu_s.sum()), float(energy_j.sum())


def plain_run(trace: Trace, cluster: Cluster, stack: Stack, world: World, meters: Meters) -> PlainRun | None:
    """The run as a plain one; None where it is not."""
    jobs, names = trace.frame, trace.frame["profile"].unique().to_list()
    profiles = {m: trace.profile(m).with_options(locality=world.locality) for m in names}
    if not (_is_plain_stack(stack) and _is_plain_world(cluster, world) and _are_plain_jobs(trace, profiles, cluster)):
        return None
    submit_s, duration_s = _column(jobs["submit_s"]), _column(jobs["duration_s"])
    end_s = _zeros(len(trace))
    queue = queue_of(stack.ordering, stack.regime, jobs, duration_s, end_s)
    if queue is None:
        return None
    # Numbers in the place of names, of which a million would be dear.
    pairs = jobs.select(pl.col("profile").cast(pl.Enum(names)).to_physical(), "gpus")
    found = {(m, k): _kind(profiles[names[m]], k, cluster, meters) for m, k in pairs.unique().iter_rows()}
    kinds = [found[asked] for asked in zip(*(pairs[name].to_list() for name in pairs.columns), strict=True)]
    return PlainRun(submit_s, duration_s, end_s, kinds, queue, PackedNodes(cluster))


def _is_plain_stack(stack: Stack) -> bool:
    """Types, not their subclasses: these may decide otherwise."""
    exact = (type(stack), type(stack.sizing), type(stack.sharing), type(stack.placing))
    if exact != (Stack, Fixed, Exclusive, Packed) or type(stack.ranking) is not IndexedRanking:
        return False
    if stack.round_s is not None or not stack.placing.sticky or stack.powering.active:
        return False
    return not stack.ranking.primed and not stack.explains


def _is_plain_world(cluster: Cluster, world: World) -> bool:
    """Nothing happens by itself, GPUs are all alike, and nobody wants to know who was on which."""
    happens = world.failures, world.drifts, world.drained, world.true_variability, world.correct_scores
    if any(happens) or world.records or cluster.variability is not None:
        return False
    return len({node.gpu_model for node in cluster.nodes}) == 1


def _are_plain_jobs(trace: Trace, profiles: dict[str, Profile], cluster: Cluster) -> bool:
    """Training of a known length on whole GPUs, and every GPU holds it; hosts do not count."""
    if trace.wrap is not None or any(p.training or p.service for p in profiles.values()):
        return False
    room_mib, is_training = cluster.least_memory_mib, pl.col("kind") == "training"
    jobs = trace.frame.select(
        is_training.all(), pl.col("memory_mib").max(), pl.col("duration_s").is_finite().all(), pl.col("gpu_frac").min(),
        pl.max_horizontal("cpus", "ram_mib").max(),
    )  # fmt: skip
    all_train, most_mib, all_end, least_frac, most_of_hosts = jobs.row(0)
    if least_frac < 1.0 or (cluster.states_hosts and most_of_hosts):
        return False
    return bool(all_train and all_end and max(most_mib, *(p.memory_mib for p in profiles.values())) <= room_mib)


def _kind(profile: Profile, gpus: int, cluster: Cluster, meters: Meters) -> Kind:
    """GPUs of one model are all the same: only whether they are on one node makes a difference."""
    job, first = Job(0, "", 0.0, gpus, profile, min_gpus=gpus, max_gpus=gpus), cluster.first_gpu
    node = next((n for n, node in enumerate(cluster.nodes) if node.gpus >= gpus), None)
    border = min(first[1] - 1, cluster.gpus - gpus)
    apart = speed(job, range(border, border + gpus), cluster)
    together = apart if node is None else speed(job, range(first[node], first[node] + gpus), cluster)
    return gpus, *meters.alone(profile, gpus), together, apart


def _column(values: pl.Series) -> array[float]:
    return array("d", values.to_numpy().tobytes())


def _zeros(count: int) -> array[float]:
    return array("d", bytes(8 * count))

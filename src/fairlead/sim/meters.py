"""Meters of the simulated cluster: GPU-time, energy, money, and a timeline of bounded size.

Energy is metered twice, from two sides: the cluster's power is integrated over time, and each job integrates its own.
A GPU that somebody is on belongs to its jobs, idle power included, in proportion to their activity; node bases and
empty GPUs are idle energy. The two sides must add up, and every run checks that they do.
"""

from __future__ import annotations

import itertools

import polars as pl

from fairlead.model.cluster import Cluster, GpuModel
from fairlead.model.interference import Interference
from fairlead.model.power import gpu_power_w
from fairlead.model.profile import Profile
from fairlead.policy.view import View
from fairlead.sim.simjob import SimJob

_TIMELINE_ROWS = 2048
_GAUGES = ("busy_gpus", "activity_gpus", "running_jobs", "waiting_jobs", "power_w", "paid_gpus")
"""Columns of the timeline."""


class Meters:
    """Integrals over simulated time. `advance` before anything changes at a new moment."""

    def __init__(self, cluster: Cluster, view: View, interference: Interference, begin_s: float = 0.0) -> None:
        self._cluster = cluster
        self._interference = interference
        self._view = view
        models = {n.gpu_model for n in cluster.nodes}
        self._only_model = next(iter(models)) if len(models) == 1 else None
        self._power_cache: dict[tuple[GpuModel, float], float] = {}
        self.begin_s = begin_s
        self.now_s = begin_s
        # Gauges: what holds right now.
        self.idle_w = sum(n.base_w + n.gpus * n.gpu_model.idle_w for n in cluster.nodes)
        self.jobs_w = 0.0
        self.held_gpus = 0.0
        self.activity_gpus = 0.0
        self.paid_gpus = cluster.gpus
        """GPUs that are paid for, busy or not."""
        self.usd_per_s = sum(n.gpus * n.gpu_model.price_usd_per_h for n in cluster.nodes) / 3600.0
        # Integrals: what has been.
        self.paid_gpu_s = 0.0
        self.paid_usd = 0.0
        self.up_gpu_s = 0.0
        self.busy_gpu_s = 0.0
        self.held_gpu_s = 0.0
        self.activity_gpu_s = 0.0
        self.idle_j = 0.0
        self.jobs_j = 0.0
        self.running_job_s = 0.0
        self.waiting_job_s = 0.0
        self._timeline = Timeline(begin_s)

    def advance(self, now_s: float) -> None:
        """Integrate energy and money up to now."""
        dt_s = now_s - self.now_s
        if dt_s <= 0.0:
            return
        view = self._view
        up = view.up_gpus
        self.up_gpu_s += up * dt_s
        self.paid_gpu_s += self.paid_gpus * dt_s
        self.paid_usd += self.usd_per_s * dt_s
        self.busy_gpu_s += (up - view.free.count) * dt_s
        self.held_gpu_s += self.held_gpus * dt_s
        self.activity_gpu_s += self.activity_gpus * dt_s
        self.idle_j += self.idle_w * dt_s
        self.jobs_j += self.jobs_w * dt_s
        self.running_job_s += len(view.running) * dt_s
        self.waiting_job_s += len(view.waiting) * dt_s
        self.now_s = now_s
        if now_s >= self._timeline.next_s:
            self._timeline.add(now_s, self._integrals())

    @property
    def next_row_s(self) -> float:
        """From this moment on the timeline wants another row."""
        return self._timeline.next_s

    def set_integrals(
        self, now_s: float, up_gpu_s: float, usd: float, busy_gpu_s: float, activity_gpu_s: float, idle_j: float,
        jobs_j: float, running_job_s: float, waiting_job_s: float,
    ) -> None:  # fmt: skip
        """What a loop with sums of its own has come to by now; all GPUs are paid for, and jobs share none."""
        self.up_gpu_s = self.paid_gpu_s = up_gpu_s
        self.paid_usd = usd
        self.busy_gpu_s = self.held_gpu_s = busy_gpu_s
        self.activity_gpu_s = activity_gpu_s
        self.idle_j, self.jobs_j = idle_j, jobs_j
        self.running_job_s, self.waiting_job_s = running_job_s, waiting_job_s
        self.now_s = now_s
        if now_s >= self._timeline.next_s:
            self._timeline.add(now_s, self._integrals())

    def started(self, job: SimJob) -> None:
        """A job was placed; its gauges follow from who is on its GPUs."""
        self.held_gpus += len(job.gpus) * job.job.gpu_frac
        job.metered_s = self.now_s
        if job.shared:
            self.idle_w -= self._idle_w(tuple(g for g in job.gpus if len(self._view.on_gpu[g]) == 1))
        else:
            self.idle_w -= self._idle_w(job.gpus)
        self.regauge(job)

    def stopped(self, job: SimJob, gpus: tuple[int, ...]) -> None:
        """A job left these GPUs."""
        self.held_gpus -= len(gpus) * job.job.gpu_frac
        job.energy_j += job.power_w * (self.now_s - job.metered_s)
        self.jobs_w -= job.power_w
        self.activity_gpus -= job.activity_gpus
        job.power_w = job.activity_gpus = 0.0
        down, node_of, on_gpu = self._view.down, self._cluster.node_of, self._view.on_gpu
        # A GPU that a neighbour still holds is not idle; one of a dead node draws nothing.
        self.idle_w += self._idle_w(tuple(g for g in gpus if not on_gpu[g] and node_of[g] not in down))
        if not self._view.running:
            # Sums of many small steps drift in the last digits; nobody runs, so these are exactly 0.
            self.jobs_w = self.activity_gpus = self.held_gpus = 0.0

    def regauge(self, job: SimJob) -> None:
        """Settle a job's energy and set its power and activity from its GPUs as they are now."""
        job.energy_j += job.power_w * (self.now_s - job.metered_s)
        job.metered_s = self.now_s
        power_w, activity = self._gauges(job)
        self.jobs_w += power_w - job.power_w
        self.activity_gpus += activity - job.activity_gpus
        job.power_w, job.activity_gpus = power_w, activity

    def node_down(self, node: int) -> None:
        """A node that fails draws nothing; its jobs have been stopped."""
        self._switch(node, -1.0)

    def node_up(self, node: int) -> None:
        """A node is back and idle."""
        self._switch(node, 1.0)

    def node_asleep(self, node: int) -> None:
        """An idle node draws what a sleeping one does."""
        self._switch(node, -1.0)
        self.idle_w += self._cluster.nodes[node].sleep_w

    def node_waking(self, node: int) -> None:
        """From here on it draws what an idle node does, though nobody can use it yet."""
        self.idle_w -= self._cluster.nodes[node].sleep_w
        self._switch(node, 1.0)

    def node_rented(self, node: int) -> None:
        """A node is ordered: paid for and powered from now on."""
        self._switch(node, 1.0)
        self._charge(node, 1)

    def node_given_back(self, node: int, held_s: float | None) -> None:
        """An idle node is given back; what is billed beyond the time that it was held is added. None: it never was."""
        self._switch(node, -1.0)
        self._charge(node, -1)
        if held_s is not None:
            self.settle(node, held_s)

    def settle(self, node: int, held_s: float) -> None:
        """Pay what is billed for a rental beyond the time that the node was held."""
        rental, spec = self._cluster.rental, self._cluster.nodes[node]
        if rental is not None:
            extra_s = rental.billed_s(held_s) - held_s
            self.paid_gpu_s += spec.gpus * extra_s
            self.paid_usd += spec.gpus * spec.gpu_model.price_usd_per_h * extra_s / 3600.0

    def _charge(self, node: int, sign: int) -> None:
        spec = self._cluster.nodes[node]
        self.paid_gpus += sign * spec.gpus
        self.usd_per_s += sign * spec.gpus * spec.gpu_model.price_usd_per_h / 3600.0

    def timeline(self) -> pl.DataFrame:
        """Time-weighted means over at most some thousand intervals."""
        return self._timeline.frame(self.now_s, self._integrals())

    def _switch(self, node: int, sign: float) -> None:
        spec = self._cluster.nodes[node]
        self.idle_w += sign * (spec.base_w + spec.gpus * spec.gpu_model.idle_w)

    def _integrals(self) -> tuple[float, ...]:
        return (
            self.busy_gpu_s, self.activity_gpu_s, self.running_job_s, self.waiting_job_s, self.idle_j + self.jobs_j,
            self.paid_gpu_s,
        )  # fmt: skip

    def alone(self, profile: Profile, gpus: int) -> tuple[float, float, float]:
        """Where all GPUs are of one model: power and active GPUs of a job that shares none, and their power if idle."""
        assert self._only_model is not None
        own, model = profile.activity_frac, self._only_model
        return gpus * self._power_w(model, own), gpus * own, model.idle_w * gpus

    def _idle_w(self, gpus: tuple[int, ...]) -> float:
        if self._only_model is not None:
            return self._only_model.idle_w * len(gpus)
        return sum(self._cluster.gpu_model(g).idle_w for g in gpus)

    def _power_w(self, model: GpuModel, utilisation_frac: float) -> float:
        key = (model, utilisation_frac)
        found = self._power_cache.get(key)
        if found is None:
            found = self._power_cache[key] = gpu_power_w(model, utilisation_frac)
        return found

    def _gauges(self, job: SimJob) -> tuple[float, float]:
        """Power and active GPUs of one job: its part, by activity, of each GPU that it is on."""
        own = job.job.profile.activity_frac
        if not job.shared and self._only_model is not None:
            return self.alone(job.job.profile, len(job.gpus))[:2]
        if job.job.gpu_frac < 1.0:
            return self._gauges_of_part(job)
        power_w = activity = 0.0
        running = self._view.running
        for g in job.gpus:
            on_it = [running[j].job.profile for j in self._view.on_gpu[g]]
            used = self._interference.utilisation(on_it)
            total = sum([p.activity_frac for p in on_it])
            part = own / total if total > 0.0 else 1.0 / len(on_it)
            power_w += part * self._power_w(self._cluster.gpu_model(g), used)
            activity += part * used
        return power_w, activity

    def _gauges_of_part(self, job: SimJob) -> tuple[float, float]:
        """Of a job that holds a part of a GPU: it keeps so much of it busy, and draws its part of what is held."""
        running, gpu = self._view.running, job.gpus[0]
        on_it = [running[j].job for j in self._view.on_gpu[gpu]]
        used = sum([j.gpu_frac * j.profile.activity_frac for j in on_it])
        held = sum([j.gpu_frac for j in on_it])
        power_w = self._power_w(self._cluster.gpu_model(gpu), used)
        return job.job.gpu_frac / held * power_w, job.job.gpu_frac * job.job.profile.activity_frac


class Timeline:
    """Cumulative integrals at moments that grow apart: when full, every other row is dropped and the step doubles."""

    def __init__(self, begin_s: float = 0.0) -> None:
        self._begin_s = begin_s
        self._rows: list[tuple[float, tuple[float, ...]]] = [(begin_s, (0.0,) * len(_GAUGES))]
        self._step_s = 1.0
        self.next_s = begin_s

    def add(self, now_s: float, integrals: tuple[float, ...]) -> None:
        """Add a row for this moment."""
        self._rows.append((now_s, integrals))
        if len(self._rows) > _TIMELINE_ROWS:
            self._rows = self._rows[::2]
            self._step_s = max(2.0 * self._step_s, (now_s - self._begin_s) / _TIMELINE_ROWS)
        self.next_s = now_s + self._step_s

    def frame(self, now_s: float, integrals: tuple[float, ...]) -> pl.DataFrame:
        """The timeline as a table, with means between its rows."""
        # What is billed at the very end comes after the last row was written: the integrals as they are now count.
        rows = [*(row for row in self._rows if row[0] < now_s), (now_s, integrals)]
        pairs = list(itertools.pairwise(rows))
        columns: dict[str, list[float]] = {"start_s": [a[0] for a, _ in pairs], "end_s": [b[0] for _, b in pairs]}
        for i, name in enumerate(_GAUGES):
            columns[name] = [(b[1][i] - a[1][i]) / (b[0] - a[0]) for a, b in pairs]
        return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))

"""The work of jobs that train by goodput: epochs, each with a speed of its own at every width.

Work is counted in seconds at nominal speed, as for all jobs: an epoch's samples over its goodput on the GPUs asked for,
on as few nodes as will do. Jobs of one kind share one `Work`.
"""

from __future__ import annotations

import itertools
import math

from fairlead.errors import InputError
from fairlead.model.adaptive_batch import AdaptiveBatch
from fairlead.model.job import Job
from fairlead.model.training import FixedBatch, Training, packed_nodes


class Work:
    """The epochs of one kind of job."""

    def __init__(self, training: Training, gpus: int, gpus_per_node: int) -> None:
        self.training = training
        nodes = packed_nodes(gpus, gpus_per_node)
        self._nominal = [training.goodput_at(e, gpus, nodes) for e in range(len(training.samples))]
        if not all(g > 0.0 for g in self._nominal):
            raise InputError(f"a job of {training.name} asks for {gpus} GPUs: its batch does not feed so many")
        seconds = [n / g for n, g in zip(training.samples, self._nominal, strict=True)]
        self.duration_s = math.fsum(seconds)
        behind = [0.0, *itertools.accumulate(reversed(seconds))]
        self.left_s = behind[::-1]
        """What is left at the start of each epoch, and 0 after the last."""
        self._speeds: dict[tuple[int, int, int], float] = {}

    def speed(self, epoch: int, replicas: int, nodes: int) -> float:
        """As a multiple of the nominal speed in that epoch."""
        key = (epoch, replicas, nodes)
        found = self._speeds.get(key)
        if found is None:
            found = self._speeds[key] = self.training.goodput_at(*key) / self._nominal[epoch]
        return found

    def run_s(self, left_s: float, epoch: int, replicas: int, nodes: int) -> float:
        """Seconds until the end there, from a point within an epoch."""
        total = 0.0
        for e in range(epoch, len(self._nominal)):
            speed = self.speed(e, replicas, nodes)
            part = min(left_s, self.left_s[e]) - self.left_s[e + 1]
            total += part / speed if speed > 0.0 else math.inf
        return total


class Works:
    """The work of every job, made once per kind."""

    def __init__(self, gpus_per_node: int, adapts_batch: bool) -> None:
        self._gpus_per_node = gpus_per_node
        self._adapts_batch = adapts_batch
        self._found: dict[tuple[int, int, int], Work] = {}

    def of(self, job: Job) -> Work | None:
        """None for a job that does not train by goodput."""
        training = job.profile.training
        if training is None:
            return None
        batch = 0 if self._adapts_batch else job.batch
        key = (id(training), job.gpus, batch)
        found = self._found.get(key)
        if found is None:
            kind: Training = FixedBatch(training, batch) if batch and isinstance(training, AdaptiveBatch) else training
            found = self._found[key] = Work(kind, job.gpus, self._gpus_per_node)
        return found

"""What a driver measures or is told of, for the policies that ask: progress, training, the bill, services, the future.

The simulator computes these from its equations; the live controller takes them from agents and reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairlead.model.adaptive_batch import Steps
from fairlead.policy.job_state import JobState


class Epochs(Protocol):
    """What jobs report of themselves: epochs done, how long they take, how many are to come."""

    def done(self, state: JobState) -> int:
        """The whole epochs that a job has done."""
        ...

    def next_end_s(self, state: JobState) -> float:
        """When a running job's present epoch ends, at the speed it has now."""
        ...

    def left_s(self, state: JobState) -> float:
        """Seconds that the epochs to come take alone on the GPUs asked for."""
        ...

    def kept_speed(self, state: JobState) -> float:
        """Measured: a running job's speed beside its neighbours over its speed alone on the same GPUs."""
        ...

    def utilisation(self, gpu: int) -> float:
        """Measured: how busy a GPU is."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """What a running job says of its training: where it is, and how fast it goes there."""

    epoch: int
    """From 0."""
    epochs: int
    """In all, as its owner has declared."""
    samples: float
    """Of this epoch, as if the batch were the initial one."""
    nodes: int
    goodput: float
    """Samples per second that count, measured."""
    steps: Steps | None
    """Its iterations; None where it does not report them."""


class Reports(Protocol):
    """What jobs report of their training, for the sizings that fit curves to it."""

    def report(self, state: JobState) -> Report | None:
        """Of a job that runs and has made some progress there; None where it reports nothing."""
        ...


class Bill(Protocol):
    """What the cluster has cost so far."""

    def paid_gpu_s(self) -> float:
        """GPU-seconds paid for so far, boot and idle included."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """Metered: the services on their GPUs, one value each, in the order of the GPUs."""

    gpu: NDArray[np.int64]
    service: NDArray[np.int64]
    """Job numbers."""
    utilisation_frac: NDArray[np.float64]
    """The service's own, now; so are the next two."""
    sm_activity_frac: NDArray[np.float64]
    """NaN where it was not metered yet, or cannot be."""
    memory_frac: NDArray[np.float64]
    accepts: NDArray[np.bool_]
    """Whether the guard lets offline work on this GPU."""
    offline: NDArray[np.int64]
    """The offline job beside it, or -1."""


class Meter(Protocol):
    """What is metered of GPUs with services."""

    def fleet(self) -> Fleet:
        """The services as they are metered at this moment."""
        ...


class Oracle(Protocol):
    """Knowledge of the future, for the policies that declare that they need it."""

    def remaining_s(self, state: JobState) -> float:
        """Run time left: at the speed it has now if it runs, at its nominal speed if it waits."""
        ...

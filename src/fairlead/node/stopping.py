"""Jobs that have to give up their GPUs, in three words that mean different things everywhere in Fairlead.

preempt   A policy takes the GPUs of a running job for others; the job waits, and the controller stops its attempt.
stop      The controller's order to an attempt, whoever wants it: the policy, a user who cancels or holds the job, an
          operator. Its node does not launch it again.
evict     A node's guard ends an attempt by itself, for the service beside it or since it holds more memory than it may.
          The controller learns of it, and lets the job wait again.

Stopped or evicted, an attempt goes the same way (`policy/guarding/evict.py`): frozen, SIGTERM, off the GPU, SIGKILL.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.node.process.processes import boot_s

OVER_QUOTA = "over-memory-quota"
"""Why a job is evicted that holds more device memory than it may."""


@dataclass(frozen=True, slots=True)
class StopRequest:
    """That an attempt was stopped, or evicted."""

    at_s: float
    """As time of day, for people."""
    grace_s: float | None = None
    """None: its own."""
    evicted: str = ""
    """Why, where it was the guard."""
    boot_s: float = 0.0
    """The same moment since the machine started; no process is stopped by an agent of another boot."""

    def left_s(self, own_s: float) -> float:
        """What is left of its grace."""
        return max((own_s if self.grace_s is None else self.grace_s) - (boot_s() - self.boot_s), 0.0)

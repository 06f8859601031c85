"""The controller's own numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How often the controller looks, how long it waits, and as whom it runs jobs."""

    poll_s: float = 5.0
    """The engine is asked at least this often, whether or not it has called."""
    lost_after_s: float = 10.0
    """A node whose agent has not answered for this long gets no new jobs."""
    save_s: float = 30.0
    """What the policy has learnt is saved this often while it changes."""
    keep_logs_s: float = 30 * 86400.0
    """Logs of jobs that have been over for so long are deleted."""
    as_submitter: bool = False
    """Whether each job runs under the account of its submitter; needs root."""
    decide_s: float = 60.0
    """A policy that has not decided by then is stopped."""

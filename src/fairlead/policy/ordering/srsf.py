"""Shortest remaining service first, with an oracle."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.ordering.srtf import Srtf
from fairlead.policy.queue import Key
from fairlead.policy.view import JobState, View


@dataclass
class Srsf(Srtf):
    """Least GPU-time left first, preemptive; reads true durations (SRSF of Tiresias' evaluation, NSDI'19).

    Order: run time left times GPUs, ties in order of submission. Times are those of `ordering=srtf`; GPUs are those
    that a job has, or that it asked for while it waits. So a wide job has to be shorter to go ahead of a narrow one.
    The order of running jobs changes while they run, so it is looked at on every event and in every round. The rest is
    as of `ordering=srtf`.

    When not to use it: on a live cluster, which has no oracle; and where wide jobs must not starve.
    """

    @property
    def drifts(self) -> bool:
        """Of two running jobs the wider one needs less and less compared with the other."""
        return True

    def waiting_key(self, state: JobState, view: View) -> Key:
        """The GPU-time left at the width that the job asks for."""
        assert view.oracle is not None, "srsf was shown a view without an oracle"
        gpus = (len(state.gpus) or state.job.gpus) * state.job.gpu_frac
        return (view.oracle.remaining_s(state) * gpus, state.job.id)

    def running_key(self, state: JobState, view: View) -> Key:
        """The GPU-time left on the GPUs that the job has."""
        return self.waiting_key(state, view)

    def as_running(self, key: Key, now_s: float) -> Key:
        """As it is: both are times to come."""
        return key

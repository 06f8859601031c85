"""The node agents' guards in the simulated world, one per GPU with a service.

A guard is fed with what the model says that its agent would measure. As long as a GPU is calm (in state Healthy, and
read as Healthy) nothing can change, so its guard is fed in one piece when that ends; the states are the same. Any other
GPU that has an offline job is looked at at the end of every window, which is when guards decide.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from fairlead.policy.guarding import GpuGuard, GuardConfig, Sample, State, Transition

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
READINGS = (
    "util_frac", "sm_activity_frac", "clock_frac", "memory_frac", "online_util_frac", "online_sm_activity_frac",
    "slo_broken",
)  # fmt: skip
"""Rows of what is read of GPUs: as in `Sample`, and 1 for an SLO that is broken."""
_NEVER = float("inf")


class Guards:
    """The guards of a cluster, as arrays over all GPUs."""

    def __init__(self, config: GuardConfig, gpus: int) -> None:
        self._config = config
        self._guards: dict[int, GpuGuard] = {}
        self._held = np.zeros((len(READINGS), gpus))
        """What has been read since the last change."""
        self._held_well = np.zeros(gpus, dtype=bool)
        self._calm = np.zeros(gpus, dtype=bool)
        """Healthy, and well by what has been read: time alone changes nothing."""
        self.accepts = np.zeros(gpus, dtype=bool)
        self._restless: dict[int, None] = {}
        """GPUs whose state may change by time alone."""
        self._looks: list[tuple[float, int]] = []
        self._look_s: dict[int, float] = {}
        """The next look at a GPU; other entries of the heap are stale."""
        self.overlimits = 0
        self.disabled = 0
        self.last: dict[int, Transition] = {}
        """The last change of state of each GPU."""

    @property
    def next_s(self) -> float:
        """When a guard has to be looked at next."""
        while self._looks and self._look_s.get(self._looks[0][1]) != self._looks[0][0]:
            heapq.heappop(self._looks)
        return self._looks[0][0] if self._looks else _NEVER

    def state(self, gpu: int) -> State:
        """Of one GPU, as of when it was last fed."""
        return self._guards[gpu].state

    def add(self, gpu: int, now_s: float, *, accepts: bool = False) -> None:
        """A service has come to a GPU, or was there before and its guard `accepts` offline work already."""
        guard = self._guards[gpu] = GpuGuard(self._config, now_s)
        if accepts:
            guard.state = State.HEALTHY

    def remove(self, gpu: int) -> None:
        """The service of a GPU has gone, and its guard with it."""
        del self._guards[gpu]
        self._restless.pop(gpu, None)
        self._look_s.pop(gpu, None)
        self._calm[gpu] = self.accepts[gpu] = False

    def take(self, gpus: Ints, readings: Floats, now_s: float, offline: Collection[int]) -> None:
        """From now on these are read of these GPUs (a column each); `offline` has the GPUs with an offline job."""
        well = self._are_well(readings)
        restless = np.flatnonzero(~(self._calm[gpus] & well)).tolist()
        for at in restless:
            if int(gpus[at]) in self._guards:
                self._feed(int(gpus[at]), now_s)
        self._held[:, gpus] = readings
        self._held_well[gpus] = well
        for at in restless:
            if int(gpus[at]) in self._guards:
                self._note(int(gpus[at]), now_s, offline)

    def refresh(self, now_s: float, offline: Collection[int]) -> None:
        """Bring every state up to now."""
        for gpu in tuple(self._restless):
            self._feed(gpu, now_s)
            self._note(gpu, now_s, offline)

    def must_evict(self, now_s: float, offline: Collection[int]) -> list[int]:
        """Look at what is due: the GPUs whose offline job must leave."""
        found = []
        while self.next_s <= now_s:
            gpu = heapq.heappop(self._looks)[1]
            del self._look_s[gpu]
            self._feed(gpu, now_s)
            if gpu in offline and self._guards[gpu].must_evict:
                found.append(gpu)
            self._note(gpu, now_s, offline)
        return found

    def _are_well(self, readings: Floats) -> NDArray[np.bool_]:
        """Whether these are readings of a Healthy GPU."""
        c = self._config
        _, _, clock, memory, util, activity, broken = readings
        inside = (util < c.util_healthy_frac) & (activity < c.sm_activity_healthy_frac) & (broken == 0.0)
        well: NDArray[np.bool_] = inside & (clock > c.clock_healthy_frac) & (memory < c.memory_healthy_frac)
        return well

    def _feed(self, gpu: int, now_s: float) -> None:
        """Bring a guard up to now with what has been read until now.

        After a time in which it was calm that is only the last that was read: it was as well all the time.
        """
        guard = self._guards[gpu]
        if now_s <= guard.time_s:
            return
        values = self._held[:, gpu].tolist()
        sample = Sample(
            guard.time_s,
            util_frac=values[0],
            sm_activity_frac=values[1],
            clock_frac=values[2],
            memory_frac=values[3],
            online_util_frac=values[4],
            online_sm_activity_frac=values[5],
            slo_broken=bool(values[6]),
        )
        for move in guard.observe_constant(sample, now_s):
            self.last[gpu] = move
            self.disabled += move.after is State.DISABLED
            # The one too many leads to Disabled instead; it is an Overlimit all the same.
            self.overlimits += move.after is State.OVERLIMIT or move.cause == "too-often-overlimit"

    def _note(self, gpu: int, now_s: float, offline: Collection[int]) -> None:
        """What follows from a state and from what is read."""
        state = self._guards[gpu].state
        self.accepts[gpu] = state is State.HEALTHY
        calm = state is State.HEALTHY and bool(self._held_well[gpu])
        self._calm[gpu] = calm
        if calm or state is State.DISABLED:
            self._restless.pop(gpu, None)
        else:
            self._restless[gpu] = None
        if not calm and gpu in offline:
            window_s = self._config.window_s
            due_s = (math.floor(now_s / window_s + 1e-9) + 1.0) * window_s
            if self._look_s.get(gpu, _NEVER) > due_s:
                self._look_s[gpu] = due_s
                heapq.heappush(self._looks, (due_s, gpu))

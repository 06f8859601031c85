"""The state of a GPU that an online service and an offline job share: MuxFlow's SysMonitor.

Samples in, transitions out; time comes with the samples. The node agent feeds it what it measures, the simulator what
it simulates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from fairlead.errors import InputError
from fairlead.policy.guarding.config import GuardConfig
from fairlead.policy.guarding.sample import Limits, Sample, Window
from fairlead.policy.guarding.watch import Watch

DEFAULT = GuardConfig()


class State(StrEnum):
    """Only Healthy GPUs accept offline work."""

    INIT = "init"
    """Not observed for long enough: receives none, keeps what it has."""
    HEALTHY = "healthy"
    """May receive offline work."""
    UNHEALTHY = "unhealthy"
    """Keeps what it has, receives none."""
    OVERLIMIT = "overlimit"
    """The offline job is evicted; none for the length of the hold."""
    DISABLED = "disabled"
    """Out of the pool until the operator enables it."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A guard's change from one state to another, with its reason."""

    time_s: float
    """When it was decided: the end of a window, or the moment of the event."""
    before: State
    after: State
    cause: str
    """One kebab-case word for logs and metrics."""
    reason: str
    """For people."""


class GpuGuard:
    """The state machine of one GPU.

    Windows are the multiples of `window_s`. One counts if the GPU was seen from its start to its end without a gap over
    `gap_s`; it is judged by the mean of each metric. In a row of windows:

    - Healthy to Unhealthy: `worse_windows` with a limit of Healthy broken; back: `better_windows` with none.
    - To Overlimit from any state but Disabled: `worse_windows` with one of its limits broken, `util_over_windows` for
      utilisation, `slo_windows` with the SLO signal. From it: after the hold, and `better_windows` under all of them,
      counted during the hold too; to Healthy if none of these broke a limit of Healthy either, else to Unhealthy.
    - From Init: after `init_s` of windows that count and what is left of a hold; to Healthy if all were healthy.
    - A gap leads back to Init, from Overlimit and Disabled it does not.

    Call `advance` when there is no sample, so that a gap is noticed when it happens.
    """

    __slots__ = ("_entries", "_hold_until_s", "_limits", "_mps_down", "_mps_failures", "_watch", "config", "state")

    def __init__(self, config: GuardConfig = DEFAULT, time_s: float = 0.0) -> None:
        self.config = config
        self.state = State.INIT
        self._limits = Limits.of(config)
        self._hold_until_s: float | None = None
        self._entries: list[float] = []
        """When Overlimit was entered, within its memory."""
        self._mps_failures = 0
        self._mps_down = False
        self._watch = Watch(config, time_s)

    @property
    def accepts_offline(self) -> bool:
        """Whether an offline job may be placed here now."""
        return self.state is State.HEALTHY

    @property
    def must_evict(self) -> bool:
        """Whether an offline job that is here must be evicted."""
        return self.state in (State.OVERLIMIT, State.DISABLED)

    @property
    def next_s(self) -> float | None:
        """When the hold ends; None where there is none."""
        return self._hold_until_s

    @property
    def time_s(self) -> float:
        """The latest moment that it was told of."""
        return self._watch.time_s

    def observe(self, sample: Sample) -> list[Transition]:
        """Take in a sample; times never go back (`agent_restarted` takes care of a clock that did)."""
        out = self.advance(sample.time_s)
        self._watch.add(sample, 1, sample.time_s)
        if sample.fatal_fault is not None:
            self._move(State.DISABLED, sample.time_s, "fatal-fault", f"fatal fault: {sample.fatal_fault}", out)
        return out

    def advance(self, now_s: float) -> list[Transition]:
        """Time has come to `now_s` without a further sample."""
        watch = self._watch
        if not now_s >= watch.time_s:
            raise ValueError(f"time went back from {watch.time_s} s to {now_s} s")
        out: list[Transition] = []
        while True:
            if watch.lost_s < watch.end_s and watch.lost_s < now_s:
                self._lose(watch.lost_s, out)
            elif now_s >= watch.end_s:
                self._close(watch.end_s, out)
                if watch.seen_s is None and now_s >= watch.end_s:
                    watch.streaks.take(0)  # of windows that nobody saw, those after the first change nothing
                    watch.index = watch.index_of(now_s)
            else:
                watch.time_s = now_s
                return out

    def observe_constant(self, sample: Sample, until_s: float) -> list[Transition]:
        """The same as observing it at its own time and every `sample_s` from there, before `until_s`, then advancing.

        Takes time by the number of transitions, not by the length of the stretch.
        """
        start_s, step_s = sample.time_s, self.config.sample_s
        out = self.observe(sample)
        watch = self._watch
        last = _steps_to(until_s, start_s, step_s)
        pure_from = watch.index + 1  # the first window that has samples of this stretch only
        i, before = 1, (self.state, watch.streaks.rows)
        while i < last:
            closing, until = watch.index, min(last, _steps_to(watch.end_s, start_s, step_s))
            if until > i:
                watch.add(sample, until - i, start_s + (until - 1) * step_s)
            i = until
            out += self.advance(start_s + i * step_s if i < last else until_s)
            after = (self.state, watch.streaks.rows)
            if closing >= pure_from and after == before and sample.usable == (watch.seen_s is not None):
                i = max(i, self._skip(sample, until_s))
            before = after
        return out + self.advance(until_s) if until_s > watch.time_s else out

    def _skip(self, sample: Sample, until_s: float) -> int:
        """Leave out windows like the last one, which changed nothing; returns the first sample that still counts.

        Only the end of a hold can change anything before the samples do.
        """
        watch, start_s, step_s = self._watch, sample.time_s, self.config.sample_s
        index = watch.index_of(until_s)
        if self._hold_until_s is not None and self._hold_until_s > watch.start_s:
            index = min(index, watch.index_of(self._hold_until_s) - 1)
        if index <= watch.index:
            return 0
        watch.index = index
        i = _steps_to(watch.start_s, start_s, step_s)
        watch.time_s = start_s + (i - 1) * step_s
        watch.seen_s = watch.time_s if sample.usable else None
        return i

    def disable(self, time_s: float, reason: str = "by the operator") -> list[Transition]:
        """The operator takes the GPU out of the pool."""
        out = self.advance(time_s)
        self._move(State.DISABLED, time_s, "operator", f"disabled: {reason}", out)
        return out

    def enable(self, time_s: float) -> list[Transition]:
        """The operator puts a disabled GPU back: it starts anew, with nothing held against it."""
        out = self.advance(time_s)
        if self.state is State.DISABLED:
            self._entries, self._hold_until_s = [], None
            self._mps_failures, self._mps_down = 0, False
            self._watch = Watch(self.config, time_s)
            self._move(State.INIT, time_s, "operator", "enabled by the operator", out)
        return out

    def mps_restart(self, time_s: float, outcome: Literal["begun", "done", "failed"]) -> list[Transition]:
        """The MPS server of this GPU is being restarted, or was, or could not be. A hold goes on."""
        out = self.advance(time_s)
        self._mps_down = outcome != "done"
        if outcome == "done":
            self._mps_failures = 0
        elif outcome == "failed":
            self._mps_failures += 1
        if self.state is State.DISABLED:
            return out
        self._watch = Watch(self.config, time_s)
        if self._mps_failures >= self.config.mps_failures_disable:
            reason = f"the MPS server could not be restarted {self._mps_failures} times in a row"
            self._move(State.DISABLED, time_s, "mps-restart-failed", reason, out)
        else:
            self._move(State.INIT, time_s, "mps-restart", f"restart of the MPS server {outcome}", out)
        return out

    def agent_restarted(self, time_s: float) -> list[Transition]:
        """The agent is back with a saved guard: holds, Overlimits and Disabled stay, what was seen is forgotten.

        The clock may have gone back since; no hold is then longer than the longest. Whether MPS runs is told anew.
        """
        out: list[Transition] = []
        self._entries = [min(entry_s, time_s) for entry_s in self._entries]
        if self._hold_until_s is not None:
            self._hold_until_s = min(self._hold_until_s, time_s + self.config.hold_max_s)
        self._mps_down = False
        self._watch = Watch(self.config, time_s)
        if self.state in (State.HEALTHY, State.UNHEALTHY):
            self._move(State.INIT, time_s, "agent-restart", "the agent was restarted", out)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Everything but the configuration, fit for JSON."""
        return {
            "state": str(self.state),
            "hold_until_s": self._hold_until_s,
            "entries": list(self._entries),
            "mps_failures": self._mps_failures,
            "mps_down": self._mps_down,
            "watch": self._watch.to_dict(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], config: GuardConfig = DEFAULT) -> GpuGuard:
        """A guard that goes on where the saved one was."""
        try:
            guard = cls(config)
            guard.state = State(saved["state"])
            hold_until_s = saved["hold_until_s"]
            guard._hold_until_s = None if hold_until_s is None else float(hold_until_s)
            guard._entries = [float(entry_s) for entry_s in saved["entries"]]
            guard._mps_failures, guard._mps_down = int(saved["mps_failures"]), bool(saved["mps_down"])
            guard._watch = Watch.from_dict(saved["watch"], config)
            if guard._watch.seen_s is None and guard.state in (State.HEALTHY, State.UNHEALTHY):
                guard.state = State.INIT  # the windows are other ones now, so it has to be observed anew
        except (KeyError, TypeError, ValueError) as wrong:
            raise InputError(f"a saved guard cannot be read: {type(wrong).__name__} {wrong}") from None
        return guard

    def _lose(self, time_s: float, out: list[Transition]) -> None:
        self._watch.lose()
        if self.state in (State.HEALTHY, State.UNHEALTHY):
            self._move(State.INIT, time_s, "no-samples", f"no valid sample for {self.config.gap_s:g} s", out)

    def _close(self, end_s: float, out: list[Transition]) -> None:
        window, streaks, c = self._watch.close(), self._watch.streaks, self.config
        # While MPS is down there is nothing to protect, and the service's troubles are not its neighbour's doing.
        streaks.take(0 if self._mps_down else window.judge(self._limits))
        if self.state is State.DISABLED:
            return
        if self.state is not State.OVERLIMIT and streaks.overlimit:
            self._enter_overlimit(end_s, window, out)
        elif self.state is State.HEALTHY:
            if streaks.worse:
                causes = window.broken(self._limits.healthy) or [("slo-broken", "the service's SLO signal")]
                self._move(State.UNHEALTHY, end_s, causes[0][0], _words(causes, c.worse_windows), out)
        elif self.state is State.UNHEALTHY:
            if streaks.better:
                self._recover(State.HEALTHY, end_s, out)
        elif self._hold_until_s is not None and end_s < self._hold_until_s:
            return
        elif self.state is State.OVERLIMIT:
            if streaks.calm:
                self._recover(State.HEALTHY if streaks.better else State.UNHEALTHY, end_s, out)
        elif streaks.observed:
            self._hold_until_s = None
            after, what = (State.HEALTHY, "healthy") if streaks.all_good else (State.UNHEALTHY, "not always healthy")
            self._move(after, end_s, "observed", f"observed for {c.init_s:g} s, {what}", out)

    def _recover(self, after: State, end_s: float, out: list[Transition]) -> None:
        self._hold_until_s = None
        limits = "all limits" if after is State.HEALTHY else "the limits of Overlimit"
        self._move(after, end_s, "recovered", f"within {limits} for {self.config.better_windows} windows", out)

    def _enter_overlimit(self, end_s: float, window: Window, out: list[Transition]) -> None:
        c, streaks = self.config, self._watch.streaks
        causes = window.broken(self._limits.over)
        if streaks.slo_broken:
            causes.insert(0, ("slo-broken", "the service's SLO signal"))
        elif not streaks.util_over:
            causes.sort(key=lambda cause: cause[0] == "util-high")  # not what counted, so not named first
        windows = c.slo_windows if streaks.slo_broken else c.util_over_windows if streaks.util_over else c.worse_windows
        self._entries = [entry_s for entry_s in self._entries if entry_s > end_s - c.overlimit_memory_s]
        earlier = len(self._entries)
        self._entries.append(end_s)
        words = _words(causes, windows)
        if earlier + 1 >= c.overlimits_disable:
            reason = f"over the limits {earlier + 1} times in {c.overlimit_memory_s:g} s, at last {words}"
            self._move(State.DISABLED, end_s, "too-often-overlimit", reason, out)
            return
        hold_s = min(c.hold_s * 2.0 ** min(earlier, 60), c.hold_max_s)
        self._hold_until_s = max(self._hold_until_s or end_s, end_s + hold_s)
        self._move(State.OVERLIMIT, end_s, causes[0][0], f"{words}; none for {hold_s:g} s", out)

    def _move(self, after: State, time_s: float, cause: str, reason: str, out: list[Transition]) -> None:
        if after is not self.state:
            out.append(Transition(time_s, self.state, after, cause, reason))
            self.state = after
            if after is State.DISABLED:
                self._hold_until_s = None


def _words(causes: list[tuple[str, str]], windows: int) -> str:
    return ", ".join(words for _, words in causes) + f", after {windows} windows"


def _steps_to(time_s: float, start_s: float, step_s: float) -> int:
    """The first i with `start_s + i * step_s` at or after that time."""
    i = max(0, math.ceil((time_s - start_s) / step_s))
    while i > 0 and start_s + (i - 1) * step_s >= time_s:
        i -= 1
    while start_s + i * step_s < time_s:
        i += 1
    return i

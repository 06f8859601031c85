"""Taking an offline job off a GPU without hurting its neighbour.

Killing a busy MPS client leaves the server undefined: SIGINT to one killed the service beside it at once on an H200,
and the server then refused clients for minutes, while `terminate_client` and then SIGKILL did no harm in five tries.
So: freeze, SIGTERM, wait, `terminate_client`, and SIGKILL last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fairlead.errors import InputError
from fairlead.policy.guarding.config import EvictionConfig

DEFAULT = EvictionConfig()


class Action(StrEnum):
    """What is done to the job, in this order."""

    FREEZE = "freeze"
    """Let it launch nothing more."""
    SIGTERM = "sigterm"
    """Ask it to end: it drains, releases its CUDA context, writes its checkpoint."""
    TERMINATE_CLIENT = "terminate-client"
    """Have the MPS control take its context away; documented as safe for the other clients."""
    SIGKILL = "sigkill"
    """Nothing of it is on the GPU any more, or nothing else has helped."""
    CALL_OPERATOR = "call-operator"
    """It survived SIGKILL: it hangs in the driver."""


ORDER = tuple(Action)


@dataclass(frozen=True, slots=True)
class Step:
    """What an eviction asks for at this moment."""

    action: Action | None
    """Carry this out; None: wait."""
    until_s: float | None
    """Ask again then, or as soon as something is known; None: there is nothing to wait for."""
    done: bool = False
    """The job has gone."""


class Eviction:
    """One job's way out. Ask `next` again and again; each answer has at most one action.

    Every grace runs from the moment that the action was given out, so that a job gets all of it even from an agent that
    was late. An eviction that was forgotten may begin anew: its steps do no harm when repeated.
    """

    __slots__ = ("_asked", "_at_s", "_done", "_taken", "config")

    def __init__(self, config: EvictionConfig = DEFAULT) -> None:
        self.config = config
        self._taken: Action | None = None
        self._at_s = 0.0
        self._asked = 0
        """How often `terminate_client` was asked for."""
        self._done = False

    @property
    def last(self) -> Action | None:
        """The last action that was given out."""
        return self._taken

    def next(self, now_s: float, *, exited: bool, client_gone: bool | None = None) -> Step:
        """The next step, given whether all processes have exited and what MPS says of the client, if it was asked.

        `client_gone`: `terminate_client` was answered with success, or there is no such client (True), or it failed
        (False). Once it has gone SIGKILL is safe, and comes without more waiting.
        """
        if self._done or exited:
            self._done = True
            return Step(None, None, done=True)
        due_s = self._due_s(client_gone)
        if now_s < due_s:
            return Step(None, due_s)
        action = self._following(client_gone)
        if action is None:
            return Step(None, None)
        self._taken, self._at_s = action, now_s
        self._asked += action is Action.TERMINATE_CLIENT
        return Step(action, self._due_s(None) if action is not Action.CALL_OPERATOR else None)

    def _due_s(self, client_gone: bool | None) -> float:
        """When the step after the present one may be taken."""
        c = self.config
        match self._taken:
            case None | Action.CALL_OPERATOR:
                return float("-inf")
            case Action.FREEZE:
                return self._at_s + c.freeze_s
            case Action.SIGTERM:
                return self._at_s + c.term_grace_s
            case Action.TERMINATE_CLIENT:
                return self._at_s if client_gone else self._at_s + c.client_grace_s
            case Action.SIGKILL:
                return self._at_s + c.kill_grace_s

    def _following(self, client_gone: bool | None) -> Action | None:
        if self._taken is None:
            return ORDER[0]
        if self._taken is Action.TERMINATE_CLIENT and not client_gone and self._asked < self.config.client_tries:
            return Action.TERMINATE_CLIENT
        later = ORDER[ORDER.index(self._taken) + 1 :]
        return later[0] if later else None

    def to_dict(self) -> dict[str, Any]:
        """Everything but the configuration, fit for JSON."""
        taken = None if self._taken is None else str(self._taken)
        return {"taken": taken, "at_s": self._at_s, "asked": self._asked, "done": self._done}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], config: EvictionConfig = DEFAULT) -> Eviction:
        """An eviction that goes on where the saved one was."""
        eviction = cls(config)
        try:
            eviction._taken = None if saved["taken"] is None else Action(saved["taken"])
            eviction._at_s, eviction._asked = float(saved["at_s"]), int(saved["asked"])
            eviction._done = bool(saved["done"])
        except (KeyError, TypeError, ValueError) as wrong:
            raise InputError(f"a saved eviction cannot be read: {type(wrong).__name__} {wrong}") from None
        return eviction


class Backoff:
    """How long jobs stay away from shared GPUs after being evicted: longer each time, up to a limit."""

    __slots__ = ("_evictions", "config")

    def __init__(self, config: EvictionConfig = DEFAULT) -> None:
        self.config = config
        self._evictions: dict[int | str, list[float]] = {}

    def evicted(self, job: int | str, time_s: float) -> float:
        """A job was evicted; returns when it may be placed again."""
        kept = [at_s for at_s in self._evictions.get(job, ()) if at_s > time_s - self.config.backoff_memory_s]
        self._evictions[job] = [*kept, time_s]
        return self.ready_s(job)

    def ready_s(self, job: int | str) -> float:
        """When it may be placed (again); minus infinity for a job that was never evicted."""
        times = self._evictions.get(job)
        if not times:
            return float("-inf")
        return times[-1] + min(self.config.backoff_s * 2.0 ** min(len(times) - 1, 60), self.config.backoff_max_s)

    def forget(self, job: int | str) -> None:
        """It has left the system."""
        self._evictions.pop(job, None)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the configuration, fit for JSON."""
        return {"evictions": [[job, list(times)] for job, times in self._evictions.items()]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], config: EvictionConfig = DEFAULT) -> Backoff:
        """The same jobs stay away for as long."""
        backoff = cls(config)
        try:
            backoff._evictions = {job: [float(at_s) for at_s in times] for job, times in saved["evictions"]}
        except (KeyError, TypeError, ValueError) as wrong:
            raise InputError(f"a saved back-off cannot be read: {type(wrong).__name__} {wrong}") from None
        return backoff

    def keep(self, jobs: Callable[[int | str], bool]) -> None:
        """Forget the evictions of all other jobs."""
        self._evictions = {job: times for job, times in self._evictions.items() if jobs(job)}

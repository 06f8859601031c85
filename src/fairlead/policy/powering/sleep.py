"""Idle nodes go to sleep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlead.policy.plan import Plan
from fairlead.policy.powering.idle import IdleNodes
from fairlead.policy.stages import Powering, option
from fairlead.policy.view import View


@dataclass
class Sleep(Powering):
    """A node that has been idle for `after_s` seconds goes to sleep, and wakes when the queue needs it.

    The last `reserve` idle nodes stay awake for the next job. When the waiting jobs want more GPUs than are free or
    waking, the first sleeping nodes are woken, as many as that takes; each can be used after its own wake-up time.
    Drained GPUs count for nothing.

    When not to use it: where jobs arrive so often that a node would hardly sleep before it is woken.
    """

    after_s: float = option(300.0, "seconds without a job after which a node goes to sleep")
    reserve: int = option(0, "idle nodes that stay awake")
    active: ClassVar[bool] = True
    _idle: IdleNodes = field(default_factory=IdleNodes, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.after_s < 0 or self.reserve < 0:
            raise ValueError(f"after_s={self.after_s:g}, reserve={self.reserve}: 0 or more")

    def decide(self, wanted_gpus: int, nodes: int | None, view: View, plan: Plan) -> None:
        """Wake what the queue needs, else send to sleep what has been idle long enough."""
        self._idle.notice(view)
        short = wanted_gpus - view.free.count - view.usable_gpus(view.waking)
        if short > 0:
            for node in sorted(view.asleep - view.drained_nodes()):
                plan.wake.append(node)
                short -= view.usable_gpus((node,))
                if short <= 0:
                    break
            return
        since, spare = self._idle.since_s, -short
        for node, since_s in list(since.items()):
            if len(since) - len(plan.sleep) <= self.reserve:
                break
            spare -= view.free.counts[node]
            if spare < 0:
                break  # somebody waits for these and for others that are waking: sleep would start it all over again
            due_s = since_s + self.after_s
            if due_s > view.now_s:
                plan.wake_s = due_s if plan.wake_s is None else min(plan.wake_s, due_s)
                break
            plan.sleep.append(node)

    def knowledge(self) -> dict[str, Any]:
        """Since when nodes are idle."""
        return self._idle.knowledge()

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on counting since when nodes are idle."""
        self._idle.recall(saved, view)

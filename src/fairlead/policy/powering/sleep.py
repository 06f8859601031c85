"""Idle nodes go to sleep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from fairlead.policy.plan import Plan
from fairlead.policy.queue import Queue
from fairlead.policy.stages import Powering, option
from fairlead.policy.view import View


@dataclass
class Sleep(Powering):
    """A node that has been idle for `after_s` seconds goes to sleep, and wakes when the queue needs it.

    The last `reserve` idle nodes stay awake for the next job. When the waiting jobs want more GPUs than are free or
    waking, the first sleeping nodes are woken, as many as that takes; each can be used after its own wake-up time.

    When not to use it: where jobs arrive so often that a node would hardly sleep before it is woken.
    """

    after_s: float = option(300.0, "seconds without a job after which a node goes to sleep")
    reserve: int = option(0, "idle nodes that stay awake")
    active: ClassVar[bool] = True
    _idle: int = field(default=0, init=False, repr=False)
    """Bit mask of the nodes that were idle at the last decision."""
    _since_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    """Idle nodes, longest idle first: a dict keeps the order in which they became so."""
    _of_size: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.after_s < 0 or self.reserve < 0:
            raise ValueError(f"after_s={self.after_s:g}, reserve={self.reserve}: 0 or more")

    def decide(self, queue: Queue, view: View, plan: Plan) -> None:
        """Wake what the queue needs, else send to sleep what has been idle long enough."""
        self._notice(view)
        waking = sum(view.cluster.nodes[n].gpus for n in view.waking)
        short = queue.demand_gpus - view.free.count - waking
        if short > 0:
            for node in sorted(view.asleep):
                plan.wake.append(node)
                short -= view.cluster.nodes[node].gpus
                if short <= 0:
                    break
            return
        for node, since_s in list(self._since_s.items()):
            if len(self._since_s) - len(plan.sleep) <= self.reserve:
                break
            due_s = since_s + self.after_s
            if due_s > view.now_s:
                plan.wake_s = due_s if plan.wake_s is None else min(plan.wake_s, due_s)
                break
            plan.sleep.append(node)

    def _notice(self, view: View) -> None:
        if not self._of_size:
            for number, spec in enumerate(view.cluster.nodes):
                self._of_size[spec.gpus] = self._of_size.get(spec.gpus, 0) | 1 << number
        idle = 0
        for gpus, nodes in self._of_size.items():
            idle |= view.free.by_count[gpus] & nodes
        changed, self._idle = idle ^ self._idle, idle
        while changed:
            low = changed & -changed
            changed ^= low
            node = low.bit_length() - 1
            if idle & low:
                self._since_s[node] = view.now_s
            else:
                self._since_s.pop(node, None)

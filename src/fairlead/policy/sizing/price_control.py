"""Keeps what is really paid at the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlead.policy.view import JobState, View

_PER_HORIZON = 24.0
"""A price is this many times as high when the budget of a whole horizon is owed."""
_MOST = 100.0
"""It is never changed by more than this factor."""
_LEAST_PRICE = 1e-3
"""What a GPU is worth at least where too much was spent, though by the table the budget buys the fastest widths."""
_LOOKS = 12
"""How many of the last looks say how many jobs share a GPU."""
_TRUST_GPUS = 64.0
"""What is taken for the cost of a start at first counts as much as so many GPUs started on."""


@dataclass
class BudgetController:
    """Corrects the price of GPUs so that the average of what is paid comes out at the budget.

    Two corrections. What is paid and held by no job (nodes that boot, stand idle or are part-filled) is measured per
    GPU that a job has started on or grown by, so that the table can count it as a cost of going wide. And what was
    spent too much or too little so far makes GPUs dearer or cheaper than the table has them, so that whatever it gets
    wrong, rates, sizes or curves, cannot make the average drift. The price is moved, not the budget that the table is
    made for: near the smallest feasible budget the one changes wildly with the other, and what is lost by a price that
    is a little off is of second order.
    """

    budget: float
    horizon_s: float
    _ended_gpu_s: float = field(default=0.0, init=False)
    _ended_taken: float = field(default=0.0, init=False)
    owed_gpu_s: float = field(default=0.0, init=False)
    """What was paid beyond the budget so far."""
    start_s: float = field(default=0.0, init=False)
    """Seconds paid without use per GPU started on or grown by."""
    jobs_per_gpu: float = field(default=1.0, init=False)
    """On GPUs in use, on average: what is shared buys that much more width."""
    _looks: int = field(default=0, init=False)
    away: set[int] = field(default_factory=set, init=False)
    """Jobs that are withdrawn: what they had is settled, until they are back."""

    def ended(self, state: JobState) -> None:
        """A job is done: what it had is settled."""
        if state.job.id in self.away:
            self.away.remove(state.job.id)
        else:
            self._settle(state, 1)

    def withdrawn(self, state: JobState) -> None:
        """A job is out of sight, and may come back."""
        self.away.add(state.job.id)
        self._settle(state, 1)

    def back(self, state: JobState) -> None:
        """It is in sight again, with what it had."""
        if state.job.id in self.away:
            self.away.remove(state.job.id)
            self._settle(state, -1)

    def _settle(self, state: JobState, sign: int) -> None:
        self._ended_gpu_s += sign * state.banked_gpu_s
        self._ended_taken += sign * state.taken_gpus

    def look(self, view: View) -> None:
        """Measure what starts cost, and what is owed."""
        self._count_sharers(view)
        if view.bill is None:
            return
        paid = view.bill.paid_gpu_s()
        boot_s = view.cluster.rental.boot_s if view.cluster.rental is not None else 0.0
        active = (*view.running.values(), *view.waiting.values())
        held = self._ended_gpu_s + sum(s.attained_gpu_s(view.now_s) for s in active)
        taken = self._ended_taken + sum(s.taken_gpus for s in active)
        unused = paid - held / self.jobs_per_gpu
        self.start_s = max(0.0, _TRUST_GPUS * boot_s + unused) / (_TRUST_GPUS + taken)
        self.owed_gpu_s = paid - self.budget * view.now_s

    def _count_sharers(self, view: View) -> None:
        """Nothing but exactly 1 comes of GPUs that nobody shares."""
        in_use = sum(map(bool, view.on_gpu))
        if in_use:
            self._looks += 1
            now = sum(map(len, view.on_gpu)) / in_use
            self.jobs_per_gpu += (now - self.jobs_per_gpu) / min(self._looks, _LOOKS)

    def to_dict(self) -> dict[str, Any]:
        """What was measured, fit for JSON."""
        settled = {"ended_gpu_s": self._ended_gpu_s, "ended_taken": self._ended_taken}
        return {
            **settled,
            "owed_gpu_s": self.owed_gpu_s,
            "start_s": self.start_s,
            "jobs_per_gpu": self.jobs_per_gpu,
            "looks": self._looks,
            "away": sorted(self.away),
        }

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on from there; jobs that are away are not in the view and yet may come back."""
        self._ended_gpu_s, self._ended_taken = float(saved["ended_gpu_s"]), float(saved["ended_taken"])
        self.owed_gpu_s, self.start_s = float(saved["owed_gpu_s"]), float(saved["start_s"])
        self.jobs_per_gpu, self._looks = float(saved.get("jobs_per_gpu", 1.0)), int(saved.get("looks", 0))
        self.away = {int(job_id) for job_id in saved["away"]}

    def price(self, table: float) -> float:
        """The price to go by where the table has that one."""
        dearer = math.log(_PER_HORIZON) * self.owed_gpu_s / (self.budget * self.horizon_s)
        least = _LEAST_PRICE if self.owed_gpu_s > 0.0 else 0.0
        return max(table, least) * math.exp(min(max(dearer, -math.log(_MOST)), math.log(_MOST)))

"""Keeps what is really paid at the budget."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.policy.view import JobState, View

_LEAST, _MOST = 0.25, 3.0
"""The aim stays within these multiples of the budget."""
_TRUST_GPUS = 64.0
"""What is taken for the cost of a start at first counts as much as so many GPUs started on."""


@dataclass
class BudgetController:
    """Aims the table of widths so that the average of what is paid comes out at the budget.

    Two corrections. What is paid and held by no job (nodes that boot, stand idle or are part-filled) is measured per
    GPU that a job has started on or grown by, so that the table can count it as a cost of going wide. And what was
    spent too much or too little so far is made up for over `horizon_s` seconds, so that whatever the table gets wrong,
    rates, sizes or curves, cannot make the average drift.
    """

    budget: float
    horizon_s: float
    _ended_gpu_s: float = field(default=0.0, init=False)
    _ended_taken: float = field(default=0.0, init=False)
    start_s: float = field(default=0.0, init=False)
    """Seconds paid without use per GPU started on or grown by."""

    def ended(self, state: JobState) -> None:
        """A job is done: what it had is settled."""
        self._ended_gpu_s += state.banked_gpu_s
        self._ended_taken += state.taken_gpus

    def aim(self, view: View) -> float:
        """The number of GPUs, on average, that the table should use from now on."""
        if view.bill is None:
            return self.budget
        paid = view.bill.paid_gpu_s()
        boot_s = view.cluster.rental.boot_s if view.cluster.rental is not None else 0.0
        active = (*view.running.values(), *view.waiting.values())
        held = self._ended_gpu_s + sum(s.attained_gpu_s(view.now_s) for s in active)
        taken = self._ended_taken + sum(s.taken_gpus for s in active)
        self.start_s = max(0.0, _TRUST_GPUS * boot_s + paid - held) / (_TRUST_GPUS + taken)
        owed = paid - self.budget * view.now_s
        return min(max(self.budget - owed / self.horizon_s, _LEAST * self.budget), _MOST * self.budget)

"""BOA's widths, chosen when a job comes and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlead.policy.saved_state import reading
from fairlead.policy.sizing.boa import Boa
from fairlead.policy.stages import option
from fairlead.policy.view import JobState, View

_USED_FRAC = 0.8
"""The part of GPUs of one's own that widths are made for: jobs come at random, and who finds none free waits."""


@dataclass
class BoaKept(Boa):
    """The width that a budget buys for a job of its kind, chosen when the job comes and kept until it ends.

    This is the theorem's own form: under a budget every job of a type has the same width from start to end. It costs no
    restarts, and it goes with every ordering, placing and sharing. Rates, curves, the price and its controller are
    those of `boa`; so are the options. Shared GPUs count by how many jobs are on them, so what sharing saves is spent
    on wider jobs.

    On GPUs of your own the budget is what there is (`budget=0`), and the price follows the queue: GPUs are 24 times as
    dear when those that wait have work for `horizon_s` seconds of the whole cluster.

    When not to use it: where restarts are cheap and jobs scale differently from epoch to epoch; use `boa`.
    """

    budget: float = option(0.0, "GPUs to pay for on average; 0 is as many as the cluster has")
    elastic: ClassVar[bool] = False
    narrows: ClassVar[bool] = True
    _chosen: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def observe(self, view: View) -> bool:
        """Count arrivals, ends and what was paid; compute the table anew where that is due."""
        if not self.budget:
            self._controller.budget = _USED_FRAC * max(1, view.up_gpus if view.bill is None else view.cluster.gpus)
        _, anew = self._catch_up(view)
        for state in (*view.changes.ended, *view.changes.withdrawn):
            if not view.here(state.job.id):
                self._chosen.pop(state.job.id, None)
        return anew

    def width(self, state: JobState, view: View) -> int:
        """What the table said of a job of this kind when it was first asked."""
        job = state.job
        if job.kind == "service" or job.min_gpus == job.max_gpus:
            return job.gpus
        if job.id not in self._chosen:
            self._chosen[job.id] = max(1, job.min_gpus) if self._is_unheard(state) else self._width(state, view)
        return self._chosen[job.id]

    def knowledge(self) -> dict[str, Any]:
        """What `boa` saves, and the widths that jobs were given."""
        return {**super().knowledge(), "chosen": [[j, width] for j, width in sorted(self._chosen.items())]}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Of the jobs that are still here."""
        super().recall({k: v for k, v in saved.items() if k != "chosen"} if isinstance(saved, Mapping) else saved, view)
        with reading("boa-kept", saved, *saved):
            self._chosen = {int(job_id): int(width) for job_id, width in saved["chosen"] if view.here(int(job_id))}

    def narrower(self, state: JobState, gpus: int, view: View) -> int:
        """What can be had, unless more is on its way: a job would keep the narrow width then."""
        if view.cluster.rental is not None and not view.asleep | view.waking <= view.drained_nodes():
            return 0
        return max((k for k in self._widths if state.job.min_gpus <= k <= gpus), default=0)

    def _look(self, view: View) -> None:
        """What is owed; on GPUs of one's own that is the work that waits, at the widths that it was given."""
        super()._look(view)
        if view.bill is None:
            waiting = [s for s in view.waiting.values() if s.job.kind != "service" and not self._is_unheard(s)]
            self._controller.owed_gpu_s = sum(self._gpu_s(s, view) for s in waiting) / self._controller.jobs_per_gpu

    def _gpu_s(self, state: JobState, view: View) -> float:
        """What a waiting job of this kind is expected to hold."""
        kind, width = self._curves.kind(state.job), self._width(state, view)
        return width * self._arrivals.mean_size_s(self._curves.key(state.job)) / max(1.0, kind.profile.speedup(width))

"""Gandiva's packing: random pairs under pressure, dissolved when they don't pay."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairlead.model.placement import Placement
from fairlead.policy.pool import Pool
from fairlead.policy.saved_state import draws, reading, resume_draws
from fairlead.policy.sharing.pairs import can_wake, single_jobs
from fairlead.policy.stages import Sharing, option
from fairlead.policy.view import JobState, View


@dataclass
class Gandiva(Sharing):
    """When demand exceeds the cluster, a waiting job joins a random single job of equal width (OSDI'18).

    After `look_s` seconds the pair's normalised throughputs are added up; if they come to less than `worth`, the pair
    is dissolved: the job that came goes back into the queue and does not meet that partner again.

    When not to use it: to save energy; it shares only when nothing is free, and whom it meets is chance.
    """

    worth: float = option(1.0, "a pair whose throughputs add up to less is dissolved")
    look_s: float = option(60.0, "seconds after which a pair is looked at")
    memory: float = option(0.9, "the part of a GPU's memory that the peaks of both jobs may fill")
    seed: int = option(0, "seed of the draws; the seed of the run unless given")
    shares: ClassVar[bool] = True
    _pairs: dict[int, tuple[float, int]] = field(default_factory=dict, init=False, repr=False)
    """By the job that came: when to look, and its partner."""
    _met: dict[int, set[int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def offers(self, state: JobState, width: int, pool: Pool, view: View) -> Iterable[Pool | Placement]:
        """Empty GPUs, else a random partner's."""
        if pool.count >= width:
            yield pool
            return
        if not self.shared(state) or can_wake(width, pool.count, view):
            return
        met = self._met.get(state.job.id, set())
        partners = [p for p in single_jobs(state, width, self.memory, view) if p.job.id not in met]
        if partners:
            yield self._rng.choice(partners).gpus

    def placed(self, state: JobState, gpus: Placement, view: View) -> None:
        """A pair is looked at after a while."""
        if view.on_gpu[gpus[0]]:
            self._pairs[state.job.id] = (view.now_s + self.look_s, view.on_gpu[gpus[0]][0])

    def review(self, view: View) -> tuple[list[JobState], bool]:
        """Dissolve what does not pay."""
        assert view.epochs is not None
        leaving = []
        for job_id, (look_s, partner_id) in list(self._pairs.items()):
            job, partner = view.running.get(job_id), view.running.get(partner_id)
            if job is None or partner is None or job.gpus != partner.gpus:
                del self._pairs[job_id]
                continue
            if look_s > view.now_s:
                continue
            del self._pairs[job_id]
            if view.epochs.kept_speed(job) + view.epochs.kept_speed(partner) < self.worth:
                self._met.setdefault(job_id, set()).add(partner_id)
                leaving.append(job)
        for state in view.changes.ended:
            self._met.pop(state.job.id, None)
        return leaving, False

    def wake_s(self, view: View) -> float | None:
        """When the next pair is to be looked at."""
        return min((look_s for look_s, _ in self._pairs.values()), default=None)

    def knowledge(self) -> dict[str, Any]:
        """Pairs to be looked at, who is not to meet again, and where the draws stand."""
        pairs = [[job_id, look_s, partner] for job_id, (look_s, partner) in self._pairs.items()]
        met = [[job_id, sorted(partners)] for job_id, partners in self._met.items()]
        return {"pairs": pairs, "met": met, "draws": draws(self._rng)}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Of the jobs that are still here."""
        with reading("gandiva", saved, "pairs", "met", "draws"):
            pairs = [(int(j), float(look_s), int(partner)) for j, look_s, partner in saved["pairs"]]
            met = {int(j): {int(p) for p in partners} for j, partners in saved["met"]}
            resume_draws(self._rng, saved["draws"])
        here = view.here
        self._pairs = {j: (look_s, partner) for j, look_s, partner in pairs if here(j) and here(partner)}
        self._met = {j: {p for p in partners if here(p)} for j, partners in met.items() if here(j)}

"""GPU-seconds that each owner has held: who shares a GPU holds a part of it, and the parts add up to the GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.policy.job_state import JobState

Owner = tuple[str, str]
"""Group and user."""


class Usage:
    """A meter for each owner, read at any moment."""

    __slots__ = ("_at_s", "_total_gpu_s", "held_gpus")

    def __init__(self) -> None:
        self.held_gpus: dict[Owner, float] = {}
        """What owners hold now; who holds nothing is not in it."""
        self._total_gpu_s: dict[Owner, float] = {}
        self._at_s: dict[Owner, float] = {}
        """When each changed last, in that order."""

    def change(self, owner: Owner, gpus: float, now_s: float) -> None:
        """From now on an owner holds so many GPUs more, or fewer."""
        held = self.held_gpus.get(owner, 0.0)
        if held:
            self._total_gpu_s[owner] += held * (now_s - self._at_s[owner])
        else:
            self._total_gpu_s.setdefault(owner, 0.0)
        self._at_s.pop(owner, None)  # whoever changed last comes last
        self._at_s[owner] = now_s
        held += gpus
        if held > _NOTHING:
            self.held_gpus[owner] = held
        else:
            self.held_gpus.pop(owner, None)

    def totals(self, now_s: float, since_s: float) -> Iterator[tuple[Owner, float, float]]:
        """(owner, GPUs held now, GPU-seconds held in all) of everybody for whom anything has changed since then."""
        held_by, at_s, total_gpu_s = self.held_gpus, self._at_s, self._total_gpu_s
        for owner, held in held_by.items():
            yield owner, held, total_gpu_s[owner] + held * (now_s - at_s[owner])
        for owner in reversed(at_s):
            if at_s[owner] < since_s:
                return
            if owner not in held_by:
                yield owner, 0.0, total_gpu_s[owner]

    def owners(self) -> Iterable[Owner]:
        """Everybody who has held anything, in order of their first time."""
        return self._total_gpu_s

    def total_gpu_s(self, owner: Owner, now_s: float) -> float:
        """What an owner has held since the beginning."""
        held = self.held_gpus.get(owner)
        total = self._total_gpu_s.get(owner, 0.0)
        return total + held * (now_s - self._at_s[owner]) if held is not None else total

    def regroup(self, before: list[JobState], after: list[JobState], now_s: float) -> None:
        """Other jobs are on a GPU than before."""
        for state, part in parts_held(before):
            self.change((state.job.group, state.job.user), -part, now_s)
        for state, part in parts_held(after):
            self.change((state.job.group, state.job.user), part, now_s)


_NOTHING = 1e-9
"""Parts of GPUs that were added and taken away again leave no more than this."""


def parts_held(on_gpu: list[JobState]) -> list[tuple[JobState, float]]:
    """The part of one GPU that each of its jobs holds: what it was given of the SMs, and equal parts of the rest."""
    given = [s for s in on_gpu if s.sm_share < 1.0]
    others = [s for s in on_gpu if s.sm_share >= 1.0]
    if not others or not given:
        return [(s, 1.0 / len(on_gpu)) for s in on_gpu]
    left = max(0.0, 1.0 - sum(s.sm_share for s in given))
    scale = 1.0 if left else 1.0 / sum(s.sm_share for s in given)
    return [*((s, s.sm_share * scale) for s in given), *((s, left / len(others)) for s in others)]

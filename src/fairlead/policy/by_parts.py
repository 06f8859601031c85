"""Who starts, and who makes room, while there are jobs that ask for a part of a GPU, or of hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead.model.placement import Placement
from fairlead.policy.admission import AtOnce, behind, displace, keeps, reservation
from fairlead.policy.parts import ask_of
from fairlead.policy.plan import NO_FREE_GPU, Plan
from fairlead.policy.queue import Entry
from fairlead.policy.view import JobState, View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack
    from fairlead.policy.stages import Skips

_LOOKED_AT = 1000
"""So many who find no place are looked at in one decision."""
_Request = tuple[object, ...]


def refusal(stack: Stack) -> str | None:
    """Why a stack cannot place such jobs, in a sentence; None where it can."""
    if stack.sizing.elastic:
        return "its sizing moves whole GPUs between jobs, and can't where jobs ask for parts of GPUs or hosts"
    if not stack.placing.sticky:
        return "sticky=false places every job anew, and can't where jobs ask for parts of GPUs or hosts"
    return None


@dataclass(frozen=True)
class ByParts:
    """A regime of admission. Who fits does not follow from a number of GPUs, so all are walked in order.

    A strict order stops at the first who finds no place, in rounds too. EASY reserves GPUs for that one, not parts of
    them. Who joins others by sharing's own rules, or displaces some, ends the decision, as the next one must see it.
    """

    skips: Skips
    displaces: bool

    def admit(self, stack: Stack, view: View, plan: Plan) -> None:
        """Those whom sharing chooses itself come first, where it does."""
        if stack.sharing.at_once:
            AtOnce(self.displaces).admit(stack, view, plan)
        ranking, refused = stack.ranking, set[_Request]()
        reserved: tuple[float, int] | None = None
        looked_at = 0
        while looked_at < _LOOKED_AT and not stack.asks_again and (entry := ranking.head()) is not None:
            looked_at += 1
            state = entry.state
            if stack.sharing.at_once and state.job.gpu_frac >= 1.0:
                ranking.set_aside(entry)  # sharing had its say
                continue
            if reserved is None or keeps(stack, entry, reserved):
                delays = reserved is not None and ranking.end_s(state) > reserved[0]
                if self._starts(stack, entry, view, plan, refused):
                    looked_at -= 1
                    if reserved is not None and delays:
                        reserved = (reserved[0], reserved[1] - entry.width)
                    continue
                if self.skips == "none" or (self.skips != "easy" and stack.ordering.blocks(state)):
                    break
                if self.skips == "easy" and reserved is None:
                    reserved = reservation(entry.width, view)
            ranking.set_aside(entry)
        ranking.restore()
        if plan.place and len(ranking) and stack.sharing.shares:
            stack.asks_again = True  # who found nothing may want to join those who have just been placed

    def _starts(self, stack: Stack, entry: Entry, view: View, plan: Plan, refused: set[_Request]) -> bool:
        """Whether it finds a place, or makes one; who asks for the same as one that did not is not tried again."""
        state = entry.state
        request = (entry.width, entry.least, state.job.profile.name, state.job.kind, *ask_of(state.job))
        if request not in refused and stack.try_start(entry, view, plan):
            return True
        refused.add(request)
        plan.waits[state.job.id] = NO_FREE_GPU
        if not self.displaces:
            return False
        if stack.sharing.shares and state.job.gpu_frac >= 1.0:
            return displace(stack, entry, view, plan)
        return _make_room(stack, entry, view, plan)


def _make_room(stack: Stack, entry: Entry, view: View, plan: Plan) -> bool:
    """Let jobs behind a waiting one leave, the last first, until it finds a place; whoever can stay after all, stays.

    Whole GPUs that are shared by sharing's own rules are left alone.
    """
    key = stack.ordering.as_running(entry.key, view.now_s)
    left: list[JobState] = []
    gpus: Placement | None = None
    for state in behind(stack, key, view):
        if not state.shared or state.job.gpu_frac < 1.0:
            _give_back(state, view)
            left.append(state)
            gpus = stack.place(entry.state, entry.width, view, view.free)
            if gpus is not None:
                break
    for state in reversed(left):
        if _fits_again(state, view):
            _take_again(state, view)
        else:
            plan.evict.append(state.job.id)
            stack.ranking.stop(state)
    if gpus is None:
        return False
    stack.start(entry, gpus, view, plan)
    stack.asks_again = True
    return True


def _give_back(state: JobState, view: View) -> None:
    assert view.parts is not None
    emptied = view.parts.give(state.job, state.gpus)
    view.free.give(view.usable(emptied))


def _take_again(state: JobState, view: View) -> None:
    assert view.parts is not None
    view.free.take(tuple(g for g in state.gpus if g in view.free))
    view.parts.take(state.job, state.gpus)


def _fits_again(state: JobState, view: View) -> bool:
    """Whether a job that has left in this decision could be where it was."""
    parts = view.parts
    assert parts is not None
    if state.job.gpu_frac >= 1.0:
        return all(g in view.free for g in view.usable(state.gpus)) and parts.hosts(state.job, state.gpus)
    gpu = state.gpus[0]
    # One that is neither free nor open has been given to somebody whole.
    is_there = gpu in view.free or gpu in parts.left or gpu in view.drained
    return is_there and parts.holds(gpu, ask_of(state.job))

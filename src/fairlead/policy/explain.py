"""Why jobs wait, in short words, for the first of those who do.

Only for a stack that `explains`: a live controller does, a simulation has nobody to tell. Told at the end of a
decision, while the pool is as the plan leaves it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairlead.policy.plan import (
    BEHIND_ANOTHER,
    EXPLAINED,
    GPUS_SCATTERED,
    LOOKED_AT,
    NO_FREE_GPU,
    NODE_BOOTING,
    NOT_SIZED_YET,
    Plan,
)
from fairlead.policy.queue import Entry
from fairlead.policy.view import View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack


def explain_queue(stack: Stack, view: View, plan: Plan) -> None:
    """Behind the head of a strict order nobody is looked at."""
    strict = stack.skips == "none" and not stack.sharing.at_once
    coming = view.usable_gpus({*view.waking, *plan.wake})
    for entry in stack.ranking.first(1 if strict else LOOKED_AT):
        job_id, free = entry.state.job.id, view.free.count
        reason, rejected = stack.sharing.why_waits(entry.state, entry.width, view)
        if reason == NO_FREE_GPU and entry.width <= free:
            reason = GPUS_SCATTERED if _is_refused(stack, entry, view) else BEHIND_ANOTHER
        elif reason == NO_FREE_GPU and coming and entry.width <= free + coming:
            reason = NODE_BOOTING
        plan.waits[job_id] = reason
        if rejected:
            plan.rejected[job_id] = rejected[:EXPLAINED]


def _is_refused(stack: Stack, entry: Entry, view: View) -> bool:
    """Whether placing has no place for a job on the GPUs that are free."""
    placing = stack.placing
    return placing.may_refuse and placing.pick(entry.state, entry.width, view.free, view) is None


def explain_widths(stack: Stack, wants: Mapping[int, int], view: View, plan: Plan) -> None:
    """Where sizing decides who runs."""
    placed = {place.job_id for place in plan.place}
    waiting = (s for s in view.waiting.values() if s.job.id not in placed)
    coming = view.usable_gpus({*view.waking, *plan.wake}) > 0
    for state in heapq.nsmallest(LOOKED_AT, waiting, key=lambda s: stack.ordering.waiting_key(s, view)):
        width = wants.get(state.job.id)
        if width:
            reason = NODE_BOOTING if coming else NO_FREE_GPU
        else:
            reason = NOT_SIZED_YET if width is None else stack.sizing.no_width
        plan.waits[state.job.id] = reason

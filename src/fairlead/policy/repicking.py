"""Who runs is decided: where they run is picked anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.policy.plan import Place, Plan
from fairlead.policy.view import View

if TYPE_CHECKING:
    from fairlead.policy.stack import Stack


def place_anew(stack: Stack, view: View, plan: Plan) -> None:
    """Not sticky: whoever runs now picks anew, in order, from all GPUs."""
    changes = view.changes
    if not (plan.place or plan.evict or changes.ended or changes.nodes or changes.rescored or stack.placing.redraws):
        return
    starting = {p.job_id: p.gpus for p in plan.place}
    ranks = sorted(stack.ranking.ranked, key=lambda r: stack.placing.turn(r.state))
    for rank in ranks:
        view.free.give(view.usable(starting.get(rank.state.job.id, rank.state.gpus)))
    plan.place = []
    for rank in ranks:
        gpus = stack.place(rank.state, rank.width, view, view.free)
        if gpus is None:
            stack.unplace(rank.state, view, plan)
        elif gpus != rank.state.gpus:
            plan.place.append(Place(rank.state.job.id, gpus, stack.sharing.shared(rank.state)))


def pick_in_turn(stack: Stack, view: View, plan: Plan) -> None:
    """Those who start together in a round pick in the order that placing asks for."""
    states = [view.waiting.get(place.job_id) or view.running[place.job_id] for place in plan.place]
    order = sorted(zip(states, plan.place, strict=True), key=lambda start: stack.placing.turn(start[0]))
    if [place for _, place in order] == plan.place:
        return
    for place in plan.place:
        view.free.give(place.gpus)
    picked = []
    for state, place in order:
        gpus = stack.place(state, len(place.gpus), view, view.free)
        if gpus is None:  # one that needs special GPUs, which another has taken: all keep what they had
            break
        picked.append(place._replace(gpus=gpus))
    if len(picked) == len(order):
        plan.place = picked
        return
    for place in picked:
        view.free.give(place.gpus)
    for place in plan.place:
        view.free.take(place.gpus)

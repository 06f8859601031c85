"""The laws that every plan must obey. One function, shared by every driver: a plan that breaks one is refused whole."""

from __future__ import annotations

from fairlead.errors import RunError
from fairlead.policy.parts import WHOLE, ask_of
from fairlead.policy.plan import Place, Plan
from fairlead.policy.view import JobState, View


class LawBrokenError(RunError):
    """A policy asked for what cannot be; always a bug in the policy."""


def check(view: View, plan: Plan) -> None:
    """Raise `LawBrokenError` unless the whole plan can be carried out from this view."""
    if plan.sleep or plan.wake:
        _check_nodes(view, plan)
    if not plan.place and not plan.evict:
        return
    leaving = set()
    for job_id in plan.evict:
        if job_id not in view.running:
            raise LawBrokenError(f"the plan evicts job {job_id}, which does not run")
        leaving.add(job_id)
    placed: set[int] = set()
    for place in plan.place:
        if place.job_id in placed or place.job_id in leaving:
            raise LawBrokenError(f"the plan decides twice about job {place.job_id}")
        placed.add(place.job_id)
    leaving |= placed
    taken: dict[int, list[Place]] = {}
    for place in plan.place:
        _check_place(view, place, taken, leaving)
    if view.asking and view.cluster.states_hosts:
        _check_hosts(view, plan, leaving)


def _check_nodes(view: View, plan: Plan) -> None:
    if len({*plan.wake, *plan.sleep}) < len(plan.wake) + len(plan.sleep):
        raise LawBrokenError(f"the plan names a node twice: it wakes {plan.wake} and sends {plan.sleep} to sleep")
    for node in plan.wake:
        if node not in view.asleep:
            raise LawBrokenError(f"the plan wakes node {node}, which does not sleep")
    used = {view.cluster.node_of[g] for place in plan.place for g in place.gpus}
    for node in plan.sleep:
        first, last = view.cluster.first_gpu[node], view.cluster.first_gpu[node + 1]
        if node in view.asleep or node in view.waking or node in view.down:
            raise LawBrokenError(f"the plan sends node {node} to sleep, which is not on")
        staying = {j for g in range(first, last) for j in view.on_gpu[g]} - set(plan.evict)
        staying -= {place.job_id for place in plan.place}  # they are on `used` nodes from now on
        if staying or node in used:
            raise LawBrokenError(f"the plan sends node {node} to sleep, which has jobs")


def _check_place(view: View, place: Place, taken: dict[int, list[Place]], leaving: set[int]) -> None:
    state = view.waiting.get(place.job_id) or view.running.get(place.job_id)
    if state is None:
        raise LawBrokenError(f"the plan places job {place.job_id}, which is not in the system")
    gpus, job = place.gpus, state.job
    if not job.min_gpus <= len(gpus) <= job.max_gpus:
        raise LawBrokenError(f"{state} gets {len(gpus)} GPUs, it runs on {job.min_gpus} to {job.max_gpus}")
    previous = -1
    for g in gpus:
        if g <= previous or g >= view.cluster.gpus:
            raise LawBrokenError(f"{state} gets {gpus}: GPUs in ascending order, each once, of those that exist")
        previous = g
        node = view.cluster.node_of[g]
        if node in view.down or node in view.asleep or node in view.waking:
            raise LawBrokenError(
                f"{state} gets GPU {g} of a node that is {'down' if node in view.down else 'not awake'}"
            )
        if g in view.drained and g not in state.gpus:
            raise LawBrokenError(f"{state} gets GPU {g}, which is drained")
        others = taken.get(g)
        if others is None:
            others = taken[g] = []
        staying = [j for j in view.on_gpu[g] if j not in leaving]
        if others or staying:
            _check_neighbours(view, state, place, g, [view.running[j] for j in staying], others)
        if job.memory_mib or job.gpu_frac < 1.0:
            _check_memory(view, state, g, staying, others)
        others.append(place)


def _check_neighbours(
    view: View, state: JobState, place: Place, gpu: int, staying: list[JobState], others: list[Place]
) -> None:
    if not place.shared or any(not s.shared for s in staying) or any(not o.shared for o in others):
        raise LawBrokenError(f"{state} gets GPU {gpu}, which is not free and not shared by all")
    all_there = [state, *staying, *(view.waiting.get(o.job_id) or view.running[o.job_id] for o in others)]
    if any(s.job.gpu_frac < 1.0 for s in all_there):
        parts = [ask_of(s.job).part for s in all_there]
        if max(parts) == WHOLE or sum(parts) > WHOLE:
            shown = " + ".join(f"{s.job.gpu_frac:g}" for s in all_there)
            raise LawBrokenError(f"{state} gets GPU {gpu}, which is asked for {shown} times over")
        return
    if state.job.kind == "service" and any(s.job.kind == "service" for s in all_there[1:]):
        raise LawBrokenError(f"{state} gets GPU {gpu}, which already has a service")


def _check_memory(view: View, state: JobState, gpu: int, staying: list[int], others: list[Place]) -> None:
    room_mib = view.cluster.gpu_model(gpu).memory_mib
    used_mib = _memory_mib(state, room_mib)
    used_mib += sum(_memory_mib(view.running[j], room_mib) for j in staying)
    used_mib += sum(_memory_mib(view.waiting.get(o.job_id) or view.running[o.job_id], room_mib) for o in others)
    if used_mib > room_mib * (1.0 + 1e-9):
        raise LawBrokenError(f"{state} gets GPU {gpu}: {used_mib:g} MiB wanted of {room_mib:g}")


def _memory_mib(state: JobState, room_mib: float) -> float:
    """What a job needs of a GPU's memory; who asks for a part of the GPU and does not say has as large a part of it."""
    job = state.job
    return job.memory_mib or (job.gpu_frac * room_mib if job.gpu_frac < 1.0 else 0.0)


def _check_hosts(view: View, plan: Plan, leaving: set[int]) -> None:
    """No node is asked for more CPUs or memory of its host than it has, when all that leave have left."""
    assert view.parts is not None, "the cluster says what its hosts have, and the view does not count it"
    left: dict[int, list[int]] = {}
    gone = [(s.job, s.gpus, 1) for j in leaving if (s := view.running.get(j)) is not None]
    placed = [((view.waiting.get(p.job_id) or view.running[p.job_id]).job, p.gpus, -1) for p in plan.place]
    for job, gpus, sign in (*gone, *placed):
        ask = ask_of(job)
        for g in gpus if ask.cpus or ask.ram_kib else ():
            node = view.cluster.node_of[g]
            sums = left.setdefault(node, [view.parts.cpus[node], view.parts.ram_kib[node]])
            sums[0] += sign * ask.cpus
            sums[1] += sign * ask.ram_kib
    for node, (cpus, ram_kib) in left.items():
        if cpus < 0 or ram_kib < 0:
            raise LawBrokenError(
                f"node {node} lacks {max(-cpus, 0) / 1000:g} CPUs and {max(-ram_kib, 0) / 1024:g} MiB for what is "
                "placed there"
            )

"""How nodes and GPUs stand right now, in words, for whoever looks from another thread than the loop's.

Only single look-ups in what the loop owns, never a walk over a set or a dict that it may change meanwhile: what is told
may be a moment old, and may mix two moments, but it is never an error.
"""

from __future__ import annotations

from fairlead.live.controller import Controller

GPU_STATES = ("free", "busy", "drained", "asleep", "waking", "unreachable")


def node_state(controller: Controller, node: int) -> str:
    """unreachable, asleep, waking or up."""
    view = controller.desk.view
    if node in controller.poll.unreachable:
        return "unreachable"
    return "asleep" if node in view.asleep else "waking" if node in view.waking else "up"


def gpu_states(controller: Controller) -> list[str]:
    """Of each GPU one of `GPU_STATES`; busy before drained, since a drained one may finish what it has."""
    view, drained = controller.desk.view, controller.drained
    found = []
    for node in range(len(view.cluster.nodes)):
        word = node_state(controller, node)
        for gpu in range(view.cluster.first_gpu[node], view.cluster.first_gpu[node + 1]):
            busy = "busy" if view.on_gpu[gpu] else "drained" if gpu in drained else "free"
            found.append(busy if word == "up" else word)
    return found

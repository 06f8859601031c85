"""How nodes and GPUs stand right now, in words, for whoever looks from another thread than the loop's.

Only single look-ups in what the loop owns, or a copy made in one step, never a walk over what it may change meanwhile:
what is told may be a moment old, and may mix two moments, but it is never an error.
"""

from __future__ import annotations

from fairlead.live.control.controller import Controller

GPU_STATES = ("free", "busy", "drained", "asleep", "waking", "leaving", "absent", "unreachable")


def node_state(controller: Controller, node: int) -> str:
    """unreachable, absent, leaving, asleep, waking or up."""
    view, poll = controller.driver.view, controller.poll
    if node in poll.leaving:
        return "leaving"
    if node in poll.absent and node not in view.asleep:
        return "waking" if node in poll.coming else "absent"
    if node in controller.poll.unreachable:
        return "unreachable"
    return "asleep" if node in view.asleep else "waking" if node in view.waking else "up"


def gpu_states(controller: Controller) -> list[str]:
    """Of each GPU one of `GPU_STATES`; busy before drained, since a drained one may finish what it has.

    Who has lost its GPUs by the policy's word keeps them busy until its processes are gone.
    """
    view, drained = controller.driver.view, controller.drained
    held = {gpu for attempt in tuple(controller.lifecycle.attempts.values()) for gpu in attempt.gpus}
    found = []
    for node in range(len(view.cluster.nodes)):
        word = node_state(controller, node)
        for gpu in range(view.cluster.first_gpu[node], view.cluster.first_gpu[node + 1]):
            busy = "busy" if view.on_gpu[gpu] or gpu in held else "drained" if gpu in drained else "free"
            found.append(busy if word == "up" else word)
    return found

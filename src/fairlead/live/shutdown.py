"""The end of a controller, seen from outside: it is told to stop, and after it agents and, if wanted, jobs."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.live.engines import local_nodes, multi_node
from fairlead.live.engines.agent_client import AgentClient
from fairlead.live.engines.node_source import NO_EVENTS, AgentAwayError
from fairlead.live.home import Home
from fairlead.node.http import server
from fairlead.node.process.launch import LaunchState, LaunchStatus
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.processes import is_running, send

_END_S = 30.0
_AFTER_GRACE_S = 20.0
"""For taking a job off its GPU and killing it, once its grace is over."""


@dataclass(slots=True)
class Left:
    """What became of the jobs of a controller that was stopped."""

    running: set[int] = field(default_factory=set)
    """Jobs that go on, with their agents."""
    killed: set[int] = field(default_factory=set)
    """Jobs of which nothing runs any more; the next controller lets them go on."""
    silent: list[Path] = field(default_factory=list)
    """Folders of agents that do not answer though jobs of theirs run: nobody there could be told to end."""


def stop_controller(home: Home) -> int | None:
    """SIGTERM, and SIGKILL where it does not hear; its process, or None where there was none. Jobs go on.

    A controller may be killed at any moment: what it has acknowledged is on the disk.
    """
    holder = home.holder()
    if holder is None:
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        send(*holder, number)
        until_s = time.monotonic() + _END_S
        while is_running(*holder) and time.monotonic() < until_s:
            time.sleep(0.02)
        if not is_running(*holder):
            return holder[0]
    raise RunError(f"the controller, process {holder[0]}, does not end", hint=f"see {home.log}")


def stop_agents(home: Home, *, kill_jobs: bool, grace_s: float | None = None) -> Left:
    """End agents that have no jobs, or whose jobs have been ended first, each within its own grace or the one given."""
    left = Left()
    nodes = [_Node(folder) for folder in sorted(home.nodes.glob("node-*"))]
    before = [node.running() for node in nodes]
    if kill_jobs:
        _end_jobs([node for node in nodes if node.answers], grace_s)
    for node, jobs in zip(nodes, before, strict=True):
        still = node.running() if jobs else set()
        left.running |= still
        left.killed |= jobs - still
        if not node.answers:
            left.silent += [node.folder] if still else []
        elif not still:
            local_nodes.end(local_nodes.LocalNode(folder=node.folder, options=(), uuids=()))
    left.killed -= left.running
    return left


class _Node:
    """One agent's folder, and what runs there whether or not the agent answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers = True
        self._client = AgentClient(server.socket_path(folder))

    def alive(self) -> list[Mapping[str, Any]]:
        """The attempts that are not over, as the agent tells; none where it does not answer, which it is asked once."""
        if not self.answers:
            return []
        try:
            told = self._client.status(NO_EVENTS)["attempts"]
        except AgentAwayError:
            self.answers = False
            return []
        return [one for one in told if not multi_node.is_over(one)]

    def running(self) -> set[int]:
        """The jobs that run: as the agent says, else as their own folders do."""
        told = {multi_node.attempt_of(one).job_id for one in self.alive()}
        return told if self.answers else self._by_folders()

    def stop(self, one: Mapping[str, Any], grace_s: float | None) -> None:
        """Stop it; where that fails it goes on, and is counted so."""
        with contextlib.suppress(FairleadError):
            self._client.post("stop", {"id": one["id"], "nodes": one["nodes"], "grace_s": grace_s})

    def _by_folders(self) -> set[int]:
        launcher = Launcher(self.folder / "jobs")
        found: list[LaunchStatus] = []
        for launch in launcher.launches():
            with contextlib.suppress(InputError):  # only its folder was made
                found.append(launcher.status(launch))
        alive = [one for one in found if one.state not in (LaunchState.PREPARED, LaunchState.ENDED)]
        lost = launcher.processes_of([one.id for one in alive if one.state is LaunchState.LOST])
        return {one.id.attempt.job_id for one in alive if lost.get(one.id, True)}


def _end_jobs(nodes: Sequence[_Node], grace_s: float | None) -> None:
    """Ask all at once, and wait until they have gone, or must have."""
    longest_s = 0.0
    for node in nodes:
        for one in node.alive():
            node.stop(one, grace_s)
            longest_s = max(longest_s, one["grace_s"] if grace_s is None else grace_s)
    until_s = time.monotonic() + longest_s + _AFTER_GRACE_S
    while any(node.alive() for node in nodes) and time.monotonic() < until_s:
        time.sleep(0.05)

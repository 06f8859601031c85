"""The end of a controller, seen from outside: it is told to stop, and after it agents and, if wanted, jobs."""

from __future__ import annotations

import signal
import time

from fairlead.errors import RunError
from fairlead.live.engines import parts, sites
from fairlead.live.engines.agents import NO_EVENTS, AgentAwayError, AgentClient
from fairlead.live.home import Home
from fairlead.node import server
from fairlead.node.processes import is_running, send

_END_S = 30.0


def stop_controller(home: Home) -> int | None:
    """SIGTERM, and wait until it is gone; its process, or None where there was none. Jobs go on."""
    holder = home.holder()
    if holder is None:
        return None
    send(*holder, signal.SIGTERM)
    until_s = time.monotonic() + _END_S
    while is_running(*holder):
        if time.monotonic() > until_s:
            raise RunError(f"the controller, process {holder[0]}, does not end", hint=f"see {home.log}")
        time.sleep(0.02)
    return holder[0]


def stop_agents(home: Home, *, kill_jobs: bool) -> tuple[int, int]:
    """End agents that have no jobs, or kill these first; how many jobs go on with their agents, and were killed."""
    going_on: set[int] = set()
    killed: set[int] = set()
    for folder in sorted(home.nodes.glob("node-*")):
        client = AgentClient(server.socket_path(folder))
        try:
            alive = {job_id for job_id, _ in _alive(client)}
            if alive and not kill_jobs:
                going_on |= alive
                continue
            killed |= alive
            _kill(client)
        except AgentAwayError:
            continue
        sites.end(sites.Site(folder=folder, options=(), uuids=()))
    return len(going_on), len(killed)


def _alive(client: AgentClient) -> list[tuple[int, int]]:
    told = client.status(NO_EVENTS)["attempts"]
    return [(one["job_id"], one["attempt"]) for one in told if not parts.is_over(one)]


def _kill(client: AgentClient) -> None:
    until_s = time.monotonic() + _END_S
    while alive := _alive(client):
        if time.monotonic() > until_s:
            raise RunError(f"{len(alive)} jobs did not end within {_END_S:g} s")
        for job_id, attempt in alive:
            client.post("stop", {"job_id": job_id, "attempt": attempt, "grace_s": 0.0})
        time.sleep(0.05)

"""Talking to an agent that is there and says nothing."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path

from fairlead.live.engines.agent_client import AgentAwayError, AgentClient, Watcher

PATIENCE_S = 60.0
"""Less than a start waits for its answer by itself."""


def test_whoever_waits_for_an_agent_stops_when_it_is_found_to_be_away() -> None:
    failed: list[AgentAwayError] = []
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as agent:
        path = Path(folder) / "agent.sock"
        agent.bind(str(path))
        agent.listen()
        watcher = Watcher(AgentClient(path), lambda: None, lambda: None, "node-0")
        watcher.latest = {"revision": ""}

        def start() -> None:
            try:
                watcher.client.post("start", {})
            except AgentAwayError as error:
                failed.append(error)

        starting = threading.Thread(target=start)
        starting.start()
        connection, _ = agent.accept()
        with connection:
            connection.recv(1)  # so it was sent, and is never answered
            watcher.lost()
            starting.join(PATIENCE_S)
        assert failed
        assert watcher.latest is None

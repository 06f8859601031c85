"""Controllers' ends of the stream, and agents that dial them: real ones, and ones that say what a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.engines.agent_engine import AgentEngine
from fairlead.live.engines.remote.joined import JoinedNodes
from fairlead.live.engines.remote.places import Door
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.process.launcher import Launcher
from fairlead.node.stream.dialer import dial
from fairlead.node.stream.joining import FILE, join
from fairlead.node.stream.wire import PROTOCOL, Message, Wire
from tests.patience import PATIENCE_S


class Memory:
    """Facts that survive an engine, not the test."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def fact(self, name: str) -> Any:
        return self.kept.get(name)

    def keep(self, name: str, value: Any) -> None:
        self.kept[name] = json.loads(json.dumps(value))


class Yard:
    """One engine for machines that join, over again on the same memory, and its machines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = Memory()
        self.port = 0
        self.changed = threading.Event()
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self.engine: AgentEngine | None = None

    def open(self, *, lease_s: float = 30.0) -> AgentEngine:
        door = Door(self.folder, port=self.port, lease_s=lease_s, beat_s=0.5)
        source = JoinedNodes(self.memory, door, is_fake=True)
        self.engine = AgentEngine(source)
        self.engine.watch(self.changed.set)
        self.port = source.hub.port
        return self.engine

    @property
    def source(self) -> JoinedNodes:
        assert self.engine is not None
        assert isinstance(self.engine.source, JoinedNodes)
        return self.engine.source

    def join(self, name: str, gpus: int = 2, first: int = 0) -> None:
        """Another machine, with its agent."""
        made = self.source.invite(60.0)
        join(self.folder / name, made["url"], made["token"], name, FakeMeter(gpus, "H200", first=first).gpus)
        self.start(name, gpus, first)
        self.until(lambda: self._is_here(name), f"{name} to come")

    def start(self, name: str, gpus: int = 2, first: int = 0) -> None:
        line = [sys.executable, "-m", "fairlead.node.http.server", "--folder", str(self.folder / name)]
        line += ["--dial", str(self.folder / name / FILE), "--fake-gpus", str(gpus), "--fake-first", str(first)]
        with open(self.folder / f"{name}.out", "ab") as said:
            self._agents[name] = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def kill(self, name: str) -> None:
        agent = self._agents.pop(name)
        agent.kill()
        agent.wait()

    def _is_here(self, name: str) -> bool:
        assert self.engine is not None
        self.engine.refresh()
        poll = self.engine.poll()
        self.engine.vacated(poll.absent)
        return poll.awake >= {self.source.number(name)}

    def until(self, holds: Callable[[], Any], what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until_s, f"waited in vain for {what}"
            self.changed.wait(0.1)
            self.changed.clear()

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()
        for name in list(self._agents):
            self.kill(name)
        for jobs in self.folder.glob("*/jobs"):
            launcher = Launcher(jobs)
            for launch in launcher.launches():
                launcher.kill(launch)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- who speaks for itself ----

    def say(self, talk: Callable[[Wire, Message], Any], fingerprint: str | None = None) -> Any:
        """Dial as an agent would, and say what the test wants."""

        async def speak() -> Any:
            known_by = fingerprint or self.source.certificate.fingerprint
            wire, greeting = await dial(("127.0.0.1", self.port), known_by)
            try:
                return await talk(wire, greeting)
            finally:
                wire.close()

        return asyncio.run(asyncio.wait_for(speak(), PATIENCE_S))


def hello(greeting: Message, /, node: str = "", token: str = "", **more: Any) -> Message:
    told = {"protocol": PROTOCOL, "node": node, "token": token, "nonce": greeting["nonce"], "identity": "made-up"}
    return {"hello": {**told, **more}}


@pytest.fixture
def yard() -> Iterator[Yard]:
    made = Yard(Path(tempfile.mkdtemp(prefix="yard-")))
    os.chmod(made.folder, 0o755)
    yield made
    with contextlib.suppress(Exception):
        made.close()

"""The Slurm engine in virtual time: all of it but Slurm's commands and the agents' connections, which are made up.

Pilots that are submitted come when the test says so, and those that are cancelled leave at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from fairlead.live.engines.agent_engine import AgentEngine
from fairlead.live.engines.engine import GpuReading, Progress
from fairlead.live.engines.node_source import OnNews
from fairlead.live.engines.remote.hub import RemoteLink
from fairlead.live.engines.remote.places import Door
from fairlead.live.engines.slurm import commands
from fairlead.live.engines.slurm.engine import SlurmNodes
from fairlead.live.engines.slurm.pilots import Pool
from fairlead.model.cluster import Cluster
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.meter import info_as_json
from fairlead.node.identity import AttemptId
from fairlead.node.stream.wire import Message, Wire
from tests.live.scripted import Key, key_of
from tests.live.simulated_agent import SimulatedAgent


class MadeUpSlurm:
    """Answers the commands that the engine runs. `on_cancel` hears of every pilot that ends."""

    def __init__(self) -> None:
        self.pilots: dict[str, dict[str, Any]] = {}
        """By name: its number, its state, and what its agent was given."""
        self.on_cancel: Callable[[str], None] = lambda name: None

    def run(self, line: Sequence[str], text: str | None = None, timeout_s: float = 0.0) -> str:
        options = dict(word.partition("=")[::2] for word in line if word.startswith("--"))
        match line[0]:
            case "sbatch":
                credentials = re.search(r"^\{.*\}$", text or "", re.MULTILINE)
                assert credentials is not None
                number = len(self.pilots) + 1
                about = {"id": number, "state": "PENDING", "given": json.loads(credentials[0])}
                self.pilots[options["--job-name"]] = about
                return f"{number}\n"
            case "squeue":
                rows = ((one["id"], name, one["state"], "UNLIMITED", "n0") for name, one in self.pilots.items())
                return "".join("|".join(map(str, row)) + "\n" for row in rows)
            case "scancel":
                for name in options["--jobname"].split(","):
                    if name in self.pilots and self.pilots[name]["state"] not in commands.OVER:
                        self.pilots[name]["state"] = "CANCELLED"
                        self.on_cancel(name)
                return ""
            case "scontrol":
                return "KillWait = 30 sec\nProctrackType = proctrack/cgroup\n"
        raise AssertionError(f"unexpected: {line}")

    @property
    def open(self) -> dict[str, dict[str, Any]]:
        """Pilots that are not over."""
        return {name: one for name, one in self.pilots.items() if one["state"] not in commands.OVER}


class _Nodes(SlurmNodes):
    """Without threads: whoever has something to say says it in the caller's."""

    def open(self, on_news: OnNews) -> None:
        self._on_news = on_news
        self.hub.call = lambda what, *values: what(*values)  # type: ignore[method-assign]

    def close(self) -> None:
        super().close()
        self.hub._loop.close()


class _Connection:
    """What the controller sends to one agent is done at once."""

    peer = "127.0.0.1"

    def __init__(self, agent: SimulatedAgent, link: RemoteLink) -> None:
        self.agent, self.link = agent, link

    def send(self, message: Message) -> None:
        if "ask" in message:
            answer = self.agent.carry_out(message["what"], message.get("about") or {})
            self.tell()
            self.link.take(self._me, {"answer": message["ask"], "ok": answer})

    def tell(self) -> None:
        self.link.take(self._me, {"status": self.agent.difference(restless=True)})

    def close(self) -> None:
        """Nothing is kept."""

    @property
    def _me(self) -> Wire:
        return cast(Wire, self)


class PilotedEngine(AgentEngine):
    """What a test says to a `ScriptedEngine` it can say to this one."""

    def __init__(
        self, cluster: Cluster, folder: Path, slurm: MadeUpSlurm, facts: Any, *, wall_s: Callable[[], float]
    ) -> None:
        """`commands.run` must be `slurm.run` already."""
        self._wall_s, self._slurm = wall_s, slurm
        self._at: dict[int, _Connection] = {}
        pools = {f"p{n}": Pool(1, node.gpus, "V100") for n, node in enumerate(cluster.nodes)}
        nodes = _Nodes(facts, Door(folder), pools, agent=["agent"], fake=True)
        self.nodes, self._shape = nodes, cluster
        slurm.on_cancel = self._leave
        super().__init__(nodes, terms=lambda _: cluster)
        self.vacated(frozenset(range(len(cluster.nodes))))
        for node in range(len(cluster.nodes)):
            self.wake(node)
            self.set_awake(node)

    # ---- what a test says ----

    @property
    def running(self) -> set[Key]:
        parts = (part for one in self._at.values() for part in one.agent.attempts.values())
        return {key_of(AttemptId.parse(part["id"])) for part in parts if part["state"] == "running"}

    def set_awake(self, node: int) -> None:
        """The pilot begins, and its agent dials in."""
        pilot = self._slurm.pilots[self.nodes._pilots[node].name]
        pilot["state"] = "RUNNING"
        admitted = self.nodes.admit({**pilot["given"], "identity": f"agent {pilot['id']}"}, "127.0.0.1")
        assert admitted is not None
        assert admitted.link is not None, admitted.refused
        first = self._shape.first_gpu[node]
        meter = FakeMeter(self._shape.nodes[node].gpus, "V100", first=first)
        agent = SimulatedAgent(f"pilot {pilot['id']}", [info_as_json(one) for one in meter.gpus], self._wall_s)
        made = self._at[node] = _Connection(agent, admitted.link)
        admitted.link.attach(made._me)
        made.tell()

    def end(self, key: Key) -> None:
        self._change(key, lambda agent, part: agent.end(part["id"]))

    def evict(self, key: Key, why: str = "guard") -> None:
        self._change(key, lambda agent, part: agent.end(part["id"], 143, evicted=why))

    def report(self, key: Key, progress: Progress) -> None:
        def told(agent: SimulatedAgent, part: dict[str, Any]) -> None:
            agent.attempts[part["id"]] = {**part, "progress": asdict(progress)}

        self._change(key, told)

    def read(self, reading: GpuReading) -> None:
        node = self.cluster.node_of[reading.gpu]
        agent = self._at[node].agent
        uuid = agent.gpus[reading.gpu - self.cluster.first_gpu[node]]["uuid"]
        agent.readings[uuid] = {**asdict(reading), "gpu": uuid}
        self._at[node].tell()

    def _change(self, key: Key, change: Callable[[SimulatedAgent, dict[str, Any]], None]) -> None:
        """On all of its nodes, and only then anybody is told: else the first to end would stop the others."""
        concerned = []
        for one in self._at.values():
            for part in list(one.agent.attempts.values()):
                if key_of(AttemptId.parse(part["id"])) == key:
                    change(one.agent, part)
                    concerned.append(one)
        assert concerned, f"{key} runs nowhere"
        for one in concerned:
            one.tell()

    def _leave(self, name: str) -> None:
        """A pilot that is cancelled says its last word."""
        for node, pilot in list(self.nodes._pilots.items()):
            if pilot.name == name and node in self._at:
                gone = self._at.pop(node)
                assert not [part for part in gone.agent.attempts.values() if part["state"] == "running"]
                gone.link.take(gone._me, {"bye": True})
                gone.link.detach(gone._me)
                self.nodes.tick()

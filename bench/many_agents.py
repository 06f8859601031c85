"""One controller with many agents: 2,000 simulated ones, 16,000 GPUs, 100,000 jobs a day, over real TLS on loopback.

The controller is `fairlead up --engine join` as it is; agents are simulated here, all in one process, and say what real
ones would. Jobs run first until most GPUs are busy; then a steady stream comes and goes. Then every agent reconnects at
once, and then a tenth of them goes for good. What is measured is the controller's process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.live.simulated_agent import SimulatedAgent

from fairlead.errors import FairleadError
from fairlead.live.client import Client
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.meter import info_as_json
from fairlead.node.stream.dialer import dial
from fairlead.node.stream.wire import PROTOCOL, Message, Wire

DAY_S = 86400.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class DialledAgent(SimulatedAgent):
    """One whose jobs run until the bench ends them; it dials as real ones do."""

    token: str = ""
    wire: Wire | None = None
    is_gone: bool = False

    async def live(self, address: tuple[str, int], fingerprint: str) -> None:
        """Dial, and dial again, until it is gone."""
        while not self.is_gone:
            try:
                await self._session(address, fingerprint)
            except (FairleadError, OSError, TimeoutError):
                pass
            finally:
                if self.wire is not None:
                    self.wire.close()
                self.wire = None
            await asyncio.sleep(0.2 + 0.8 * random.random())

    async def _session(self, address: tuple[str, int], fingerprint: str) -> None:
        wire, greeting = await dial(address, fingerprint)
        me = {"protocol": PROTOCOL, "node": self.name, "token": self.token, "nonce": greeting["nonce"]}
        wire.send({"hello": {**me, "identity": self.name}})
        welcome = await wire.receive()
        if "refused" in welcome:
            wire.close()
            raise OSError(welcome["refused"])
        wire.number(int(welcome["first"]))
        self.begin()
        self.tell(wire)
        self.wire = wire
        beating = asyncio.create_task(self._beat(wire, float(welcome["beat_s"])))
        try:
            while True:
                message = await wire.receive()
                if "ask" in message:
                    self._answer(wire, message)
        finally:
            beating.cancel()

    async def _beat(self, wire: Wire, every_s: float) -> None:
        await asyncio.sleep(every_s * random.random())
        while True:
            wire.send({"beat": time.monotonic()})
            await asyncio.sleep(every_s)

    def tell(self, wire: Wire | None) -> None:
        told = self.difference()
        if wire is not None:
            wire.send({"status": told})

    def _answer(self, wire: Wire, message: Message) -> None:
        answer = self.carry_out(message["what"], message.get("about") or {})
        self.tell(wire)
        wire.send({"answer": message["ask"], "ok": answer})


class Bench:
    """The controller's process, and what it costs."""

    def __init__(self, agents: int, gpus: int, policy: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="agents-"))
        (self.home / "fairlead.toml").write_text(f"""
[policy]
stack = "{policy}"
[engine]
name = "join"
fake_gpus = 1
as_submitter = {'"everyone-is-root"' if os.geteuid() == 0 else "false"}
[agents]
port = 0
lease_s = 60.0
[controller]
poll_s = 5.0
""")
        line = [sys.executable, "-m", "fairlead", "up", "--quiet", f"--home={self.home}", "--port=0"]
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL)
        while not (self.home / "url").exists():
            assert self.process.poll() is None, "the controller does not come up"
            time.sleep(0.05)
        self.client = Client((self.home / "url").read_text().strip(), (self.home / "token").read_text().strip())
        self.agents = [
            DialledAgent(f"n{i}", [info_as_json(one) for one in FakeMeter(gpus, "H200", first=i * gpus).gpus])
            for i in range(agents)
        ]
        self.address, self.fingerprint = ("", 0), ""

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 2**20

    def decisions(self) -> dict[float, float]:
        """How many took at most so many seconds."""
        found = re.findall(r'fairlead_decision_seconds_bucket\{le="([^"]+)"\} (\S+)', self.client.metrics())
        return {float(le): float(count) for le, count in found}

    async def join_all(self) -> None:
        """One by one at the door, as machines would in a day."""
        for agent in self.agents:
            made = self.client.node_token(3600.0)
            secret, _, self.fingerprint = made["token"].rpartition(".")
            host, _, port = made["url"].removeprefix("https://").rpartition(":")
            self.address = host, int(port)
            wire, greeting = await dial(self.address, self.fingerprint)
            hello = {"join": secret, "node": agent.name, "protocol": PROTOCOL, "identity": agent.name}
            wire.send({"hello": {**hello, "gpus": agent.gpus, "nonce": greeting["nonce"]}})
            agent.token = (await wire.receive())["joined"]["token"]
            wire.close()

    async def connected(self, wanted: int, within_s: float = 300.0) -> float:
        began_s = time.monotonic()
        while sum(agent.wire is not None for agent in self.agents) < wanted:
            assert time.monotonic() - began_s < within_s, "agents do not come back"
            await asyncio.sleep(0.05)
        return time.monotonic() - began_s

    def running(self) -> list[tuple[DialledAgent, str]]:
        return [(a, one) for a in self.agents for one, part in a.attempts.items() if part["state"] == "running"]

    async def submit(self, count: int, rng: random.Random) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(count):
            asked = {"command": ["train"], "gpus": rng.choice((1, 1, 2, 4))}
            await loop.run_in_executor(None, self.client.submit, asked)

    def close(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        shutil.rmtree(self.home)


async def play(bench: Bench, jobs: int, steady_s: float, rate: float) -> dict[str, Any]:
    rng, found = random.Random(0), dict[str, Any]()
    before_s = time.monotonic()
    await bench.join_all()
    found["join_s"] = time.monotonic() - before_s
    lives = [asyncio.create_task(agent.live(bench.address, bench.fingerprint)) for agent in bench.agents]
    found["connect_s"] = await bench.connected(len(bench.agents))
    await bench.submit(jobs, rng)
    until_s = time.monotonic() + 300.0
    while len(bench.running()) < 0.9 * jobs and time.monotonic() < until_s:
        await asyncio.sleep(0.2)
    found["running"] = len(bench.running())
    await asyncio.sleep(5.0)
    found |= await steady(bench, steady_s, rate, rng)
    found |= await storm(bench)
    found |= await losses(bench)
    for task in lives:
        task.cancel()
    await asyncio.gather(*lives, return_exceptions=True)
    found["rss_mib"] = bench.rss_mib()
    return found


async def steady(bench: Bench, for_s: float, rate: float, rng: random.Random) -> dict[str, Any]:
    """Jobs come and go at `rate` a second."""
    cpu_s, began_s, before = bench.cpu_s(), time.monotonic(), bench.decisions()
    done = 0
    while (passed_s := time.monotonic() - began_s) < for_s:
        while done < passed_s * rate:
            done += 1
            await bench.submit(1, rng)
            agent, attempt = rng.choice(bench.running())
            agent.end(attempt)
            agent.tell(agent.wire)
        await asyncio.sleep(0.05)
    passed_s = time.monotonic() - began_s
    after = bench.decisions()
    counts = {le: after[le] - before.get(le, 0.0) for le in after}
    most = max(counts.values())
    p99_s = min((le for le, count in counts.items() if count >= 0.99 * most), default=float("inf"))
    return {
        "cores": (bench.cpu_s() - cpu_s) / passed_s, "decisions": most, "decision_p99_below_s": p99_s,
        "jobs_a_day": rate * DAY_S,
    }  # fmt: skip


async def storm(bench: Bench) -> dict[str, Any]:
    """Every agent loses its connection at once."""
    cpu_s = bench.cpu_s()
    for agent in bench.agents:
        if agent.wire is not None:
            agent.wire.close()
            agent.wire = None
    took_s = await bench.connected(len(bench.agents))
    loop = asyncio.get_running_loop()
    began_s = time.monotonic()
    while True:  # and until the controller sees them all
        nodes = (await loop.run_in_executor(None, bench.client.nodes))["nodes"]
        if all(node["state"] == "up" for node in nodes):
            break
        await asyncio.sleep(0.5)
    return {"storm_s": took_s + time.monotonic() - began_s, "storm_cpu_s": bench.cpu_s() - cpu_s}


async def losses(bench: Bench) -> dict[str, Any]:
    """A tenth goes for good: after the lease their jobs run elsewhere."""
    gone = random.Random(1).sample(bench.agents, len(bench.agents) // 10)
    lost = sum(part["state"] == "running" for agent in gone for part in agent.attempts.values())
    cpu_s, began_s = bench.cpu_s(), time.monotonic()
    left = [agent for agent in bench.agents if agent not in gone]
    before = sum(part["state"] == "running" for agent in left for part in agent.attempts.values())
    for agent in gone:
        agent.is_gone = True
        if agent.wire is not None:
            agent.wire.close()
    while time.monotonic() - began_s < 240.0:
        now = sum(part["state"] == "running" for agent in left for part in agent.attempts.values())
        if now - before >= 0.95 * lost:
            break
        await asyncio.sleep(0.5)
    return {
        "lost_jobs": lost, "replaced": now - before, "replaced_s": time.monotonic() - began_s,
        "losses_cpu_s": bench.cpu_s() - cpu_s,
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agents", type=int, default=2000)
    options.add_argument("--gpus", type=int, default=8)
    options.add_argument("--jobs", type=int, default=5000, help="that run when the measurement begins")
    options.add_argument("--steady-s", type=float, default=60.0)
    options.add_argument("--a-day", type=float, default=100_000.0, help="jobs that come and go")
    options.add_argument("--policy", default="fifo-greedy")
    given = options.parse_args()
    bench = Bench(given.agents, given.gpus, given.policy)
    try:
        found = asyncio.run(play(bench, given.jobs, given.steady_s, given.a_day / DAY_S))
    finally:
        bench.close()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

"""An agent in a thread, for experiments that run what a node would run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import HERE, ROOT, Stage

from fairlead.model.job import Kind
from fairlead.node.agent import Agent
from fairlead.node.agent_config import AgentConfig
from fairlead.node.gpu.meter import Meter
from fairlead.node.gpu.nvml import NvmlMeter
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchStatus
from fairlead.node.running_jobs import RunningJob
from fairlead.policy.guarding import GuardConfig


class Running:
    """The agent, what it did, and the launch rate over time."""

    def __init__(self, agent: Agent, stage: Stage) -> None:
        self.agent = agent
        self.stage = stage
        self.rates: list[tuple[float, float, float | None]] = []
        self.attempts: dict[str, AttemptId] = {}
        """By the names that the experiments have for them."""

    @property
    def node_gpu(self) -> Any:
        return self.agent.node_gpu(self.stage.gpu.uuid)

    def start(self, name: str, command: list[str], kind: Kind = "training", **about: Any) -> None:
        env = {"PYTHONPATH": f"{ROOT / 'src'}:{HERE}", "OMP_NUM_THREADS": "2"}
        attempt = self.attempts[name] = AttemptId(len(self.attempts) + 1, 1)
        gpus = (self.stage.gpu.uuid,)
        self.agent.start(Order(attempt, tuple(command), kind, env=env, shared=True, gpus=gpus, **about))

    def job(self, name: str) -> RunningJob | None:
        """While it runs."""
        found: RunningJob | None = self.node_gpu.running_jobs.get(self.attempts[name])
        return found

    def status(self, name: str) -> LaunchStatus:
        return self.agent.launcher.status(LaunchId(self.attempts[name]))

    def output(self, name: str) -> str:
        status = self.status(name)
        return (status.stdout.read_text(errors="replace") + status.stderr.read_text(errors="replace"))[-2000:]

    def events(self) -> list[dict[str, Any]]:
        names = {attempt: name for name, attempt in self.attempts.items()}
        return [{**asdict(event), "attempt": names.get(event.attempt)} for event in self.agent.events]

    def joules(self) -> dict[str, float]:
        """Of each job so far, of idle, and of all."""
        energy = self.node_gpu.energy
        found = {name: energy.jobs[one].at_least_j for name, one in self.attempts.items() if one in energy.jobs}
        return {**found, "idle": energy.idle.at_least_j, "metered": energy.metered.at_least_j}


@contextlib.contextmanager
def running(
    stage: Stage, guard: GuardConfig | None = None, meter: Meter | None = None, *, mps: bool = True
) -> Iterator[Running]:
    """An agent of its own; the stage's MPS daemon must not run."""
    folder = Path(f"{stage.folder}/a{int(time.monotonic() * 10) % 10000}")
    config = AgentConfig(guard or GuardConfig(), uses_mps=mps)
    agent = Agent(folder, meter or NvmlMeter(), library=stage.library, config=config)
    stopping = threading.Event()
    made = Running(agent, stage)

    def watch() -> None:
        while not stopping.wait(0.05):
            guarded = made.node_gpu.guarded
            now_s = time.monotonic()
            made.rates.append((now_s, guarded.rate.rate_frac, guarded.latency_s(now_s)))

    threads = [threading.Thread(target=agent.run, args=(stopping,)), threading.Thread(target=watch)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        with contextlib.suppress(Exception):
            for attempt in list(made.node_gpu.running_jobs):
                agent.stop(attempt)
            until_s = time.monotonic() + 25.0
            while made.node_gpu.running_jobs and time.monotonic() < until_s:
                time.sleep(0.1)
        stopping.set()
        for thread in threads:
            thread.join()
        daemon = made.node_gpu.mps
        agent.close()
        with contextlib.suppress(Exception):
            daemon.stop()

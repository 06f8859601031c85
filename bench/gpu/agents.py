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

from fairlead.node.agent import Agent, AgentConfig
from fairlead.node.meter import Meter
from fairlead.node.nvml import NvmlMeter
from fairlead.node.spec import JobSpec, Role
from fairlead.policy.guarding import GuardConfig


class Running:
    """The agent, what it did, and the launch rate over time."""

    def __init__(self, agent: Agent, stage: Stage) -> None:
        self.agent = agent
        self.stage = stage
        self.rates: list[tuple[float, float, float | None]] = []

    @property
    def seat(self) -> Any:
        return self.agent.seat(self.stage.gpu.uuid)

    def start(self, job_id: str, command: list[str], role: Role, **about: Any) -> Any:
        env = {"PYTHONPATH": f"{ROOT / 'src'}:{HERE}", "OMP_NUM_THREADS": "2"}
        spec = JobSpec(job_id, tuple(command), (self.stage.gpu.uuid,), role, env=env, **about)
        return self.agent.start(spec, even_if_not_healthy=True)

    def output(self, job_id: str, attempt: int) -> str:
        status = self.agent._tenants.launcher.status(job_id, attempt)
        return (status.stdout.read_text(errors="replace") + status.stderr.read_text(errors="replace"))[-2000:]

    def events(self) -> list[dict[str, Any]]:
        return [asdict(event) for event in self.agent.events]

    def joules(self) -> dict[str, float]:
        """Of each job so far, of idle, and of all."""
        energy = self.seat.energy
        found = {name: one.at_least_j for name, one in energy.jobs.items()}
        return {**found, "idle": energy.idle.at_least_j, "metered": energy.metered.at_least_j}


@contextlib.contextmanager
def running(stage: Stage, guard: GuardConfig | None = None, meter: Meter | None = None) -> Iterator[Running]:
    """An agent of its own; the stage's MPS daemon must not run."""
    folder = Path(f"{stage.folder}/a{int(time.monotonic() * 10) % 10000}")
    config = AgentConfig(guard or GuardConfig())
    agent = Agent(folder, meter or NvmlMeter(), library=stage.library, config=config)
    stopping = threading.Event()
    made = Running(agent, stage)

    def watch() -> None:
        while not stopping.wait(0.05):
            keeper = made.seat.keeper
            now_s = time.monotonic()
            made.rates.append((now_s, keeper.rate.rate_frac, keeper.latency_s(now_s)))

    threads = [threading.Thread(target=agent.run, args=(stopping,)), threading.Thread(target=watch)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        with contextlib.suppress(Exception):
            for name in list(made.seat.tenants):
                agent.stop(name)
            until_s = time.monotonic() + 25.0
            while made.seat.tenants and time.monotonic() < until_s:
                time.sleep(0.1)
        stopping.set()
        for thread in threads:
            thread.join()
        mps = made.seat.mps
        agent.close()
        with contextlib.suppress(Exception):
            mps.quit()

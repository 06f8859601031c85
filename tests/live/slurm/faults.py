"""Jobs on pilots while things break: daemons, agents, pilots, the network, the controller itself.

Whatever was broken, at the end every job has finished, and none ever ran twice at a time.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.proxy import Proxy
from tests.live.slurm.site import SlurmSite

FAULTS = ("slurmd", "agent", "pilot", "slurmctld", "network", "controller")
_AWAY_S = 2.0
"""How long Slurm's controller and the network are away. Longer than the lease, and jobs go on elsewhere."""


class Story:
    """A stream of jobs, and faults drawn at random; each may hit a controller that has just been killed."""

    def __init__(self, slurm: SlurmCluster, *, seed: int, policy: str = "fifo-greedy", nodes: int, gpus: int) -> None:
        self.slurm, self.nodes, self.gpus = slurm, nodes, gpus
        self._random = random.Random(seed)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.proxy = Proxy(port)
        self.site = SlurmSite(
            slurm, policy=policy, nodes=nodes, gpus=gpus, port=port, address=f"127.0.0.1:{self.proxy.port}", lease_s=6.0
        )
        self.site.up()
        self.happened: list[str] = []
        self.jobs: set[int] = set()

    def play(self, faults: int, jobs_each: int = 1) -> None:
        for number in range(faults):
            for _ in range(jobs_each):
                self._submit()
            self.break_one(FAULTS[number % len(FAULTS)] if number < len(FAULTS) else self._random.choice(FAULTS))
            time.sleep(self._random.uniform(0.0, 1.5))
        self.finish()

    def _submit(self) -> None:
        wide = self._random.choice((1, 1, 2, self.gpus, 2 * self.gpus))
        self.jobs.add(self.site.submit(self._random.randint(1, 4), 0.5, gpus=min(wide, self.nodes * self.gpus)))

    def break_one(self, what: str, *, with_controller: bool | None = None) -> None:
        both = self._random.random() < 0.3 if with_controller is None else with_controller
        self.happened.append(f"{what}{' and controller' if both else ''}")
        if both or what == "controller":
            self.site.kill()
        getattr(self, f"_{what}")()
        if both or what == "controller":
            self.site.up()

    def _controller(self) -> None:
        """It is killed with every other fault, too."""

    def _slurmd(self) -> None:
        number = self._random.randrange(self.slurm.nodes)
        self.slurm.kill_slurmd(number)
        time.sleep(self._random.uniform(0.1, 1.0))
        self.slurm.start_slurmd(number)

    def _agent(self) -> None:
        for pid in self._random.sample(found := self.site.agents(), min(2, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _pilot(self) -> None:
        running = [number for number, state in self.slurm.jobs().items() if state == "RUNNING"]
        if running:
            self.slurm.run("scancel", str(self._random.choice(running)))

    def _slurmctld(self) -> None:
        self.slurm.stop_controller()
        time.sleep(self._random.uniform(0.5, _AWAY_S))
        self.slurm.start_controller()

    def _network(self) -> None:
        self.proxy.is_cut = True
        time.sleep(self._random.choice((0.5, _AWAY_S) if len(self.happened) <= len(FAULTS) else (0.5, _AWAY_S, 9.0)))
        self.proxy.is_cut = False

    def finish(self) -> None:
        site = self.site
        site.until(lambda: set(site.states().values()) == {"finished"}, f"all jobs to finish after {self.happened}")
        assert site.states().keys() == self.jobs
        assert_none_ran_twice(site)

    def close(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.slurm.run("scancel", "-u", "root")
        self.site.close()
        self.proxy.close()


def assert_none_ran_twice(site: SlurmSite) -> None:
    """By the jobs' own notes: no two processes of the same part of a job overlap."""
    assert_apart(site.runs())


def assert_apart(runs_of: Mapping[Any, list[tuple[float, float]]]) -> None:
    """No two runs of the same thing overlap."""
    for what, runs in runs_of.items():
        for (_, until_s), (from_s, _) in itertools.pairwise(sorted(runs)):
            assert from_s > until_s, f"two at a time of {what}: {sorted(runs)}"

"""One run, described: everything that decides its result, as one value that can be sent to another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.model.cluster import Cluster
from fairlead.model.files import read_text
from fairlead.model.interference import Interference
from fairlead.policy import registry
from fairlead.policy.stack import Stack
from fairlead.sim.carbon import Carbon
from fairlead.sim.feasible import check_feasible
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.world import PLAIN, World
from fairlead.traces.trace import Trace

Progress = Callable[[int, int], None]
"""Called with the jobs finished so far and the jobs in all."""


@dataclass(frozen=True, slots=True)
class Run:
    """A trace on a cluster under a policy, in a world."""

    trace: Trace
    cluster: Cluster
    policy: str
    world: World = PLAIN
    round_s: float | None = None
    history: Interference | None = None
    """What the sharing policy knows at the start of jobs that share GPUs."""
    carbon: Carbon | None = None

    def check(self) -> None:
        """Raise what is wrong with the policy, or with the jobs that it would never run."""
        check_feasible(self.trace, self.cluster, self._stack(), set(self.world.drained))

    def result(self, progress: Progress | None = None) -> Result:
        """Simulate, and give what came of it."""
        result = Simulation(self.trace, self.cluster, self._stack(), self.world, progress=progress).run()
        if self.carbon is not None:
            result.summary["carbon_kg"] = self.carbon.emitted_kg(result.timeline)
        return result

    def _stack(self) -> Stack:
        stack = registry.build(self.policy, round_s=self.round_s, seed=self.world.seed, read=read_text)
        if self.history is not None:
            stack.sharing.learn_from(self.history)
        return stack

"""One run, described: everything that decides its result, as one value that can be sent to another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairlead.model.cluster import Cluster
from fairlead.model.interference import EMPTY, Interference
from fairlead.model.profile import Locality
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.stack import Stack
from fairlead.sim.carbon import Carbon
from fairlead.sim.failures import Failures
from fairlead.sim.feasible import check_feasible
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.truth import Drift, Watch
from fairlead.traces.trace import Trace

Progress = Callable[[int, int], None]
"""Called with the jobs finished so far and the jobs in all."""


@dataclass(frozen=True, slots=True)
class Run:
    """A trace on a cluster under a policy, with all that can be said about the world."""

    trace: Trace
    cluster: Cluster
    policy: str
    round_s: float | None = None
    seed: int = 0
    locality: Locality | None = None
    restart_s: float | None = None
    failures: Failures | None = None
    true_variability: Variability | None = None
    drifts: tuple[Drift, ...] = ()
    correct_scores: Watch | None = None
    drained: tuple[int, ...] = ()
    interference: Interference = EMPTY
    """What is true of jobs that share GPUs."""
    history: Interference | None = None
    """What the sharing policy knows of that at the start."""
    carbon: Carbon | None = None

    def check(self) -> None:
        """Raise what is wrong with the policy, or with the jobs that it would never run."""
        check_feasible(self.trace, self.cluster, self._stack(), self.cluster.gpus - len(set(self.drained)))

    def result(self, progress: Progress | None = None) -> Result:
        """Run it."""
        simulation = Simulation(
            self.trace, self.cluster, self._stack(), seed=self.seed, locality=self.locality,
            restart_s=self.restart_s, failures=self.failures, true_variability=self.true_variability,
            drifts=self.drifts, correct_scores=self.correct_scores, drained=self.drained,
            interference=self.interference, progress=progress,
        )  # fmt: skip
        result = simulation.run()
        if self.carbon is not None:
            result.summary["carbon_kg"] = self.carbon.emitted_kg(result.timeline)
        return result

    def _stack(self) -> Stack:
        stack = registry.build(self.policy, round_s=self.round_s, seed=self.seed)
        if self.history is not None:
            stack.sharing.learn_from(self.history)
        return stack

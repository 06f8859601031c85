"""What an agent can be told beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fairlead.node.mps.daemon import CONTROL
from fairlead.node.mps.recovery import RecoveryConfig
from fairlead.node.process.launch import LaunchRules
from fairlead.policy.guarding import GuardConfig


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The agent's numbers; those of the guard are the guard's own."""

    guard: GuardConfig = field(default_factory=GuardConfig)
    mps_recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    uses_mps: bool = True
    mps_binary: str = CONTROL
    mps_timeout_s: float = 5.0
    failing_s: float = 60.0
    """A service that ends by itself so soon after its start has failed to come up,"""
    most_failures: int = 5
    """and after so many failures in a row it is not started again."""
    rules: LaunchRules = field(default_factory=LaunchRules)
    cgroup_parent: Path | None = None
    """Where jobs get cgroups of their own; None: they get none."""

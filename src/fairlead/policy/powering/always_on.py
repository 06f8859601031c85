"""Every node stays on."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.policy.stages import Powering


@dataclass
class AlwaysOn(Powering):
    """Nodes without jobs stay on and draw their idle power.

    When not to use it: where nodes are idle for long.
    """

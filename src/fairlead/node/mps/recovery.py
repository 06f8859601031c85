"""When the MPS server of a GPU must be restarted, and its service with it. Pure: what was seen in, a reason out.

On one GPU a fatal fault of any client reaches every client of that MPS server: it cannot be contained, only recovered
from, soon and without a person. Restarting MPS ends every client, so it is not done on a suspicion: only where the
server itself says FAULT, hangs or has gone, where a service has lost its server, or where a service that was started
anew does not come up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.node.identity import AttemptId
from fairlead.node.mps.daemon import MpsStatus


@dataclass(frozen=True, slots=True)
class RecoveryConfig:
    """How long services may take to become clients of MPS, and faults to show."""

    ready_s: float = 20.0
    """A service that is no client of MPS so long after its start has failed to come up."""
    lost_s: float = 2.0
    """A service that was a client and is none for so long, though its process lives, has lost its server."""
    evidence_s: float = 10.0
    """A fault so long ago may explain the end of a service."""
    again_s: float = 20.0
    """A service that ends so soon after its start did not come up."""


@dataclass(slots=True)
class _Seen:
    started_s: float
    client_s: float | None = None
    """When it was last seen among the clients."""


@dataclass(slots=True)
class MpsRecovery:
    """Decides when the MPS of a GPU must be restarted."""

    config: RecoveryConfig = field(default_factory=RecoveryConfig)
    _services: dict[AttemptId, _Seen] = field(default_factory=dict)
    _fault_s: float = float("-inf")
    _fault: str = ""

    def started(self, service: AttemptId, now_s: float) -> None:
        """A service's process was started."""
        self._services[service] = _Seen(now_s)

    def forget(self, service: AttemptId) -> None:
        """It was stopped on purpose, or is no longer ours."""
        self._services.pop(service, None)

    def suspect(self, what: str, now_s: float) -> None:
        """An Xid or a line that speaks of a fault."""
        self._fault_s, self._fault = now_s, what

    def ended(self, service: AttemptId, now_s: float) -> str | None:
        """A service's process has ended though nobody asked it to; why MPS must be restarted before it can start."""
        seen = self._services.pop(service, None)
        if now_s - self._fault_s <= self.config.evidence_s:
            return f"service {service} ended after a fault: {self._fault}"
        if seen is not None and now_s - seen.started_s < self.config.again_s and seen.client_s is None:
            return f"service {service} did not come up"
        return None

    def look(self, status: MpsStatus, pids: dict[AttemptId, set[int]], now_s: float) -> str | None:
        """Why MPS must be restarted now, by its own words and the services' processes."""
        if not status.is_running:
            return "the MPS daemon has gone"
        if status.is_hung:
            return "the MPS daemon does not answer"
        for server in status.servers:
            if server.has_fault:
                return f"MPS server {server.pid} is in state {server.state}"
        clients = set(status.clients)
        for service, seen in self._services.items():
            mine = pids.get(service, set())
            if mine & clients:
                seen.client_s = now_s
            elif not mine:
                continue  # its end is told by `ended`
            elif seen.client_s is not None and now_s - seen.client_s > self.config.lost_s:
                return f"service {service} has lost its MPS server"
            elif seen.client_s is None and now_s - seen.started_s > self.config.ready_s:
                return f"service {service} is no client of MPS {self.config.ready_s:g} s after its start"
        return None

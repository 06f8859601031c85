"""Making a job leave: the steps of the guard's `Eviction`, carried out."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from fairlead.node.journal import Journal
from fairlead.node.launcher import Launcher
from fairlead.node.mps import MpsDaemon
from fairlead.node.page import GpuOrder
from fairlead.node.seats import Seats
from fairlead.node.tenants import Tenant, Tenants
from fairlead.node.workers import Workers
from fairlead.policy.guarding import Action, Eviction, EvictionConfig


class Leaving:
    """Of all jobs of an agent, under its lock. What may take long is done by its workers."""

    def __init__(
        self, config: EvictionConfig, tenants: Tenants, seats: Seats, workers: Workers, journal: Journal
    ) -> None:
        self._config, self._tenants, self._seats = config, tenants, seats
        self._workers, self._journal = workers, journal

    def begin(self, tenant: Tenant, reason: str, now_s: float, grace_s: float | None = None) -> bool:
        """It is to leave; so long after SIGTERM it is taken off the GPU. Whether it has gone already."""
        config = self._config
        if tenant.page is None:
            config = replace(config, freeze_s=0.0)  # nobody there who could freeze
        if grace_s is not None:
            config = replace(config, term_grace_s=max(grace_s, 0.01))
        if tenant.eviction is None:
            tenant.eviction, tenant.reason = Eviction(config), reason
            self._journal.tell_job(tenant, "stopping" if tenant.is_asked_to_go else "evicting", reason)
        elif grace_s is not None and config.term_grace_s < tenant.eviction.config.term_grace_s:
            tenant.eviction.config = config
        return self.go_on(tenant, now_s)

    def go_on(self, tenant: Tenant, now_s: float) -> bool:
        """Take the steps that are due. Whether it has gone."""
        assert tenant.eviction is not None
        while True:
            exited = self._tenants.over(tenant)
            step = tenant.eviction.next(now_s, exited=exited, client_gone=tenant.client_gone)
            if step.action is None:
                return step.done
            self._journal.tell_job(tenant, str(step.action))
            self._carry_out(tenant, step.action)

    def _carry_out(self, tenant: Tenant, action: Action) -> None:
        launcher = self._tenants.launcher
        match action:
            case Action.FREEZE:
                for gpu in tenant.spec.gpus:
                    tenant.publish(GpuOrder(), gpu)  # one that is to leave is told to freeze
            case Action.SIGTERM:
                self._tenants.ask_to_leave(tenant)
            case Action.TERMINATE_CLIENT:
                tenant.client_gone = None
                mps = self._seats.mps_of(tenant.spec)

                def gone(done: Future[bool]) -> None:
                    tenant.client_gone = done.exception() is None and done.result()

                self._workers.do(lambda: _terminate(tenant, launcher, mps), gone)
            case Action.SIGKILL:
                self._workers.do(lambda: launcher.kill(*tenant.key), lambda done: None)
            case Action.CALL_OPERATOR:
                pass  # it was told as an event


def _terminate(tenant: Tenant, launcher: Launcher, mps: MpsDaemon | None) -> bool:
    """Have MPS take its processes off the GPU; True also where none of them is a client."""
    if mps is not None:
        for process in launcher.processes(*tenant.key):
            mps.terminate(process.pid)
    return True

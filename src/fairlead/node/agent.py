"""The node agent: guards the GPUs of this machine and the services on them.

Ten times a second it reads clock and utilisation, listens to the services, updates the launch rate of every GPU and
publishes it to the offline jobs, which is also the heartbeat that their shims wait for. Once a second it looks around:
the guard's state, joules per job, MPS, faults, jobs that have ended. What may take long (MPS commands, kills) is done
by workers, so that the heartbeat never waits for them.

The decisions are elsewhere and pure: `keeper` (rates and states), `mending` (MPS), the guard's `Eviction` (how a job
leaves). Here they are carried out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.node import survey
from fairlead.node.energy import Energy
from fairlead.node.keeper import GpuKeeper
from fairlead.node.latency import SocketSource, Source
from fairlead.node.launcher import Launcher
from fairlead.node.mending import Mending, MendingConfig
from fairlead.node.meter import Meter
from fairlead.node.mps import CONTROL, MpsDaemon
from fairlead.node.page import GpuOrder
from fairlead.node.records import write_json
from fairlead.node.shares import shares, with_shares
from fairlead.node.spec import JobSpec, Restart
from fairlead.node.survey import Survey
from fairlead.node.tenants import Seat, Tenant, Tenants, saved_guards
from fairlead.node.workers import Workers
from fairlead.policy.guarding import Action, Backoff, Eviction, GuardConfig, Remedy


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, for logs."""

    at_s: float
    gpu: str
    what: str
    """One kebab-case word."""
    job_id: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Its numbers; those of the guard are the guard's own."""

    guard: GuardConfig = field(default_factory=GuardConfig)
    mending: MendingConfig = field(default_factory=MendingConfig)
    uses_mps: bool = True
    mps_binary: str = CONTROL
    mps_timeout_s: float = 5.0


class Agent:
    """One machine's. `folder` keeps what survives a restart; a short path, since sockets are made in it.

    Its calls may come from any thread.
    """

    def __init__(
        self,
        folder: Path,
        meter: Meter,
        *,
        library: Path | None = None,
        sources: Sequence[Source] = (),
        config: AgentConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.config = config or AgentConfig()
        self.events: list[Event] = []
        self.energy: dict[tuple[str, int], Energy] = {}
        """Of attempts that are over."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._folder, self._meter, self._clock, self._on_event = folder, meter, clock, on_event
        self._tenants = Tenants(folder, Launcher(folder / "jobs"), library)
        self._sources = [SocketSource(self._tenants.socket, clock), *sources]
        self._backoff = Backoff(self.config.guard.eviction)
        self._workers = Workers(8)
        self._looked_s = float("-inf")
        self._lock = threading.RLock()
        saved = saved_guards(folder / "guards.json")
        self._seats = {info.uuid: self._seat(info.uuid, saved.get(info.uuid)) for info in meter.gpus}
        for tenant in self._tenants.adopt():
            self._join(tenant, "adopted")

    # ---- what others ask of it ----

    def start(self, spec: JobSpec, *, even_if_not_healthy: bool = False) -> Tenant:
        """Run a job. An offline one is refused by a GPU that is not Healthy, unless told otherwise."""
        with self._lock:
            return self._start_new(spec, even_if_not_healthy)

    def _start_new(self, spec: JobSpec, even_if_not_healthy: bool) -> Tenant:
        seat = self._of(spec.gpu)
        if spec.job_id in seat.tenants:
            raise InputError(f"job {spec.job_id} is on {spec.gpu} already")
        if not spec.is_service and not even_if_not_healthy and not seat.keeper.guard.accepts_offline:
            raise RunError(f"{spec.gpu} is {seat.keeper.guard.state} and takes no offline job")
        return self._start(seat, spec, self._tenants.next_attempt(spec.job_id))

    def evict(self, job_id: str, reason: str) -> None:
        """Make a job leave in the safe order; its `restart` says whether it comes back."""
        with self._lock:
            self._leave(*self._find(job_id), reason)

    def stop(self, job_id: str) -> None:
        """Make a job leave for good, in the same order."""
        with self._lock:
            seat, tenant = self._find(job_id)
            tenant.is_asked_to_go = True
            self._leave(seat, tenant, "asked-for")

    def seat(self, uuid: str) -> Seat:
        """What is known of a GPU; to look at, not to change."""
        return self._of(uuid)

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop. Jobs go on; without a heartbeat their shims fall back to the floor rate."""
        period_s = self.config.guard.rate.period_s
        due_s = self._clock()
        while not stopping.is_set():
            try:
                self.tick()
            except Exception as error:  # whatever it is: a service without an agent is worse
                self._tell_of(Event(self._clock(), "", "agent-error", about=f"{type(error).__name__}: {error}"))
            due_s = max(due_s + period_s, self._clock())  # what was late is not caught up on
            stopping.wait(max(due_s - self._clock(), 0.0))

    def close(self) -> None:
        """Let go of everything but the jobs."""
        self._workers.close()
        for source in self._sources:
            source.close()
        self._meter.close()

    # ---- the loop ----

    def tick(self) -> None:
        """One period."""
        with self._lock:
            self._tick()

    def _tick(self) -> None:
        now_s = self._clock()
        is_full = now_s - self._looked_s >= self.config.guard.sample_s
        self._workers.settle()
        for report in (report for source in self._sources for report in source.poll()):
            for seat in self._seats.values():
                seat.keeper.report(report)
        for sample in self._meter.read(brief=not is_full):
            seat = self._seats[sample.uuid]
            order = seat.keeper.period(sample, now_s)
            seat.xids += sample.xids or ()
            if is_full:
                seat.sample = sample
            for tenant in seat.tenants.values():
                tenant.publish(order)
        for seat in self._seats.values():
            for tenant in list(seat.tenants.values()):
                if tenant.eviction is not None:
                    self._step(seat, tenant, now_s)
        if is_full:
            self._looked_s = now_s
            for seat in self._seats.values():
                self._look(seat)

    def _look(self, seat: Seat) -> None:
        if seat.is_mending or seat.surveyed_s is not None:
            return
        seat.surveyed_s = self._clock()
        tenants, launcher = list(seat.tenants.values()), self._tenants.launcher

        def surveyed(done: Future[Survey]) -> None:
            seat.surveyed_s = None  # whatever came of it, there will be another one
            self._surveyed(seat, done.result())

        self._workers.do(lambda: survey.take(tenants, launcher, seat.mps), surveyed)

    def _surveyed(self, seat: Seat, found: Survey) -> None:
        now_s = self._clock()
        if seat.is_mending:
            return
        self._account(seat, found, now_s)
        for fault in seat.keeper.faults(seat.xids, found.lines):
            self._tell(seat, "fault", about=f"{fault.remedy}: {fault.what}")
            if fault.remedy is not Remedy.DISABLE:
                seat.mending.suspect(fault.what, now_s)
        seat.xids.clear()
        reason = None if found.mps is None else seat.mending.look(found.mps, found.pids, now_s)
        for tenant in list(seat.tenants.values()):
            if self._tenants.over(tenant):
                reason = self._ended(seat, tenant, now_s) or reason
        if reason is not None:
            self._mend(seat, reason)
        if seat.keeper.guard.must_evict:
            for tenant in seat.tenants.values():
                if not tenant.spec.is_service:
                    self._leave(seat, tenant, str(seat.keeper.guard.state))
        self._start_waiting(seat, now_s)

    def _account(self, seat: Seat, found: Survey, now_s: float) -> None:
        """Who used what since the survey before: for the guard, and in joules."""
        sample = seat.sample
        if sample is None:
            return
        charged = {}
        passed_s, seat.accounted_s = now_s - seat.accounted_s, now_s
        for name, tenant in seat.tenants.items():
            tenant.pids = found.pids.get(name, tenant.pids)
            before, after = tenant.charged_s, found.charged_s.get(name)
            tenant.charged_s = after
            if before is not None and after is not None:
                charged[name] = max(after - before, 0.0) / passed_s
        jobs = {name: tenant.pids for name, tenant in seat.tenants.items()}
        known = shares(sample, jobs, charged)
        for change in seat.keeper.second(sample, now_s, known):
            self._tell(seat, "state", about=f"{change.before} to {change.after}: {change.reason}")
            self._save_guards()
        seat.energy.advance(with_shares(sample, jobs, known), jobs)

    # ---- leaving ----

    def _leave(self, seat: Seat, tenant: Tenant, reason: str) -> None:
        if tenant.eviction is None:
            tenant.eviction, tenant.reason = Eviction(self.config.guard.eviction), reason
            self._tell(seat, "evicting", tenant, reason)
            self._step(seat, tenant, self._clock())

    def _step(self, seat: Seat, tenant: Tenant, now_s: float) -> None:
        assert tenant.eviction is not None
        step = tenant.eviction.next(now_s, exited=self._tenants.over(tenant), client_gone=tenant.client_gone)
        if step.done:
            self._ended(seat, tenant, now_s)
        elif step.action is not None:
            self._tell(seat, str(step.action), tenant)
            self._carry_out(seat, tenant, step.action)

    def _carry_out(self, seat: Seat, tenant: Tenant, action: Action) -> None:
        launcher = self._tenants.launcher
        match action:
            case Action.FREEZE:
                tenant.publish(GpuOrder())  # one that is to leave is told to freeze
            case Action.SIGTERM:
                launcher.request_stop(*tenant.key)
            case Action.TERMINATE_CLIENT:
                tenant.client_gone = None
                mps = seat.mps if tenant.spec.uses_mps else None

                def gone(done: Future[bool]) -> None:
                    tenant.client_gone = done.exception() is None and done.result()

                self._workers.do(lambda: _terminate(tenant, launcher, mps), gone)
            case Action.SIGKILL:
                self._workers.do(lambda: launcher.kill(*tenant.key), lambda done: None)
            case Action.CALL_OPERATOR:
                pass  # it was told as an event

    def _ended(self, seat: Seat, tenant: Tenant, now_s: float) -> str | None:
        """No process of it is left. Gives why MPS must be restarted, if it must."""
        name, spec = tenant.spec.job_id, tenant.spec
        if seat.tenants.pop(name, None) is None:
            return None
        status = self._tenants.launcher.status(*tenant.key)
        self._tell(seat, "ended", tenant, f"{status.reason} {status.exit_code}")
        self.energy[tenant.key] = seat.energy.forget(name)
        seat.keeper.leave(name)
        self._tenants.forget(tenant)
        if tenant.is_asked_to_go:
            seat.mending.forget(name)
            return None
        reason = None
        if spec.is_service and spec.uses_mps and tenant.eviction is None:
            reason = seat.mending.ended(name, now_s)
        if spec.restart is Restart.ALWAYS or (spec.restart is Restart.ON_FAULT and not status.has_succeeded):
            seat.waiting[name] = (spec, tenant.attempt + 1)
            if not spec.is_service:
                self._backoff.evicted(name, now_s)
        return reason

    # ---- starting ----

    def _start(self, seat: Seat, spec: JobSpec, attempt: int) -> Tenant:
        tenant = self._tenants.start(seat, spec, attempt)
        self._join(tenant, "started")
        return tenant

    def _join(self, tenant: Tenant, what: str) -> None:
        seat = self._seats.get(tenant.spec.gpu)
        if seat is None:
            return  # of a GPU that is no longer here
        seat.tenants[tenant.spec.job_id] = tenant
        seat.keeper.join(tenant.spec)
        if tenant.spec.is_service and tenant.spec.uses_mps and seat.mps is not None:
            seat.mending.started(tenant.spec.job_id, self._clock())
        self._tell(seat, what, tenant)

    def _start_waiting(self, seat: Seat, now_s: float) -> None:
        if seat.is_mending:
            return
        for name, (spec, attempt) in list(seat.waiting.items()):
            guard = seat.keeper.guard
            if spec.is_service or (guard.accepts_offline and now_s >= self._backoff.ready_s(name)):
                del seat.waiting[name]
                try:
                    self._start(seat, spec, attempt)
                except (FairleadError, OSError) as error:
                    self._tell(seat, "start-failed", about=f"{name}: {error}")
                    seat.waiting[name] = (spec, attempt + 1)

    # ---- MPS ----

    def _mend(self, seat: Seat, reason: str) -> None:
        """End every client, restart the daemon, start the services again."""
        if seat.mps is None or seat.is_mending:
            return
        seat.is_mending = True
        now_s, mps, launcher = self._clock(), seat.mps, self._tenants.launcher
        self._tell(seat, "mps-restart", about=reason)
        seat.keeper.guard.mps_restart(now_s, "begun")
        clients = [tenant for tenant in seat.tenants.values() if tenant.spec.uses_mps]

        def restart() -> None:
            # Their context is broken already, so there is no order to keep; those that hang would hold the server.
            for tenant in clients:
                launcher.kill(*tenant.key)
            mps.restart()

        def restarted(done: Future[None]) -> None:
            later_s, seat.is_mending = self._clock(), False
            error = done.exception()
            seat.keeper.guard.mps_restart(later_s, "done" if error is None else "failed")
            self._tell(seat, "mps-restarted" if error is None else "mps-restart-failed", about=str(error or ""))
            self._save_guards()
            for tenant in clients:
                if self._tenants.over(tenant):
                    self._ended(seat, tenant, later_s)
            if error is None:
                self._start_waiting(seat, later_s)
            elif not seat.keeper.guard.must_evict:
                self._mend(seat, f"again: {reason}")

        self._workers.do(restart, restarted)

    # ---- small things ----

    def _seat(self, uuid: str, saved: dict[str, Any] | None) -> Seat:
        info = next(one for one in self._meter.gpus if one.uuid == uuid)
        c = self.config
        mps = MpsDaemon(uuid, self._folder / "mps", c.mps_binary, c.mps_timeout_s) if c.uses_mps else None
        return Seat(GpuKeeper(info, c.guard, self._clock(), saved), mps, Mending(c.mending))

    def _of(self, uuid: str) -> Seat:
        if uuid not in self._seats:
            raise InputError(f"no GPU {uuid} on this machine", hint=f"there are {', '.join(self._seats)}")
        return self._seats[uuid]

    def _find(self, job_id: str) -> tuple[Seat, Tenant]:
        for seat in self._seats.values():
            if job_id in seat.tenants:
                return seat, seat.tenants[job_id]
        raise InputError(f"job {job_id} is not on this machine")

    def _save_guards(self) -> None:
        saved = {uuid: seat.keeper.guard.to_dict() for uuid, seat in self._seats.items()}
        write_json(str(self._folder / "guards.json"), saved)

    def _tell(self, seat: Seat, what: str, tenant: Tenant | None = None, about: str = "") -> None:
        self._tell_of(Event(self._clock(), seat.uuid, what, "" if tenant is None else tenant.spec.job_id, about))

    def _tell_of(self, event: Event) -> None:
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)


def _terminate(tenant: Tenant, launcher: Launcher, mps: MpsDaemon | None) -> bool:
    """Have MPS take its processes off the GPU; True also where none of them is a client."""
    if mps is not None:
        for process in launcher.processes(*tenant.key):
            mps.terminate(process.pid)
    return True

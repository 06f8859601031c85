"""The node agent: guards the GPUs of this machine and the services on them.

Where a service has a neighbour it reads clock and utilisation ten times a second, listens to the services, updates the
launch rate of every GPU and publishes it to the offline jobs, which is also the heartbeat that their shims wait for.
Once a second where jobs run, and whenever one ends, it looks around: the guard's state, joules per job, MPS, faults.
What may take long (MPS commands, kills) is done by workers, so that the heartbeat never waits for them.

The decisions are elsewhere and pure: `keeper` (rates and states), `mending` (MPS), the guard's `Eviction` (how a job
leaves). Here they are carried out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.node import accounts, survey
from fairlead.node.comebacks import Comebacks
from fairlead.node.ends import Ends
from fairlead.node.energy import Energy
from fairlead.node.journal import Event, Journal
from fairlead.node.latency import SocketSource, Source
from fairlead.node.launcher import Launcher
from fairlead.node.leaving import Leaving
from fairlead.node.mending import MendingConfig
from fairlead.node.meter import Meter
from fairlead.node.mps import CONTROL, MpsDaemon
from fairlead.node.seats import Seat, Seats
from fairlead.node.spec import JobSpec
from fairlead.node.survey import Survey
from fairlead.node.tenants import Tenant, Tenants
from fairlead.node.workers import Workers
from fairlead.policy.guarding import GuardConfig, Remedy, State

_IDLE_FRAC = 0.6
"""Of the longest time between two samples that is no gap to the guard."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Its numbers; those of the guard are the guard's own."""

    guard: GuardConfig = field(default_factory=GuardConfig)
    mending: MendingConfig = field(default_factory=MendingConfig)
    uses_mps: bool = True
    mps_binary: str = CONTROL
    mps_timeout_s: float = 5.0
    failing_s: float = 60.0
    """A service that ends by itself so soon after its start has failed to come up,"""
    most_failures: int = 5
    """and after so many failures in a row it is not started again."""


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
        self.energy: dict[tuple[str, int], Energy] = {}
        """Of attempts that are over."""
        self.lock = threading.Condition()
        """Held while anything changes; hold it to look at several things at once. Notified with every event."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._folder, self._meter, self._clock = folder, meter, clock
        self._journal = Journal(self.lock, clock, on_event)
        self._tenants = Tenants(folder, Launcher(folder / "jobs"), library)
        self._sources = [SocketSource(self._tenants.socket, clock), *sources]
        c = self.config
        self._comebacks = Comebacks(c.guard.eviction, c.failing_s, c.most_failures)
        self._ends = Ends()
        self._workers = Workers(8, self._ends.call)
        self._looked_s = float("-inf")
        self._jobs: dict[str, Tenant] = {}
        self._seats = Seats(folder, meter, c.guard, c.mending, self._daemon, clock())
        self._leaving = Leaving(c.guard.eviction, self._tenants, self._seats, self._workers, self._journal)
        for tenant in self._tenants.adopt():
            self._join(tenant, "adopted")

    # ---- what others ask of it ----

    @property
    def events(self) -> Sequence[Event]:
        """What it has told, the oldest first; those of long ago are forgotten."""
        return self._journal.events

    @property
    def launcher(self) -> Launcher:
        """What it starts jobs with; to look at."""
        return self._tenants.launcher

    def start(self, spec: JobSpec, *, even_if_not_healthy: bool = False) -> Tenant:
        """Run a job. An offline one is refused by a GPU that is not Healthy, unless told otherwise."""
        with self.lock:
            for seat in self._seats.of(spec):
                guard = seat.keeper.guard
                if not spec.is_service and not even_if_not_healthy and not guard.accepts_offline:
                    raise RunError(f"{seat.uuid} is {guard.state} and takes no offline job")
            if spec.job_id in self._jobs:
                raise InputError(f"job {spec.job_id} is on {', '.join(spec.gpus)} already")
            return self._start(spec, self._tenants.next_attempt(spec.job_id))

    def start_once(self, spec: JobSpec) -> None:
        """Run a job, unless one of this name was ever started here; whether its GPUs are healthy is not asked."""
        with self.lock:
            self._seats.of(spec)
            if not self._tenants.was_started(spec.job_id):
                self._start(spec, 0)
            elif not self.holds(spec.job_id) and not self._tenants.over(Tenant(spec, 0)):
                self._join(Tenant(spec, 0), "adopted")  # it came up after all, when we had given up waiting

    def holds(self, job_id: str) -> bool:
        """Whether it runs here, or will again without anybody's doing."""
        with self.lock:
            return job_id in self._jobs or job_id in self._comebacks

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here, nor will again without anybody's doing."""
        with self.lock:
            return not self._jobs and not self._comebacks

    def energy_so_far(self, job_id: str) -> Energy:
        """What a job that runs has used on all of its GPUs."""
        with self.lock:
            found = [seat.energy.jobs[job_id] for seat in self._seats if job_id in seat.energy.jobs]
            return sum(found, Energy())

    def was_started(self, job_id: str) -> bool:
        """Whether a job of this name was ever started here."""
        return self._tenants.was_started(job_id)

    def evict(self, job_id: str, reason: str) -> None:
        """Make a job leave in the safe order; its `restart` says whether it comes back."""
        with self.lock:
            self._leave(self._find(job_id), reason)

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        """Make a job leave for good, in the same order; SIGKILL comes so long after SIGTERM, if it must."""
        with self.lock:
            if self._comebacks.forget(job_id):
                return
            tenant = self._find(job_id)
            tenant.is_asked_to_go = True
            self._leave(tenant, "asked-for", grace_s)

    def seat(self, uuid: str) -> Seat:
        """What is known of a GPU; to look at, not to change."""
        return self._seats[uuid]

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Of all GPUs, by index."""
        return tuple(self._seats)

    def run(self, stopping: threading.Event, then: Callable[[], None] = lambda: None) -> None:
        """Until told to stop; `then` is called after every period. `wake` makes it notice at once.

        Jobs go on afterwards; without a heartbeat their shims fall back to the floor rate.
        """
        due_s = self._clock()
        while not stopping.is_set():
            try:
                self.tick()
                then()
            except Exception as error:  # whatever it is: a service without an agent is worse
                self._journal.tell("agent-error", f"{type(error).__name__}: {error}")
            now_s, period_s = self._clock(), self._period_s()
            # What was late is not caught up on, and who was woken early is not late the next time.
            due_s = min(max(due_s + period_s, now_s), now_s + period_s)
            if self._ends.wait(due_s - now_s):
                self._looked_s = float("-inf")

    def wake(self) -> None:
        """End the wait between two periods."""
        self._ends.call()

    def close(self) -> None:
        """Let go of everything but the jobs."""
        self._workers.close()
        for source in self._sources:
            source.close()
        for tenant in self._jobs.values():
            tenant.let_go()
        self._meter.close()
        self._ends.close()

    # ---- the loop ----

    def tick(self) -> None:
        """One period."""
        with self.lock:
            self._tick()

    def _period_s(self) -> float:
        """As often as the launch rate needs it where there is one to be controlled, else as often as the guard.

        Where nothing runs, just often enough for the guard not to lose sight: a reading costs 5 to 7 ms for each GPU.
        """
        guard = self.config.guard
        with self.lock:
            is_leaving = any(tenant.eviction is not None for tenant in self._jobs.values())
            is_beside = any(seat.keeper.has_service and len(seat.tenants) > 1 for seat in self._seats)
            if is_leaving or is_beside:
                return guard.rate.period_s
            return max(_IDLE_FRAC * guard.gap_s if self.is_idle else guard.sample_s, guard.rate.period_s)

    def _tick(self) -> None:
        now_s = self._clock()
        guard = self.config.guard
        is_full = now_s - self._looked_s >= guard.sample_s - 0.5 * guard.rate.period_s
        self._workers.settle()
        for report in (report for source in self._sources for report in source.poll()):
            for seat in self._seats:
                seat.keeper.report(report)
        for sample in self._meter.read(processes=bool(self._jobs), brief=not is_full):
            seat = self._seats[sample.uuid]
            order = seat.keeper.period(sample, now_s)
            seat.xids += sample.xids or ()
            if is_full:
                seat.sample = sample
            for tenant in seat.tenants.values():
                tenant.publish(order, seat.uuid)
        for tenant in list(self._jobs.values()):
            if tenant.eviction is not None and self._leaving.go_on(tenant, now_s):
                self._looked_s = float("-inf")  # the next look counts its energy and deals with its end
        if is_full:
            self._looked_s = now_s
            for seat in self._seats:
                self._look(seat)

    def _look(self, seat: Seat) -> None:
        if seat.is_mending or seat.surveyed_s is not None:
            return
        seat.surveyed_s = self._clock()
        tenants, launcher = list(seat.tenants.values()), self._tenants.launcher

        def surveyed(done: Future[Survey]) -> None:
            seat.surveyed_s = None  # whatever came of it, there will be another one
            self._surveyed(seat, done.result())

        if survey.is_quick(tenants, seat.mps):
            seat.surveyed_s = None
            self._surveyed(seat, Survey())
        else:
            self._workers.do(lambda: survey.take(tenants, launcher, seat.mps), surveyed)

    def _surveyed(self, seat: Seat, found: Survey) -> None:
        now_s = self._clock()
        if seat.is_mending:
            return
        for change in accounts.count(seat, found, now_s):
            self._journal.tell_gpu(seat, "state", about=f"{change.before} to {change.after}: {change.reason}")
            self._seats.save_guards()
        for fault in seat.keeper.faults(seat.xids, found.lines):
            self._journal.tell_gpu(seat, "fault", about=f"{fault.remedy}: {fault.what}")
            if fault.remedy is not Remedy.DISABLE:
                seat.mending.suspect(fault.what, now_s)
        seat.xids.clear()
        reason = None if found.mps is None else seat.mending.look(found.mps, found.pids, now_s)
        for tenant in list(seat.tenants.values()):
            # One on several GPUs is looked at with the last of them, so that all have counted its energy before.
            if self._seats.under(tenant)[-1] is seat and self._tenants.over(tenant):
                reason = self._ended(tenant, now_s) or reason
        if reason is not None:
            self._mend(seat, reason)
        guard = seat.keeper.guard
        if guard.must_evict and (seat.keeper.has_service or guard.state is State.DISABLED):
            for tenant in seat.tenants.values():
                if not tenant.spec.is_service:
                    self._leave(tenant, str(guard.state))
        self._start_waiting(now_s)

    # ---- leaving ----

    def _leave(self, tenant: Tenant, reason: str, grace_s: float | None = None) -> None:
        if self._leaving.begin(tenant, reason, self._clock(), grace_s):
            self._looked_s = float("-inf")
        self._ends.call()

    def _ended(self, tenant: Tenant, now_s: float) -> str | None:
        """No process of it is left. Gives why MPS must be restarted, if it must."""
        name, spec = tenant.spec.job_id, tenant.spec
        if self._jobs.pop(name, None) is None:
            return None
        status = self._tenants.launcher.status(*tenant.key)
        self.energy[tenant.key] = self._seats.leave(tenant)
        self._ends.drop(tenant.key)
        self._tenants.forget(tenant)
        self._journal.tell_job(tenant, "ended", f"{status.reason} {status.exit_code}")
        seat = self._seats.under(tenant)[0]
        if tenant.is_asked_to_go:
            seat.mending.forget(name)
            return None
        reason = None
        if spec.is_service and self._seats.mps_of(spec) is not None and tenant.eviction is None:
            reason = seat.mending.ended(name, now_s)
        by_itself = reason is None and tenant.eviction is None
        if not self._comebacks.ended(tenant, status, now_s, by_itself=by_itself):
            self._journal.tell_job(tenant, "given-up", f"{self.config.most_failures} failures in a row")
        return reason

    # ---- starting ----

    def _start(self, spec: JobSpec, attempt: int) -> Tenant:
        tenant = self._tenants.start(self._seats.mps_of(spec), spec, attempt)
        self._join(tenant, "started")
        self._ends.call()
        return tenant

    def _join(self, tenant: Tenant, what: str) -> None:
        seats = self._seats.under(tenant)
        if not seats:
            return  # of GPUs that are no longer here
        name, spec, launcher = tenant.spec.job_id, tenant.spec, self._tenants.launcher
        self._jobs[name] = tenant
        tenant.pid = launcher.status(*tenant.key).pid
        tenant.pids = set() if tenant.pid is None else {tenant.pid}
        accounts.charge_so_far(self._seats, self._meter.read())  # what was used before it came is not its own
        self._seats.join(tenant)
        if spec.is_service and self._seats.mps_of(spec) is not None:
            seats[0].mending.started(name, self._clock())
        descriptor = launcher.open_watch(*tenant.key)
        if descriptor is None:
            self._looked_s = float("-inf")  # it has ended already
        else:
            self._ends.add(tenant.key, descriptor)
        self._journal.tell_job(tenant, what)

    def _start_waiting(self, now_s: float) -> None:
        for spec, attempt in self._comebacks.ready(now_s, self._accepts):
            try:
                self._start(spec, attempt)
            except (FairleadError, OSError) as error:
                self._journal.tell_gpu(self._seats[spec.gpus[0]], "start-failed", about=f"{spec.job_id}: {error}")
                self._comebacks.wait(spec, attempt + 1)

    def _accepts(self, spec: JobSpec) -> bool:
        """Whether it may be started again now, as far as its GPUs are concerned."""
        seats = self._seats.of(spec)
        is_welcome = spec.is_service or all(seat.keeper.guard.accepts_offline for seat in seats)
        return is_welcome and not any(seat.is_mending for seat in seats)

    # ---- MPS ----

    def _mend(self, seat: Seat, reason: str) -> None:
        """End every client, restart the daemon, start the services again."""
        if seat.mps is None or seat.is_mending:
            return
        seat.is_mending = True
        now_s, mps, launcher = self._clock(), seat.mps, self._tenants.launcher
        self._journal.tell_gpu(seat, "mps-restart", about=reason)
        seat.keeper.guard.mps_restart(now_s, "begun")
        clients = [tenant for tenant in seat.tenants.values() if tenant.spec.is_mps_client]

        def restart() -> None:
            # Their context is broken already, so there is no order to keep; those that hang would hold the server.
            for tenant in clients:
                launcher.kill(*tenant.key)
            mps.restart()

        def restarted(done: Future[None]) -> None:
            later_s, seat.is_mending = self._clock(), False
            error = done.exception()
            seat.keeper.guard.mps_restart(later_s, "done" if error is None else "failed")
            self._journal.tell_gpu(
                seat, "mps-restarted" if error is None else "mps-restart-failed", about=str(error or "")
            )
            self._seats.save_guards()
            for tenant in clients:
                if self._tenants.over(tenant):
                    self._ended(tenant, later_s)
            if error is None:
                self._start_waiting(later_s)
            elif not seat.keeper.guard.must_evict:
                self._mend(seat, f"again: {reason}")

        self._workers.do(restart, restarted)

    # ---- small things ----

    def _daemon(self, uuid: str) -> MpsDaemon | None:
        c = self.config
        if not c.uses_mps:
            return None
        # Under root jobs run as their submitters, and a server of one user would keep the others waiting.
        is_root = os.geteuid() == 0
        return MpsDaemon(uuid, self._folder / "mps", c.mps_binary, c.mps_timeout_s, multiuser=is_root)

    def _find(self, job_id: str) -> Tenant:
        if job_id not in self._jobs:
            raise InputError(f"job {job_id} is not on this machine")
        return self._jobs[job_id]

"""The jobs on this machine's GPUs, as the agent holds them: with their pages, and across its own restarts."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import FairleadError, InputError
from fairlead.job import place
from fairlead.node import shim
from fairlead.node.guard.busy_page import BusyPage
from fairlead.node.guard.control_page import ControlPage, GpuOrder, UsagePage
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.json_files import read_json, write_json
from fairlead.node.mps.daemon import MpsDaemon
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchState
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.untrusted_files import give_to
from fairlead.node.progress import Reports
from fairlead.policy.guarding import Eviction

SERVICE_PRIORITY, OFFLINE_PRIORITY = 0, 1
"""Of MPS: the service's kernels go first where the GPU has a choice. Only a hint, and worth half of the harm."""
_MIB = 1024 * 1024

_EXECUTE_S = 2.0
"""So long a start waits for the command to be executed; a job whose folder does not answer goes on starting alone."""


@dataclass(slots=True)
class RunningJob:
    """One launch of an attempt on its GPUs."""

    order: Order
    launch: LaunchId
    start_quota_mib: float | None = None
    """Of device memory on each GPU from its start on, for an offline job; None: none yet, it began alone."""
    page: ControlPage | None = None
    usage: UsagePage | None = None
    eviction: Eviction | None = None
    reason: str = ""
    """Of the eviction."""
    client_gone: bool | None = None
    is_stopped: bool = False
    """By the controller, so that no restart follows; else an eviction is the guard's."""
    grace_s: float | None = None
    """What it gets then; None: its own."""
    charged_s: float | None = None
    """GPU time that its shim had charged at the last survey."""
    pids: set[int] = field(default_factory=set)
    pid: int | None = None
    """Of the main process."""
    peak_mib: dict[str, float] = field(default_factory=dict)
    """The most memory that it was seen to hold, by GPU."""
    looks_over: dict[str, int] = field(default_factory=dict)
    """How often in a row it was found over its quota, by GPU."""

    @property
    def id(self) -> AttemptId:
        """The attempt that it is a launch of."""
        return self.order.id

    def publish(self, order: GpuOrder, gpu: str) -> None:
        """Tell its shim; a job that is stopped or evicted stays frozen."""
        if self.page is not None:
            frozen = GpuOrder(rate_frac=0.0, frozen=True)
            self.page.write(order if self.eviction is None else frozen, self._record(gpu))

    def set_quota(self, quota_mib: float | None, gpu: str) -> None:
        """Tell its shim how much memory it may hold from now on; None lifts it."""
        if self.page is not None:
            self.page.set_quota(0 if quota_mib is None else int(quota_mib * _MIB), self._record(gpu))

    def quota_mib(self, gpu: str) -> float | None:
        """What it may hold on a GPU now; None: as much as there is."""
        told = 0 if self.page is None else self.page.quota_bytes(self._record(gpu))
        return told / _MIB if told else self.start_quota_mib

    def _record(self, gpu: str) -> str | None:
        """A page for one GPU has one record, which stands for every GPU."""
        return gpu if len(self.order.gpus) > 1 else None

    def let_go(self) -> None:
        """It goes on without us; its page stays."""
        if self.page is not None:
            self.page.close()
            self.page = None

    def close(self) -> None:
        """Its processes are gone: so are its pages."""
        if self.page is not None:
            self.page.close()
            for path in (self.page.path, None if self.usage is None else self.usage.path):
                if path is not None:
                    path.unlink(missing_ok=True)
            self.page = None


class RunningJobs:
    """Starts jobs with everything around them, and finds them again."""

    def __init__(self, folder: Path, launcher: Launcher, library: Path | None) -> None:
        self.launcher = launcher
        self.library = library
        self.socket = folder / "latency.sock"
        self._reports = Reports(folder)
        self._pages = folder / "pages"
        self._unsettled = folder / "unsettled"
        """A file for each launch from before its start until its end was dealt with."""
        for made in (self._pages, self._unsettled):
            made.mkdir(parents=True, exist_ok=True, mode=0o755)

    def start(self, mps: MpsDaemon | None, running_job: RunningJob, most_mib: float | None = None) -> None:
        """Run it; the same launch never runs twice. `mps` is that of its GPU. May take long, and needs no lock.

        MPS holds it to `most_mib`. That is fixed for its life, and catches what gets round the shim, whose quota is a
        little lower.
        """
        order, launch = running_job.order, running_job.launch
        env = {place.REPORT: str(self._reports.path(order.id)), place.STOP: str(self._reports.stop_path(order.id))}
        if order.is_service:
            env[place.LATENCY] = str(self.socket)
            if self.library is not None and order.shared:
                busy = BusyPage.create(self.busy_path(order), order.gpus)
                give_to(busy.path, order.user)
                env |= shim.observing_environment(self.library, busy.path)
        elif self.library is not None and order.shared:
            env |= self._watch_over(running_job, self.library)
        if order.is_mps_client and mps is not None:
            mps.start()
            env |= mps.client_env(
                share_pct=100.0 * order.sm_share if order.sm_share < 1.0 else None,
                memory_limit_mib=most_mib,
                priority=SERVICE_PRIORITY if order.is_service else OFFLINE_PRIORITY,
            )
        quota_mib = running_job.start_quota_mib
        write_json(str(self._path(self._unsettled, launch, "json")), {"start_quota_mib": quota_mib})
        self.launcher.start(launch, order, env, _EXECUTE_S)

    def was_started(self, attempt: AttemptId) -> bool:
        """Whether it has ever run, or tried to."""
        return self._has_come_up(LaunchId(attempt))

    def _has_come_up(self, launch: LaunchId) -> bool:
        try:
            return self.launcher.status(launch).state is not LaunchState.PREPARED
        except InputError:
            return False

    def request_stop(self, running_job: RunningJob) -> None:
        """SIGTERM, and the file that says the same."""
        self.launcher.request_stop(running_job.launch, self._reports.stop_path(running_job.id))

    def adopt(self) -> list[RunningJob]:
        """After a restart of the agent: what still runs, and what has ended unseen.

        Jobs that are only kept are not looked at.
        """
        found = []
        for path in sorted(self._unsettled.glob("*.json")):
            try:
                launch = LaunchId.parse(path.stem)
            except InputError:
                continue
            if not self._has_come_up(launch):
                path.unlink()  # it was never started
                continue
            order, saved = self.launcher.order(launch), read_json(str(path)) or {}
            if order is None:
                continue
            running_job = RunningJob(order, launch, saved.get("start_quota_mib"))
            page, usage = (self._path(self._pages, launch, kind) for kind in ("page", "usage"))
            with contextlib.suppress(FairleadError):
                running_job.page = ControlPage.open(page)
                running_job.usage = UsagePage(usage)
            found.append(running_job)
        return found

    def over(self, running_job: RunningJob) -> bool:
        """Whether none of its processes is left."""
        return self.launcher.is_over(self.launcher.status(running_job.launch))

    def forget(self, running_job: RunningJob) -> None:
        """It is over, and everybody has been told."""
        running_job.close()
        if running_job.order.is_service and (running_job.is_stopped or not running_job.order.is_restarted):
            # Not before: its neighbours have the page mapped, and its next launch goes on with it.
            self.busy_path(running_job.order).unlink(missing_ok=True)
        self.launcher.settle(running_job.launch)
        self._path(self._unsettled, running_job.launch, "json").unlink(missing_ok=True)

    def next_launch(self, attempt: AttemptId) -> LaunchId:
        """One that was never used."""
        return LaunchId(attempt, len(self.launcher.launches_of(attempt)))

    def busy_path(self, service: Order) -> Path:
        """Where a service tells when it is at work; one page for all launches of an attempt."""
        return self._pages / f"{service.id}.busy"

    def _watch_over(self, running_job: RunningJob, library: Path) -> dict[str, str]:
        order, quota_mib = running_job.order, running_job.start_quota_mib
        page, usage = (self._path(self._pages, running_job.launch, kind) for kind in ("page", "usage"))
        uuids = order.gpus if len(order.gpus) > 1 else ()
        running_job.page, running_job.usage = ControlPage.create(page, uuids), UsagePage.create(usage)
        usage.chmod(0o600)
        give_to(usage, order.user)
        for gpu in order.gpus:
            running_job.set_quota(quota_mib, gpu)
        return shim.environment(
            library, page=page, usage=usage, quota_bytes=None if quota_mib is None else int(quota_mib * _MIB)
        )

    def _path(self, folder: Path, launch: LaunchId, kind: str) -> Path:
        return folder / f"{launch}.{kind}"

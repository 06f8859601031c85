"""The jobs on this machine's GPUs, as the agent holds them: with their pages, and across its own restarts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from fairlead.errors import FairleadError, InputError
from fairlead.node import latency, shim
from fairlead.node.launch import JobState, Launch
from fairlead.node.launcher import Launcher
from fairlead.node.mps import MpsDaemon
from fairlead.node.page import ControlPage, GpuOrder, UsagePage
from fairlead.node.records import read_json, write_json
from fairlead.node.spec import JobSpec
from fairlead.policy.guarding import Eviction

SERVICE_PRIORITY, OFFLINE_PRIORITY = 0, 1
"""Of MPS: the service's kernels go first where the GPU has a choice. Only a hint, and worth half of the harm."""


@dataclass(slots=True)
class Tenant:
    """One attempt of a job on its GPUs."""

    spec: JobSpec
    attempt: int
    page: ControlPage | None = None
    usage: UsagePage | None = None
    eviction: Eviction | None = None
    reason: str = ""
    """Of the eviction."""
    client_gone: bool | None = None
    is_asked_to_go: bool = False
    """For good: by the user or the controller, so that no restart follows."""
    charged_s: float | None = None
    """GPU time that its shim had charged at the last survey."""
    pids: set[int] = field(default_factory=set)
    pid: int | None = None
    """Of the main process."""

    @property
    def key(self) -> tuple[str, int]:
        """Job and attempt."""
        return self.spec.job_id, self.attempt

    def publish(self, order: GpuOrder, gpu: str) -> None:
        """Tell its shim; a job that is to leave stays frozen."""
        if self.page is not None:
            frozen = GpuOrder(rate_frac=0.0, frozen=True)
            # A page for one GPU has one record, which stands for every GPU.
            self.page.write(order if self.eviction is None else frozen, gpu if len(self.spec.gpus) > 1 else None)

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


class Tenants:
    """Starts jobs with everything around them, and finds them again."""

    def __init__(self, folder: Path, launcher: Launcher, library: Path | None) -> None:
        self.launcher = launcher
        self.library = library
        self.socket = folder / "latency.sock"
        self._pages = folder / "pages"
        self._specs = folder / "specs"
        for made in (self._pages, self._specs):
            made.mkdir(parents=True, exist_ok=True, mode=0o755)

    def start(self, mps: MpsDaemon | None, spec: JobSpec, attempt: int) -> Tenant:
        """Run it; the same attempt never runs twice. `mps` is that of its GPU."""
        tenant = Tenant(spec, attempt)
        extra = dict(spec.own_env)
        mps_env: Mapping[str, str] = {}
        if spec.is_service:
            extra[latency.ADDRESS] = str(self.socket)
        elif self.library is not None and spec.is_shared:
            extra |= self._watch_over(tenant, self.library)
        if spec.is_mps_client and mps is not None:
            mps.start()
            mps_env = mps.client_env(
                share_pct=spec.share_pct,
                # Without the shim MPS's own limit is the next best.
                memory_limit_mib=spec.quota_mib if self.library is None else None,
                priority=SERVICE_PRIORITY if spec.is_service else OFFLINE_PRIORITY,
            )
        write_json(str(self._path(self._specs, tenant, "json")), {"spec": spec.to_dict(), "attempt": attempt})
        self.launcher.start(
            Launch(
                spec.job_id, attempt, spec.argv, spec.gpus, spec.cwd, spec.env, mps_env, extra, spec.user, spec.limits
            )
        )  # fmt: skip
        return tenant

    def was_started(self, job_id: str) -> bool:
        """Whether a job of this name has ever run, or tried to."""
        try:
            return self.launcher.status(job_id, 0).state is not JobState.PREPARED
        except InputError:
            return False

    def ask_to_leave(self, tenant: Tenant) -> None:
        """SIGTERM, and the file that says the same."""
        if tenant.spec.stop_file is not None:
            tenant.spec.stop_file.touch(mode=0o644)
        self.launcher.request_stop(*tenant.key)

    def adopt(self) -> list[Tenant]:
        """After a restart of the agent: what still runs, and what has ended unseen."""
        alive = {(s.job_id, s.attempt): s.state for s in self.launcher.adopt()}
        found = []
        for path in sorted(self._specs.glob("*.json")):
            saved = read_json(str(path))
            try:
                assert saved is not None
                tenant = Tenant(JobSpec.from_dict(saved["spec"]), int(saved["attempt"]))
            except (FairleadError, AssertionError, KeyError, ValueError):
                continue
            if alive.get(tenant.key, JobState.PREPARED) is JobState.PREPARED:
                path.unlink()  # it was never started
                continue
            page, usage = (self._path(self._pages, tenant, kind) for kind in ("page", "usage"))
            with contextlib.suppress(FairleadError):
                tenant.page = ControlPage.open(page)
                tenant.usage = UsagePage(usage)
            found.append(tenant)
        return found

    def over(self, tenant: Tenant) -> bool:
        """Whether none of its processes is left."""
        status = self.launcher.status(*tenant.key)
        if status.state is JobState.LOST:
            return not self.launcher.processes(*tenant.key)
        return status.state is JobState.ENDED

    def forget(self, tenant: Tenant) -> None:
        """It is over, and everybody has been told."""
        tenant.close()
        self._path(self._specs, tenant, "json").unlink(missing_ok=True)

    def next_attempt(self, job_id: str) -> int:
        """One that was never used."""
        return 1 + max(self.launcher.attempts(job_id), default=-1)

    def _watch_over(self, tenant: Tenant, library: Path) -> dict[str, str]:
        page, usage = (self._path(self._pages, tenant, kind) for kind in ("page", "usage"))
        uuids = tenant.spec.gpus if len(tenant.spec.gpus) > 1 else ()
        tenant.page, tenant.usage = ControlPage.create(page, uuids), UsagePage.create(usage)
        usage.chmod(0o600)
        give_to(usage, tenant.spec.user)
        quota_mib = tenant.spec.quota_mib
        return shim.environment(
            library, page=page, usage=usage, quota_bytes=None if quota_mib is None else int(quota_mib * 1024 * 1024)
        )

    def _path(self, folder: Path, tenant: Tenant, kind: str) -> Path:
        return folder / f"{quote(tenant.spec.job_id, safe='')}@{tenant.attempt}.{kind}"


def give_to(path: Path, user: str | None) -> None:
    """A file of a job that runs as this user; None is whoever runs the agent."""
    import pwd

    if user is None:
        return
    with contextlib.suppress(KeyError, OSError):
        found = pwd.getpwnam(user)
        os.chown(path, found.pw_uid, found.pw_gid)

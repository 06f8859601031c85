"""What to start, and what became of it."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import InputError
from fairlead.node.fake import FAKE_UUID

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""What a job gets of the agent's own environment, and LC_*. Not the rest: it may hold the agent's secrets."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the host, where cgroup v2 permits; None is no limit."""

    memory_mib: float | None = None
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt to run a job's command on GPUs of this machine."""

    job_id: str
    attempt: int
    argv: tuple[str, ...]
    """Words, never a shell line."""
    gpus: tuple[str, ...] = ()
    """UUIDs; none hides all GPUs."""
    cwd: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=dict)
    """The user's own; the rest comes on top of it."""
    mps_env: Mapping[str, str] = field(default_factory=dict)
    """From `MpsDaemon.client_env`; empty: the driver slices time."""
    extra_env: Mapping[str, str] = field(default_factory=dict)
    """Anything else of ours, such as a preloaded library. Its LD_PRELOAD goes before the user's."""
    user: str | None = None
    """Run as this user, which needs root; default: whoever runs the agent."""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if not self.job_id or self.attempt < 0:
            raise InputError(f"job {self.job_id!r}, attempt {self.attempt}: expected a name and a number from 0 on")
        if not self.argv or not self.argv[0]:
            raise InputError(f"job {self.job_id}: its command is empty")
        words = (*self.argv, str(self.cwd), *self.env, *self.env.values())
        if any("\0" in word for word in words) or any("=" in name or not name for name in self.env):
            raise InputError(f"job {self.job_id}: its command or environment holds what no process can be given")
        if self.mps_env and len(self.gpus) != 1:
            raise InputError(
                f"job {self.job_id}: MPS with {len(self.gpus)} GPUs, but a process can use one daemon, of one GPU",
                hint="start it without MPS, or one process for each GPU",
            )

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Everything the command sees: inherited, the user's, then ours, which nobody can override."""
        chosen = {**inherited, **self.env}
        env = {name: value for name, value in chosen.items() if not name.startswith("CUDA_MPS_")}
        real = [uuid for uuid in self.gpus if not uuid.startswith(FAKE_UUID)]
        env["CUDA_VISIBLE_DEVICES"] = ",".join(real)
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        preload = [where["LD_PRELOAD"] for where in (self.extra_env, env) if where.get("LD_PRELOAD")]
        env["FAIRLEAD_JOB_ID"] = self.job_id
        env["FAIRLEAD_ATTEMPT"] = str(self.attempt)
        env["FAIRLEAD_GPUS"] = ",".join(self.gpus)
        env.update(self.mps_env)
        env.update(self.extra_env)
        if preload:
            env["LD_PRELOAD"] = ":".join(preload)
        return env


class JobState(enum.StrEnum):
    """Where an attempt stands."""

    PREPARED = "prepared"
    """Accepted, and certainly never started."""
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    """Its main process has ended, others of it are being stopped."""
    ENDED = "ended"
    LOST = "lost"
    """Its supervisor was killed: how it ended, or will, is unknown. It may still be running."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One attempt now."""

    job_id: str
    attempt: int
    state: JobState
    folder: Path
    gpus: tuple[str, ...] = ()
    exit_code: int | None = None
    """As shells count: 128 and the signal's number where one ended it; 126, 127 where it could not be started."""
    signal: int | None = None
    reason: str | None = None
    """exited, signalled, command-not-found, no-such-folder, not-permitted, no-such-user, supervisor-lost, ..."""
    detail: str = ""
    pid: int | None = None
    """Of the main process, which leads its group and session."""
    started_at_s: float | None = None
    ended_at_s: float | None = None
    stop_requested: bool = False
    notes: tuple[str, ...] = ()

    @property
    def has_succeeded(self) -> bool:
        """It ended by itself with 0. A lost job never has."""
        return self.state is JobState.ENDED and self.exit_code == 0

    @property
    def stdout(self) -> Path:
        """What it wrote; appended to, without a limit."""
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        """What it complained of."""
        return self.folder / "stderr.log"


def inherited_environment() -> dict[str, str]:
    """What jobs get of this process's environment."""
    return {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith("LC_")}

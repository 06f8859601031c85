"""One launch of an attempt on this machine: what holds for it, and what became of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from fairlead.node.identity import LaunchId


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the host, where cgroup v2 permits; None is no limit."""

    memory_mib: float | None = None
    cpus: float | None = None
    processes: int | None = None
    """And threads."""


@dataclass(frozen=True, slots=True)
class LaunchRules:
    """What holds for every job of a node."""

    output_mib: float = 256.0
    """Kept of each stream of a start; of more, the first so many and the last 64 KiB."""
    reserve_mib: float = 512.0
    """While the disk has less room than this, or than a tenth of a small disk, output is not kept."""
    start_s: float = 60.0
    """What a command may take to be executed; on a file system that hangs it never is."""
    limits: Limits = Limits()


class LaunchState(enum.StrEnum):
    """The states of a launch, from its order to its end."""

    PREPARED = "prepared"
    """Accepted, and certainly never started."""
    STARTING = "starting"
    """Its command is not executed yet: its supervisor is coming up, or its folder is waited for."""
    RUNNING = "running"
    ENDING = "ending"
    """Its main process has ended, others of it are being stopped."""
    ENDED = "ended"
    LOST = "lost"
    """Its supervisor was killed: how it ended, or will, is unknown. It may still be running."""


@dataclass(frozen=True, slots=True)
class LaunchStatus:
    """How a launch stands, by what its supervisor wrote down."""

    id: LaunchId
    state: LaunchState
    folder: Path
    exit_code: int | None = None
    """As shells count: 128 and the signal's number where one ended it; 126, 127 where it could not be started."""
    signal: int | None = None
    reason: str | None = None
    """exited, signalled, command-not-found, no-such-folder, not-permitted, no-such-user, supervisor-lost (it was killed
    with the job, or before it), machine-restarted, ..."""
    detail: str = ""
    pid: int | None = None
    """Of the main process, which leads its group and session."""
    started_at_s: float | None = None
    ended_at_s: float | None = None
    ran_s: float | None = None
    """From its start to its end, by a clock that nobody sets; None where the end was not seen."""
    ended_boot_s: float | None = None
    """When it ended, by the same clock; None where it was not seen, and where the machine has been booted since."""
    was_stopped: bool = False
    """We signalled it before its main process ended, or may have."""
    supervisor_signals: tuple[int, ...] = ()
    """What its supervisor was sent meanwhile: somebody was ending the session, or the machine."""
    is_swept: bool = False
    """Its supervisor has seen the last of its processes end."""
    notes: tuple[str, ...] = ()

    @property
    def has_succeeded(self) -> bool:
        """It ended by itself with 0. A lost job never has."""
        return self.state is LaunchState.ENDED and self.exit_code == 0

    @property
    def stdout(self) -> Path:
        """What it wrote, within bounds; it only grows."""
        return self.folder / "stdout.log"

    @property
    def stderr(self) -> Path:
        """The file with what it wrote to stderr, within the same bounds."""
        return self.folder / "stderr.log"

"""What a node remembers of the attempts that a controller has ordered, across restarts of the agent.

One small file per attempt holds the order and whether it was told to go. How it ended is not written here: the launcher
knows that, and nobody else.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairlead.errors import InputError
from fairlead.node.energy import Energy
from fairlead.node.launch import JobState, JobStatus
from fairlead.node.launcher import Launcher
from fairlead.node.order import Order, report_path
from fairlead.node.progress import ReportFile
from fairlead.node.records import read_json, write_json
from fairlead.node.tenants import give_to

_MOST_LOOKS = 64
"""Mebibytes of reports that are read at the end of an attempt."""


@dataclass(frozen=True, slots=True)
class Farewell:
    """That it was told to go."""

    at_s: float
    """As time of day."""
    grace_s: float | None = None
    evicted: str = ""
    """Why, where it was the guard."""


@dataclass(slots=True)
class Attempt:
    """One that was ordered and is not forgotten yet."""

    order: Order
    report: ReportFile
    farewell: Farewell | None = None
    spent: Energy = field(default_factory=Energy)
    """By launches of it that are over."""
    launches: list[JobStatus] = field(default_factory=list)
    """As last looked at; a service has one more with each restart."""
    is_over: bool = False

    @property
    def name(self) -> str:
        """As the agent calls it."""
        return self.order.name

    def look(self, launcher: Launcher, is_held: bool) -> None:
        """See how it stands: it is over when no launch runs and the agent will not start another one."""
        self.launches = [launcher.status(self.name, number) for number in launcher.attempts(self.name)]
        last = self.launches[-1].state if self.launches else JobState.PREPARED
        self.is_over = not is_held and last in (JobState.ENDED, JobState.LOST)
        if self.is_over:
            for _ in range(_MOST_LOOKS):
                if not self.report.look():
                    break

    @property
    def was_started(self) -> bool:
        """False where the order was written down and nothing came of it, yet."""
        return bool(self.launches) and self.launches[-1].state is not JobState.PREPARED

    def status(self, energy: Energy) -> dict[str, Any]:
        """In plain types, for the controller."""
        first, last = self.launches[0], self.launches[-1]
        progress = self.report.progress
        farewell = self.farewell
        return {
            "job_id": self.order.job_id,
            "attempt": self.order.attempt,
            "nodes": list(self.order.nodes),
            "rank": self.order.rank,
            "state": ("lost" if last.state is JobState.LOST else "ended") if self.is_over else "running",
            "exit_code": last.exit_code if self.is_over else None,
            "reason": (last.reason or "") if self.is_over else "",
            "detail": last.detail if self.is_over else "",
            "started_at_s": first.started_at_s,
            "ended_at_s": last.ended_at_s if self.is_over else None,
            "stop_requested_at_s": None if farewell is None else farewell.at_s,
            "evicted": "" if farewell is None else farewell.evicted,
            "progress": None if progress is None else asdict(progress),
            "energy_j": (self.spent + energy).energy_j,
        }


class AttemptBook:
    """The files. `reports` is a folder that jobs may enter but not list, whoever they run as."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "attempts"
        self.reports = folder / "reports"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.reports.mkdir(parents=True, exist_ok=True)
        self.reports.chmod(0o711)

    def load(self) -> dict[str, Attempt]:
        """All that were not forgotten; what cannot be read is left alone."""
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            saved = read_json(str(path)) or {}
            with contextlib.suppress(InputError, KeyError, TypeError, ValueError):
                attempt = self._attempt(Order.from_dict(saved["order"]))
                attempt.farewell = None if saved["farewell"] is None else Farewell(**saved["farewell"])
                found[attempt.name] = attempt
        return found

    def create(self, order: Order) -> Attempt:
        """Write it down, and make the file that only its user can write its reports to."""
        attempt = self._attempt(order)
        path = report_path(self.reports, order.name)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        give_to(path, order.user)
        self.save(attempt)
        return attempt

    def save(self, attempt: Attempt) -> None:
        """As it is now."""
        farewell = None if attempt.farewell is None else asdict(attempt.farewell)
        write_json(str(self._folder / f"{attempt.name}.json"), {"order": attempt.order.to_dict(), "farewell": farewell})

    def forget(self, name: str) -> None:
        """No more of it here; its logs are the launcher's."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        for path in (report_path(self.reports, name), self.reports / f"{name}.stop"):
            path.unlink(missing_ok=True)

    def bar(self, name: str) -> None:
        """It must never start."""
        (self._folder / f"{name}.barred").touch(mode=0o600)

    def is_barred(self, name: str) -> bool:
        """Whether it must not."""
        return (self._folder / f"{name}.barred").exists()

    def unbar(self, job_id: int) -> None:
        """All of a job that is over for good."""
        for path in self._folder.glob(f"{job_id}.*.barred"):
            path.unlink(missing_ok=True)

    def _attempt(self, order: Order) -> Attempt:
        return Attempt(order, ReportFile(report_path(self.reports, order.name)))

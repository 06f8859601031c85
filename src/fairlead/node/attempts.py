"""What a node remembers of the attempts that a controller has ordered, across restarts of the agent.

One small file per attempt says that it is told of, and whether it was stopped. What was ordered and how it ended is not
written here: the launcher knows that, and nobody else.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairlead.errors import InputError
from fairlead.node.gpu.energy import Energy
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.json_files import read_json, write_json
from fairlead.node.order import Order
from fairlead.node.process.launch import LaunchState, LaunchStatus
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.processes import boot_s
from fairlead.node.progress import ReportFile, Reports
from fairlead.node.stopping import StopRequest

_MOST_LOOKS = 8
"""Mebibytes of reports that are read at the end of an attempt; of more, only the last few count."""
_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which people and machines ask processes to end. SIGKILL is mostly the kernel's, to who took too much
memory, and every other one is a fault of the program."""


@dataclass(slots=True)
class Attempt:
    """One that was ordered and is not forgotten yet."""

    order: Order
    report: ReportFile
    stop_request: StopRequest | None = None
    spent: Energy = field(default_factory=Energy)
    """By launches of it that are over."""
    launches: list[LaunchStatus] = field(default_factory=list)
    """As last looked at; a service has one more with each restart."""
    is_over: bool = False

    @property
    def id(self) -> AttemptId:
        """The identity of the attempt, as its order names it."""
        return self.order.id

    def look(self, launcher: Launcher, is_held: bool) -> None:
        """See how it stands: it is over when no launch runs and the agent will not start another one."""
        self.launches = [launcher.status(launch) for launch in launcher.launches_of(self.id)]
        last = self.launches[-1].state if self.launches else LaunchState.PREPARED
        self.is_over = not is_held and last in (LaunchState.ENDED, LaunchState.LOST)
        if self.is_over:
            for _ in range(_MOST_LOOKS):
                if not self.report.look():
                    break

    @property
    def was_started(self) -> bool:
        """False where the order was written down and nothing came of it, yet."""
        return bool(self.launches) and self.launches[-1].state is not LaunchState.PREPARED

    @property
    def is_starting(self) -> bool:
        """Whether its command was not executed yet when it was last looked at."""
        return not self.is_over and (not self.was_started or self.launches[-1].state is LaunchState.STARTING)

    def status(self, energy: Energy, counted_at_s: float | None) -> dict[str, Any]:
        """In plain types, for the controller; the energy is that of the launch that runs, as counted up to then."""
        stop_request, progress = self.stop_request, self.report.progress
        return {
            "id": str(self.id),
            "gpus": list(self.order.gpus),
            "nodes": list(self.order.nodes),
            "rank": self.order.rank,
            "state": "starting" if self.is_starting else "running",
            "exit_code": None,
            "reason": "",
            "detail": "",
            "started_at_s": self.launches[0].started_at_s if self.launches else None,
            "ended_at_s": None,
            "ended_ago_s": None,
            "ran_s": None,
            "grace_s": self.order.grace_s,
            "stop_requested_at_s": None if stop_request is None else stop_request.at_s,
            "stopped_by": "",
            "evicted": "" if stop_request is None else stop_request.evicted,
            "progress": None if progress is None else asdict(progress),
            "energy_j": (self.spent + energy).energy_j,
            "energy_at_s": self.launches[-1].ended_at_s if self.is_over else counted_at_s,
            **(self._end(self.launches[-1]) if self.is_over else {}),
        }

    def _end(self, last: LaunchStatus) -> dict[str, Any]:
        return {
            "state": "lost" if last.state is LaunchState.LOST else "ended",
            "exit_code": last.exit_code,
            "reason": last.reason or "",
            "detail": last.detail,
            "ended_at_s": last.ended_at_s,
            "ended_ago_s": None if last.ended_boot_s is None else boot_s() - last.ended_boot_s,
            "ran_s": last.ran_s,
            "stopped_by": self._stopped_by(last),
        }

    def _stopped_by(self, last: LaunchStatus) -> str:
        """Who ended it, as far as anybody knows; empty where it ended by itself.

        `fairlead`, whoever here asked for it; `machine`, which went down, or took the supervisor with the job; `signal`
        of somebody else's.
        """
        code = last.exit_code
        # One that waited for its restart has failed before, and would have gone on.
        if last.was_stopped or (self.stop_request is not None and code != 0):
            return "fairlead"
        if last.state is LaunchState.LOST or last.supervisor_signals:
            return "machine"
        # A shell tells of a signal that ended its command by 128 and the signal's number.
        if (last.signal or (code or 0) - 128) in _ASKING:
            return "signal"
        asked = self.report.has_been_asked if code == 0 else self.report.have_all_been_asked(last.pid)
        return "signal" if asked else ""


@dataclass(frozen=True, slots=True)
class Bar:
    """That an attempt must never start here."""

    id: AttemptId
    nodes: tuple[int, ...]
    """All nodes of the attempt, by the controller's numbers."""

    def to_dict(self) -> dict[str, Any]:
        """In plain types, for the controller."""
        return {"id": str(self.id), "nodes": list(self.nodes)}


class AttemptBook:
    """The attempts of a node on its disk: one file each, and one for each that must never start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "attempts"
        self._barred = folder / "barred"
        self._barred_forgotten = self._barred / "forgotten"
        """Apart, since those are many and nobody looks through them when an agent starts."""
        self._reports = Reports(folder)
        for made in (self._folder, self._barred_forgotten):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)

    def load(self, launcher: Launcher) -> dict[AttemptId, Attempt]:
        """All that were launched and not forgotten; the order of one that never was comes again."""
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            saved = read_json(str(path)) or {}
            with contextlib.suppress(InputError, KeyError, TypeError, ValueError):
                order = launcher.order(LaunchId(AttemptId.parse(path.stem)))
                if order is None:
                    continue
                attempt = found[order.id] = self._attempt(order)
                attempt.stop_request = None if saved["stop_request"] is None else StopRequest(**saved["stop_request"])
        return found

    def create(self, order: Order) -> Attempt:
        """Write it down, and let its user write its reports."""
        attempt = self._attempt(order)
        self._reports.create(order.id, order.user)
        self.save(attempt)
        return attempt

    def save(self, attempt: Attempt) -> None:
        """Write down whether it was stopped, and how."""
        stop_request = None if attempt.stop_request is None else asdict(attempt.stop_request)
        write_json(str(_file(self._folder, attempt.id)), {"stop_request": stop_request})

    def forget(self, attempt: AttemptId) -> None:
        """Tell no more of it. What it reported stays beside its logs, for a controller that asks for it again."""
        _file(self._folder, attempt).unlink(missing_ok=True)
        self._reports.stop_path(attempt).unlink(missing_ok=True)

    def remove(self, attempt: AttemptId) -> None:
        """Keep nothing of it; its logs are the launcher's."""
        self.forget(attempt)
        self._reports.remove(attempt)

    def highest_job_id(self) -> int:
        """Of those that were ordered, or must never start; 0 where there are none."""
        highest = 0
        for folder in (self._folder, self._barred, self._barred_forgotten):
            for name in os.listdir(folder):
                with contextlib.suppress(InputError):
                    highest = max(highest, AttemptId.parse(name.removesuffix(".json")).job_id)
        return highest

    def bar(self, bar: Bar) -> None:
        """Write down that an attempt must never start."""
        write_json(str(_file(self._barred, bar.id)), {"nodes": list(bar.nodes)})

    def bars(self) -> dict[AttemptId, Bar]:
        """Those that the controller has not forgotten yet."""
        found = {}
        for path in self._barred.glob("*.json"):
            saved = read_json(str(path)) or {}
            with contextlib.suppress(InputError, KeyError, TypeError):
                bar = Bar(AttemptId.parse(path.stem), tuple(saved["nodes"]))
                found[bar.id] = bar
        return found

    def is_barred(self, attempt: AttemptId) -> bool:
        """Whether it must not, forgotten or not."""
        return any(_file(folder, attempt).exists() for folder in (self._barred, self._barred_forgotten))

    def forget_bar(self, attempt: AttemptId) -> None:
        """Nobody asks any more; it must not start all the same."""
        with contextlib.suppress(FileNotFoundError):
            _file(self._barred, attempt).rename(_file(self._barred_forgotten, attempt))

    def unbar(self, job_id: int) -> None:
        """All of a job that is over for good."""
        for path in self._barred.rglob(f"{job_id}.*.json"):
            path.unlink(missing_ok=True)

    def _attempt(self, order: Order) -> Attempt:
        return Attempt(order, ReportFile(self._reports.path(order.id)))


def _file(folder: Path, attempt: AttemptId) -> Path:
    return folder / f"{attempt}.json"

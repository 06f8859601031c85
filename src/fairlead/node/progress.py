"""What jobs report of their own progress: lines in a file that the agent reads as it grows.

Each attempt has a file, named in its environment as FAIRLEAD_REPORT, to which the job appends lines such as

    {"epoch": 3, "of": 90, "at_s": 1760000000.0, "clock_s": 512.5, "loss": 0.5, "samples_per_s": 800.0, "batch": 256}
    {"finished": true, "at_s": 1760000100.0}
    {"asked_to_stop": true, "pid": 4711, "processes": 8}

`epoch` counts the whole epochs that are done, over all attempts of the job; `at_s` is the time of day, `clock_s` that
of a clock which nobody sets; the rest may be left out. A process that got SIGTERM or SIGINT says so; `processes` is how
many of the job its launcher started beside it. A line that is torn or says something else is passed over.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlead.node.identity import AttemptId
from fairlead.node.process.log_tail import Tail
from fairlead.node.process.untrusted_files import cut, give_to

_MEAN_OF = 5
"""Epochs of which the time is averaged."""
_MOST_BEHIND = 4 << 20
"""Bytes of reports that are read at most when a job writes faster than it is read: the newest."""
_MOST_BYTES = 64 << 20
"""A file of reports that has grown beyond this is emptied: it is on the node's own disk."""
_MOST_ASKED = 4096
"""Processes of one job that tell of a signal; no job has more on one node, whatever it writes."""
_LAST_MOMENT_S = 1e11
"""The year 5138; what says it is later says nothing."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job has said so far in one attempt."""

    epochs_done: int = 0
    """Counted over all attempts, as the job counts them."""
    epochs: int | None = None
    """In all."""
    epoch_s: float | None = None
    """How long its last epochs took here, as a mean; None before the second report."""
    at_s: float | None = None
    """The moment of the last report, as time of day."""
    loss: float | None = None
    samples_per_s: float | None = None
    batch: int | None = None
    has_finished: bool = False
    """It says that all of its work is done, so that status 0 means so even after it was asked to stop."""

    @property
    def pace(self) -> tuple[int, int | None, float | None]:
        """How far it is and how fast it gets on: what a prediction rests on."""
        return self.epochs_done, self.epochs, self.epoch_s


class Reports:
    """The folder in which attempts have their files. Jobs may enter it but not list it, whoever they run as."""

    def __init__(self, node_folder: Path) -> None:
        self._folder = node_folder / "reports"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o711)

    def path(self, attempt: AttemptId) -> Path:
        """What the job appends its reports to."""
        return self._folder / f"{attempt}.jsonl"

    def stop_path(self, attempt: AttemptId) -> Path:
        """Made when it is to stop, for programs that would rather look than be signalled."""
        return self._folder / f"{attempt}.stop"

    def create(self, attempt: AttemptId, user: str | None) -> None:
        """Make the file that only its user can write its reports to."""
        path = self.path(attempt)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        give_to(path, user)

    def remove(self, attempt: AttemptId) -> None:
        """Delete an attempt's report and its stop file."""
        self.path(attempt).unlink(missing_ok=True)
        self.stop_path(attempt).unlink(missing_ok=True)


class ReportFile:
    """The agent's end of one attempt's file. What was read is not kept: after a restart it is read again."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path, most_behind=_MOST_BEHIND)
        self._last: tuple[int, float, float | None] | None = None
        self._asked: set[int] = set()
        self._processes = 0
        self._epochs_s: deque[float] = deque(maxlen=_MEAN_OF)
        self.progress: Progress | None = None

    def look(self) -> bool:
        """Read what is new, a mebibyte at most; whether it said anything."""
        found = [entry for line in self._tail.new_lines() if (entry := _parsed(line)) is not None]
        for entry in found:
            self._take(entry)
        # Once all is read; one who writes faster than that loses some.
        if self._tail.size_bytes > (2 if self._tail.behind_bytes else 1) * _MOST_BYTES:
            cut(self._tail.path, 0)
        return bool(found)

    @property
    def has_been_asked(self) -> bool:
        """Whether some process of the job was told to stop by a signal."""
        return bool(self._asked)

    def have_all_been_asked(self, main: int | None) -> bool:
        """Whether its main process was, or all that its launcher started.

        Where one of several has failed, its launcher ends the others by SIGTERM: then some were, and not all.
        """
        return main in self._asked or 0 < self._processes <= len(self._asked)

    def _take(self, entry: dict[str, Any]) -> None:
        if entry.get("asked_to_stop") is True:
            if len(self._asked) < _MOST_ASKED:
                self._asked.add(_whole(entry.get("pid")) or 0)
            self._processes = max(self._processes, _whole(entry.get("processes")) or 0)
            return
        before = self.progress or Progress()
        at_s = _moment(entry.get("at_s"))
        if entry.get("finished") is True:
            self.progress = replace(before, has_finished=True, at_s=before.at_s if at_s is None else at_s)
            return
        epoch = _whole(entry["epoch"])
        assert epoch is not None
        assert at_s is not None
        clock_s = _number(entry.get("clock_s"))
        if self._last is not None and epoch > self._last[0]:
            last_epoch, last_at_s, last_clock_s = self._last
            passed_s = at_s - last_at_s
            if clock_s is not None and last_clock_s is not None:
                passed_s = clock_s - last_clock_s  # the time of day may have been set in between
            if passed_s > 0.0:
                self._epochs_s.append(passed_s / (epoch - last_epoch))
        self._last = (epoch, at_s, clock_s)
        of = _whole(entry.get("of"))
        self.progress = Progress(
            epochs_done=epoch,
            epochs=before.epochs if of is None else of,
            epoch_s=sum(self._epochs_s) / len(self._epochs_s) if self._epochs_s else None,
            at_s=at_s,
            loss=_number(entry.get("loss")),
            samples_per_s=_number(entry.get("samples_per_s")),
            batch=_whole(entry.get("batch")),
            has_finished=before.has_finished,
        )


def _parsed(line: str) -> dict[str, Any] | None:
    """A report; None where it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    is_epoch = _whole(found.get("epoch")) is not None and _moment(found.get("at_s")) is not None
    return found if is_epoch or any(found.get(word) is True for word in ("finished", "asked_to_stop")) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _moment(value: object) -> float | None:
    found = _number(value)
    return found if found is not None and 0.0 <= found < _LAST_MOMENT_S else None


def _whole(value: object) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if is_whole and isinstance(value, int) else None

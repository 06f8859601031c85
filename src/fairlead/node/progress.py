"""What jobs report of their own progress: lines in a file that the agent reads as it grows.

Each attempt has a file, named in its environment as FAIRLEAD_REPORT, to which the job appends lines such as

    {"epoch": 3, "of": 90, "at_s": 1760000000.0, "loss": 0.5, "samples_per_s": 800.0, "batch": 256}
    {"finished": true, "at_s": 1760000100.0}

`epoch` counts the whole epochs that are done, over all attempts of the job; `at_s` is the time of day; the rest may be
left out. A line that is torn or says something else is passed over.
"""

from __future__ import annotations

import json
import math
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlead.node.tail import Tail

_MEAN_OF = 5
"""Epochs of which the time is averaged."""


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


class ReportFile:
    """The agent's end of one attempt's file. What was read is not kept: after a restart it is read again."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._last: tuple[int, float] | None = None
        self._epochs_s: deque[float] = deque(maxlen=_MEAN_OF)
        self.progress: Progress | None = None

    def look(self) -> bool:
        """Read what is new, a mebibyte at most; whether it said anything."""
        found = [entry for line in self._tail.new_lines() if (entry := _parsed(line)) is not None]
        for entry in found:
            self._take(entry)
        return bool(found)

    def _take(self, entry: dict[str, Any]) -> None:
        before = self.progress or Progress()
        at_s = _number(entry.get("at_s"))
        if entry.get("finished") is True:
            self.progress = replace(before, has_finished=True, at_s=before.at_s if at_s is None else at_s)
            return
        epoch = _whole(entry["epoch"])
        assert epoch is not None
        assert at_s is not None
        if self._last is not None and epoch > self._last[0] and at_s > self._last[1]:
            self._epochs_s.append((at_s - self._last[1]) / (epoch - self._last[0]))
        self._last = (epoch, at_s)
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
    is_epoch = _whole(found.get("epoch")) is not None and _number(found.get("at_s")) is not None
    return found if is_epoch or found.get("finished") is True else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if is_whole and isinstance(value, int) else None

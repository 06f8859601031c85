"""Whether this node takes jobs. A real one cannot be put to sleep by us: it takes no jobs, and that is all.

A made-up node draws no power while it sleeps and needs its time to wake up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.meter import Meter
from fairlead.node.json_files import read_json, write_json
from fairlead.node.process.processes import boot_s


class Sleep:
    """Kept in a file, so that a restarted agent knows."""

    def __init__(self, path: Path, meter: Meter, wake_s: float, clock: Callable[[], float] = boot_s) -> None:
        self._path, self._meter, self._clock = path, meter, clock
        self._wake_s = wake_s if meter.is_fake else 0.0
        saved = read_json(str(path)) or {}
        self._is_asleep = bool(saved.get("is_asleep", False))
        # Another boot has another clock; nobody wakes up for longer than it takes.
        self._awake_at_s = min(float(saved.get("awake_at_s", 0.0)), clock() + self._wake_s)
        self._tell_meter()

    @property
    def is_awake(self) -> bool:
        """Whether jobs can run here now."""
        return not self._is_asleep and self._clock() >= self._awake_at_s

    @property
    def left_s(self) -> float | None:
        """Until it is awake; None where it is, or nobody has woken it."""
        return None if self._is_asleep or self.is_awake else self._awake_at_s - self._clock()

    def sleep(self) -> None:
        """Take no jobs from now on, and draw little."""
        if not self._is_asleep:
            self._is_asleep = True
            self._changed()

    def wake(self) -> None:
        """Begin to wake up, unless it has."""
        if self._is_asleep:
            self._is_asleep, self._awake_at_s = False, self._clock() + self._wake_s
            self._changed()

    def _changed(self) -> None:
        write_json(str(self._path), {"is_asleep": self._is_asleep, "awake_at_s": self._awake_at_s})
        self._tell_meter()

    def _tell_meter(self) -> None:
        if isinstance(self._meter, FakeMeter):
            self._meter.set_asleep(self._is_asleep)

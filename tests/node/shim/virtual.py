"""The test's side of `stub/clock.c`: a time that a test lets pass."""

from __future__ import annotations

import ctypes
import mmap
import time
from pathlib import Path

from tests.patience import PATIENCE_S

_FOREVER_NS = 1 << 62


class _Shared(ctypes.Structure):
    _fields_ = (
        ("now_ns", ctypes.c_int64),
        ("limit_ns", ctypes.c_int64),
        ("expected", ctypes.c_int32),
        ("awake", ctypes.c_int32),
    )


class Clock:
    """Stands still until `parties` threads have joined; then it goes as far as `limit_s`, or as `run` says."""

    def __init__(self, path: Path, *, parties: int = 1, limit_s: float | None = None) -> None:
        self.path = path
        path.write_bytes(b"\0" * 4096)
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 4096)
        self._shared = _Shared.from_buffer(self._memory)
        self._shared.now_ns = time.monotonic_ns()  # so that an agent's heartbeat is of about now
        self._shared.limit_ns = _FOREVER_NS if limit_s is None else self._shared.now_ns + int(limit_s * 1e9)
        self._shared.expected = parties

    @property
    def now_s(self) -> float:
        return int(self._shared.now_ns) / 1e9

    def run(self, for_s: float) -> float:
        """Lets so much time pass; gives how much it was, when everybody waits for more."""
        self.rest()
        began_ns = int(self._shared.now_ns)
        self._shared.limit_ns = began_ns + int(for_s * 1e9)
        self.rest()
        return (int(self._shared.now_ns) - began_ns) / 1e9

    def rest(self) -> None:
        """Waits until nobody gets any further."""
        until_s = time.monotonic() + PATIENCE_S
        while self._shared.awake or self._shared.now_ns < self._shared.limit_ns:
            assert time.monotonic() < until_s, "somebody neither sleeps nor ends"
            time.sleep(0.001)

    def close(self) -> None:
        del self._shared
        self._memory.close()

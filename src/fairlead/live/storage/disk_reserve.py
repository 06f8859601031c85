"""Room kept for the database on its disk: a file of no content that goes when the disk is full."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

_AGAIN_S = 30.0
_FREE_TIMES = 4
"""It is made where so many times its size is free: it must not be what fills a disk."""
_MOST_FRAC = 0.05
"""Of a small disk."""


class DiskReserve:
    """One file beside the database; of size 0 it is never made. Only the thread that writes the database uses it."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path, self._size_bytes = path, size_bytes
        self._looked_s = float("-inf")
        self.hold()

    def hold(self) -> None:
        """Set the room aside, if it is not and the disk has plenty; costs nothing when called often."""
        now_s = time.monotonic()
        if not self._size_bytes or now_s - self._looked_s < _AGAIN_S:
            return
        self._looked_s = now_s
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(self._path.parent)
            size_bytes = min(self._size_bytes, int(_MOST_FRAC * disk.total))
            if self._path.exists() or disk.free < _FREE_TIMES * size_bytes:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size_bytes)
            except OSError:
                self._path.unlink()
            finally:
                os.close(descriptor)

    def give_up(self) -> bool:
        """The disk is full: let the database have it. Whether there was anything to give."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

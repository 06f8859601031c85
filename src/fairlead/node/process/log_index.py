"""In which order a job wrote to its two streams: an index of the pieces that its supervisor took, beside their files.

A record says when a piece was taken, of which stream, where it lies in that stream's file, and where it begins in both
streams merged. Records have one size, so any moment and any merged offset is found by bisection.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time

# No dataclasses, no pathlib: supervisors load this, one per job.

STREAMS = ("stdout", "stderr")
NAME = "index.log"
RECORD = struct.Struct("<dQQIB")
"""When (time of day), merged offset, offset in its stream, length, number of the stream."""
_MANY = 100_000
"""After so many records pieces are joined,"""
_JOINED_S, _JOINED_BYTES = 1.0, 64 << 10
"""for so long or up to so many bytes: who writes byte by byte must not fill the disk with the index."""


class LogIndex:
    """Kept by the supervisor."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._records = os.fstat(self._file).st_size // RECORD.size
        self._merged = 0
        self._noted = [0] * len(STREAMS)
        self._noted_s = [0.0] * len(STREAMS)

    def note(self, stream: int, size: int, *, at_once: bool = False) -> None:
        """The file of a stream is that long now."""
        now_s, length = time.time(), size - self._noted[stream]
        if length <= 0:
            return
        is_soon = 0.0 <= now_s - self._noted_s[stream] < _JOINED_S and length < _JOINED_BYTES
        if self._records >= _MANY and is_soon and not at_once:
            return
        record = RECORD.pack(now_s, self._merged, self._noted[stream], length, stream)
        with contextlib.suppress(OSError):  # without room on the disk it is noted with the next piece
            if os.pwrite(self._file, record, self._records * RECORD.size) == RECORD.size:
                self._records += 1
                self._merged += length
                self._noted[stream], self._noted_s[stream] = size, now_s

    def close(self) -> None:
        """Nothing is written any more."""
        os.close(self._file)

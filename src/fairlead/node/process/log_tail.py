"""New lines of a log that somebody else writes."""

from __future__ import annotations

import os
from pathlib import Path

from fairlead.node.process.untrusted_files import open_regular

_MOST_BYTES = 1 << 20
"""Read at most so much at a time; the rest comes with the next call."""


class Tail:
    """Whole lines since the last call. A log that was cut or replaced is read from its start again.

    Of one that grows faster than it is read, only the last `most_behind` bytes are, if that is given.
    """

    def __init__(self, path: Path, *, from_end: bool = False, most_behind: int | None = None) -> None:
        self.path = path
        self.size_bytes = 0
        """Of the file, when it was last read."""
        self._most_behind = most_behind
        self._at = 0
        self._inode: int | None = None
        if from_end:
            try:
                found = path.stat()
            except OSError:
                return
            self._at, self._inode = found.st_size, found.st_ino

    @property
    def behind_bytes(self) -> int:
        """What was there and is not read yet."""
        return max(self.size_bytes - self._at, 0)

    def new_lines(self) -> list[str]:
        """Lines that were completed since; none where there is no such file yet."""
        is_torn = False
        try:
            with open_regular(self.path) as file:
                found = os.fstat(file.fileno())
                self.size_bytes = found.st_size
                if found.st_ino != self._inode or found.st_size < self._at:
                    self._at, self._inode = 0, found.st_ino
                if self._most_behind is not None and found.st_size - self._at > self._most_behind:
                    self._at, is_torn = found.st_size - self._most_behind, True
                file.seek(self._at)
                text = file.read(_MOST_BYTES)
        except OSError:
            return []
        whole = text.rpartition(b"\n")[0]
        if not whole:
            if len(text) < _MOST_BYTES:
                return []
            whole = text  # a line longer than all we read: give it out in pieces
            self._at += len(whole)
        else:
            self._at += len(whole) + 1
        return whole.decode(errors="replace").split("\n")[int(is_torn) :]

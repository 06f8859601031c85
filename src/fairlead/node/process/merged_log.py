"""What a job wrote to both of its streams, in the order of time, read from their files by the index beside them."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from fairlead.node.process.log_index import NAME, RECORD, STREAMS
from fairlead.node.process.untrusted_files import open_regular


class Record(NamedTuple):
    """A piece that was written at one moment."""

    at_s: float
    merged: int
    start: int
    length: int
    stream: int


class MergedLog:
    """Of one launch, in its folder. Without an index, as older Fairleads left it, stdout comes before stderr."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes = [_size(folder / f"{name}.log") for name in STREAMS]
        self._index = b""
        with contextlib.suppress(OSError), open_regular(folder / NAME) as file:
            found = file.read()
            self._index = found[: len(found) // RECORD.size * RECORD.size]
        if not self._index and any(self._sizes) and not (folder / NAME).exists():
            first, second = self._sizes
            pieces = ((0.0, 0, 0, first, 0), (0.0, first, 0, second, 1))
            self._index = b"".join(RECORD.pack(*one) for one in pieces if one[3])

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return len(self._index) // RECORD.size

    def record(self, number: int) -> Record:
        """One of them, oldest first."""
        return Record(*RECORD.unpack_from(self._index, number * RECORD.size))

    @property
    def size(self) -> int:
        """Of both streams together, as far as their order is known."""
        if not self.count:
            return 0
        last = self.record(self.count - 1)
        return last.merged + last.length

    def stream_size(self, stream: str) -> int:
        """Of one of the streams, or of `all`."""
        return self.size if stream == "all" else self._sizes[STREAMS.index(stream)]

    def read(self, offset: int, limit: int) -> bytes:
        """A piece of both streams."""
        number = bisect_right(range(self.count), offset, key=lambda n: self.record(n).merged) - 1
        out, files = list[bytes](), dict[int, IO[bytes]]()
        with contextlib.ExitStack() as opened:
            while 0 <= number < self.count and limit > 0:
                one = self.record(number)
                skipped = max(offset - one.merged, 0)
                if one.stream not in files:
                    path = self._folder / f"{STREAMS[one.stream]}.log"
                    files[one.stream] = opened.enter_context(open_regular(path))
                files[one.stream].seek(one.start + skipped)
                piece = files[one.stream].read(max(min(one.length - skipped, limit), 0))
                out.append(piece)
                limit -= len(piece)
                number += 1
        return b"".join(out)

    def offset_at(self, at_s: float, stream: str) -> int:
        """Where in a stream, or in `all`, what was written from this moment on begins."""
        first = bisect_left(range(self.count), at_s, key=lambda n: self.record(n).at_s)
        for number in range(first, self.count):
            one = self.record(number)
            if stream == "all":
                return one.merged
            if STREAMS[one.stream] == stream:
                return one.start
        return self.stream_size(stream)


def read_launches(folders: list[Path], stream: str, offset: int, limit: int) -> bytes:
    """A piece of what all launches of an attempt wrote, one after another; a negative offset is from the end."""
    sizes, readers = list[int](), list[Callable[[int, int], bytes]]()
    for folder in folders:
        if stream == "all":
            merged = MergedLog(folder)
            sizes.append(merged.size)
            readers.append(merged.read)
        else:
            path = folder / f"{stream}.log"
            sizes.append(_size(path))
            readers.append(_reader(path))
    start, out = offset if offset >= 0 else max(sum(sizes) + offset, 0), b""
    for size, read in zip(sizes, readers, strict=True):
        if start < size and len(out) < limit:
            with contextlib.suppress(OSError):
                out += read(start, limit - len(out))
        start = max(start - size, 0)
    return out


def offset_since(folders: list[Path], stream: str, at_s: float) -> int:
    """Where what all launches of an attempt wrote from this moment on begins."""
    before = 0
    for folder in folders:
        merged = MergedLog(folder)
        found, size = merged.offset_at(at_s, stream), merged.stream_size(stream)
        if found < size:
            return before + found
        before += size
    return before


def _reader(path: Path) -> Callable[[int, int], bytes]:
    def read(offset: int, limit: int) -> bytes:
        with open_regular(path) as file:
            file.seek(offset)
            return file.read(limit)

    return read


def _size(path: Path) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0

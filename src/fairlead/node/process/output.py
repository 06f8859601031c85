"""What a job writes, kept within bounds: pipes that its supervisor empties into files.

Of each stream the first `most_bytes` are kept as they come and the last 64 KiB are added when the job ends, with a line
that says what was left out in between. While the disk has less room than `reserve_bytes` nothing is kept either, so
that the database beside the logs can still be written; and while it has less than twice that, only jobs that have
written little are, so that one that writes a lot takes no room from the others. The job itself never notices: its
writes go through.
"""

from __future__ import annotations

import contextlib
import os

from fairlead.node.process.log_index import NAME, STREAMS, LogIndex

# No dataclasses, no pathlib: supervisors load this, one per job.

TAIL_BYTES = 64 << 10
_PIECE_BYTES = 64 << 10
_SMALL_DISK_FRAC = 0.1
"""On a small disk no more than this is kept free."""
_LITTLE_BYTES = 1 << 20
_PIPE_BYTES = 256 << 10


class BoundedLog:
    """Keeps a stream in a file, up to a size and while the disk has room."""

    def __init__(self, path: str, most_bytes: int, reserve_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        self._most_bytes, self._reserve_bytes = most_bytes, reserve_bytes
        self._kept = self.size = os.fstat(self._file).st_size
        self._lost = 0
        self._tail = b""

    def take(self, piece: bytes) -> None:
        """Keep it, as far as that is allowed now; of the rest the last bytes, for the end."""
        has_room = self._has_room(self._kept + len(piece))
        if self._lost and has_room and self._kept < self._most_bytes:
            self._tell_lost()
        kept = self._write(piece[: max(self._most_bytes - self._kept, 0)]) if has_room and not self._lost else 0
        self._kept += kept
        if rest := piece[kept:]:
            if not self._lost:
                self._say(f"output is not kept from here on: {self._why()}")
            self._lost += len(rest)
            self._tail = (self._tail + rest)[-TAIL_BYTES:]

    def close(self) -> None:
        """Add what was last written, if it is not there yet."""
        if self._lost:
            self._tell_lost()
        os.close(self._file)

    def _tell_lost(self) -> None:
        left_out = self._lost - len(self._tail)
        if left_out:
            self._say(f"{left_out} bytes of output were left out here")
        if self._has_room(len(self._tail)):  # little, whatever came before
            self._kept += self._write(self._tail)
        self._lost, self._tail = 0, b""

    def _why(self) -> str:
        if self._kept >= self._most_bytes:
            return f"more than {self._most_bytes / (1 << 20):g} MiB; the last {TAIL_BYTES >> 10} KiB follow at its end"
        return "the node's disk is nearly full"

    def _say(self, words: str) -> None:
        self._write(f"\n[fairlead: {words}]\n".encode())

    def _has_room(self, size: int) -> bool:
        """Whether the disk has room for a log that is so long then."""
        found = os.fstatvfs(self._file)
        reserve = min(self._reserve_bytes, int(_SMALL_DISK_FRAC * found.f_blocks * found.f_frsize))
        return found.f_bavail * found.f_frsize >= (reserve if size <= _LITTLE_BYTES else 2 * reserve) + _PIECE_BYTES

    def _write(self, piece: bytes) -> int:
        """How much of it is in the file."""
        done = 0
        with contextlib.suppress(OSError):  # the disk is full after all, or broken
            while done < len(piece):
                done += os.write(self._file, piece[done:])
        self.size += done
        return done


class Outputs:
    """Both streams of one job, in its supervisor."""

    def __init__(self, folder: str, most_bytes: int, reserve_bytes: int) -> None:
        """OSError where the files cannot be made."""
        self._logs: dict[int, BoundedLog] = {}
        self._streams: dict[int, int] = {}
        self._index = LogIndex(os.path.join(folder, NAME))
        writers = []
        for number, name in enumerate(STREAMS):
            log = BoundedLog(os.path.join(folder, f"{name}.log"), most_bytes, reserve_bytes)
            reader, writer = os.pipe()
            os.set_blocking(reader, False)  # our end only; the job's waits as any pipe does
            _enlarge(writer)
            self._logs[reader], self._streams[reader] = log, number
            writers.append(writer)
        self.writers = tuple(writers)
        """The job's ends."""

    def close_writers(self) -> None:
        """The job has them now."""
        for writer in self.writers:
            os.close(writer)
        self.writers = ()

    @property
    def readers(self) -> tuple[int, ...]:
        """To wait for; those that have ended are left out."""
        return tuple(self._logs)

    def take(self, reader: int) -> bool:
        """Keep what is there, one piece; False where there is nothing more now."""
        try:
            piece = os.read(reader, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if piece:
            log = self._logs[reader]
            log.take(piece)
            self._index.note(self._streams[reader], log.size)
            return True
        self._end(reader, self._logs.pop(reader))  # nobody can write to it any more
        return False

    def drain(self) -> None:
        """Keep all that has been written until now; of one who writes on and on, a pipe's worth."""
        for reader in self.readers:
            for _ in range(_PIPE_BYTES // _PIECE_BYTES + 1):
                if not self.take(reader):
                    break

    def close(self) -> None:
        """Nobody writes any more, or nobody's words count."""
        self.close_writers()
        self.drain()
        for reader, log in self._logs.items():
            self._end(reader, log)
        self._logs.clear()
        self._index.close()

    def _end(self, reader: int, log: BoundedLog) -> None:
        os.close(reader)
        log.close()
        self._index.note(self._streams[reader], log.size, at_once=True)


def _enlarge(pipe: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):  # a user may have only so many large ones
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

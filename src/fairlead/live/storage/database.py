"""SQLite with one writer: whoever wants to write hands over a function and waits until it is on the disk.

What has gathered while the last commit was under way is committed together, so a thousand small writes a second cost
some tens of commits. Readers have connections of their own and are never in the way.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError
from fairlead.live.storage.disk_reserve import DiskReserve
from fairlead.live.storage.schema import migrate

log = logging.getLogger("fairlead")
Write = Callable[[sqlite3.Connection], Any]
BUSY_S = 5.0
"""How long a lock that somebody else holds is waited for."""
_MOST_AT_ONCE = 500


class StoreError(FairleadError):
    """It is not on the disk: disk full, database locked, or the like. Nothing was lost that was acknowledged."""


class Database:
    """One file. Calls may come from any thread."""

    def __init__(self, path: Path, *, busy_s: float = BUSY_S, spare_bytes: int = 0) -> None:
        """`spare_bytes` of the disk are kept for it, for when others have filled the rest."""
        self.path = path
        self._spare = DiskReserve(path.with_name(f"{path.name}.spare"), spare_bytes)
        self._busy_s = busy_s
        self._wanted: queue.SimpleQueue[tuple[Write, Future[Any]] | None] = queue.SimpleQueue()
        self._here = threading.local()
        self._readers: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self.on_commit: Callable[[float], None] | None = None
        """Told how long each commit took, with all that was in it."""
        self._connection = self._open()
        try:
            migrate(self._connection, str(path))
        except sqlite3.Error as error:
            self._connection.close()
            raise StoreError(f"{path}: {error}", hint="is it a database of Fairlead, and is there room?") from None
        except BaseException:
            self._connection.close()
            raise
        self._thread = threading.Thread(target=self._write_on, name="store-writer", daemon=True)
        self._thread.start()

    def write(self, change: Write) -> Future[Any]:
        """Do it in a transaction; the future has its value once that is on the disk, or a `StoreError`."""
        done: Future[Any] = Future()
        self._wanted.put((change, done))
        return done

    def read(self, sql: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """Rows, as of the last commit."""
        try:
            return self._reader().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None

    def close(self) -> None:
        """Write what is still wanted, then let go."""
        self._wanted.put(None)
        self._thread.join()
        self._connection.close()
        with self._lock:
            for reader in self._readers:
                reader.close()
            self._readers.clear()

    def _open(self) -> sqlite3.Connection:
        try:
            made = sqlite3.connect(self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
            made.row_factory = sqlite3.Row
            made.execute("PRAGMA journal_mode = WAL")
            made.execute("PRAGMA synchronous = FULL")  # what is acknowledged survives a power cut
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from None
        return made

    def _reader(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._here, "reader", None)
        if found is None:
            found = self._open()
            found.execute("PRAGMA query_only = ON")
            self._here.reader = found
            with self._lock:
                self._readers.append(found)
        return found

    # ---- the writer's thread ----

    def _write_on(self) -> None:
        is_last = False
        while not is_last:
            wanted = [self._wanted.get()]
            with contextlib.suppress(queue.Empty):
                while wanted[-1] is not None and len(wanted) < _MOST_AT_ONCE:
                    wanted.append(self._wanted.get_nowait())
            is_last = wanted[-1] is None
            batch = [one for one in wanted if one is not None]
            if batch:
                self._write_all(batch)

    def _write_all(self, batch: list[tuple[Write, Future[Any]]]) -> None:
        try:
            settled = self._commit(batch)
        except Exception as error:  # whatever it is: without this thread nothing is ever written again
            if _is_full(error) and self._spare.give_up():
                self._write_all(batch)
                return
            failed = StoreError(f"{self.path}: {error}", hint="nothing was written; it can be retried")
            settled = [(done, None, failed) for _, done in batch]
        else:
            self._spare.hold()
        for done, value, wrong in settled:
            _settle(done, value, wrong)

    def _commit(self, batch: list[tuple[Write, Future[Any]]]) -> list[tuple[Future[Any], Any, BaseException | None]]:
        """All of them, with what came of each; raises where nothing is on the disk."""
        connection, settled = self._connection, []
        began_s = time.perf_counter()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for change, done in batch:
                settled.append((done, *_within(connection, change)))
            connection.execute("COMMIT")
        except Exception:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        self._committed(time.perf_counter() - began_s)
        return settled

    def _committed(self, took_s: float) -> None:
        try:
            if self.on_commit is not None:
                self.on_commit(took_s)
        except Exception:
            log.exception("a commit could not be told of")


def _is_full(error: Exception) -> bool:
    """Of SQLite's shared memory a full disk is told as an I/O error."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _settle(done: Future[Any], value: Any, wrong: BaseException | None) -> None:
    try:
        if wrong is None:
            done.set_result(value)
        else:
            done.set_exception(wrong)
    except InvalidStateError:
        log.warning("nobody waits for a write any more")  # it is on the disk, or is not, all the same


def _within(connection: sqlite3.Connection, change: Write) -> tuple[Any, BaseException | None]:
    """One change of many: if it fails, it fails alone. What concerns the whole database is raised."""
    connection.execute("SAVEPOINT one")
    try:
        value = change(connection)
    except Exception as error:
        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
            raise
        connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return None, error
    connection.execute("RELEASE one")
    return value, None

"""A controller's database copied away while it works, and put back.

What nodes did after the backup is no part of this: attempts carry the epoch of the controller that made them, so the
next controller tells its own from those that the restored database knows nothing of, and stops these.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.live.home import Home
from fairlead.live.storage import audit
from fairlead.live.storage.audit import HERE, Act, own_account
from fairlead.live.storage.schema import migrate, raise_number

_TABLES = frozenset({"attempts", "events", "facts", "jobs", "submissions", "tokens"})


@dataclass(frozen=True, slots=True)
class Restored:
    """What has been put back."""

    jobs: int
    next_job_id: int
    kept: Path | None
    """The database that was there before; None where there was none."""
    knows_before: bool
    """Whether that one could be read, so that its numbers and revoked tokens are taken into account."""


def back_up(home: Home, target: Path) -> int:
    """Copy the database to a file, whole or not at all, while the controller works; gives the number of jobs in it."""
    source = home.database
    if not _has_content(source):
        raise InputError(f"there is no database in {home.path}", hint="give the controller's folder with --home")
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"cannot write a backup to {target}", hint="give a file in a folder that is there")
    if target.exists() and target.samefile(source):
        raise InputError(f"{target} is the database itself", hint="give another file")
    if _has_content(target):
        with _opened(target, "mode=ro") as before:
            _check_ours(before, target)
    with _part(target) as part:
        jobs = _copy(source, "mode=rw", part)
        part.replace(target)
    _sync(target.parent)
    return jobs


def restore(home: Home, source: Path) -> Restored:
    """Put a backup in the place of the database, which is kept beside it. Refused while a controller runs."""
    if not _has_content(source):
        raise InputError(f"no backup at {source}", hint="give a file that `fairlead backup` has made")
    if home.database.exists() and source.samefile(home.database):
        raise InputError(f"{source} is the database itself", hint="give a file that `fairlead backup` has made")
    home.prepare()
    with home.held(for_others=None), _part(home.database) as part:
        # Without a log beside it nothing else belongs to the file, which may then be on a disk that cannot be written.
        has_log = _has_content(Path(f"{source}-wal"))
        jobs = _copy(source, "mode=ro" if has_log else "mode=ro&immutable=1", part)
        with _opened(part, "mode=rw") as made:
            migrate(made, str(source))
            made.execute("DELETE FROM sessions")  # who has signed out since stays out
            kept = _keep(home.database)
            knows_before = _take_from(home.database, made)
            audit.insert(made, Act(own_account(), "database-restored", source=HERE, about=str(source)), time.time())
            last = made.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs'").fetchone()[0]
        _sync(part)
        _close_off(home.database, kept)
        part.replace(home.database)
        _sync(home.path)
    return Restored(jobs, last + 1, kept, knows_before)


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A file beside the target, to be moved there when it is whole."""
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)  # of one that was killed
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield part
    finally:
        for path in (part, Path(f"{part}-journal")):
            path.unlink(missing_ok=True)


def _copy(source: Path, how: str, part: Path) -> int:
    """One consistent state of a database into an empty file; what is not one of ours, or damaged, is refused."""
    with _opened(part, "mode=rw") as new:
        with _opened(source, how) as old:
            _check_ours(old, source)
            old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")  # all in one file
        wrong = [row[0] for row in new.execute("PRAGMA integrity_check(3)")]
        if wrong != ["ok"]:
            raise InputError(f"{source} is damaged: {'; '.join(wrong)}", hint="use another backup")
        jobs: int = new.execute("SELECT count(*) FROM jobs").fetchone()[0]
    _sync(part)
    return jobs


def _take_from(before: Path, new: sqlite3.Connection) -> bool:
    """Of the database that is replaced: no number is given out again, who was shut out since stays so, and so does what
    the audit log says.
    """
    if not _has_content(before):
        return False
    try:
        new.execute("ATTACH ? AS before", (str(before),))
        new.execute("BEGIN")
        for table, number in new.execute("SELECT name, seq FROM before.sqlite_sequence").fetchall():
            raise_number(new, table, number)
        new.execute(
            "UPDATE tokens SET revoked_at_s = (SELECT revoked_at_s FROM before.tokens b WHERE b.hash = tokens.hash)"
            " WHERE hash IN (SELECT hash FROM before.tokens WHERE revoked_at_s IS NOT NULL)"
        )
        if new.execute("SELECT 1 FROM before.sqlite_master WHERE name = 'audit'").fetchone():
            new.execute(
                "UPDATE tokens SET expires_at_s = (SELECT expires_at_s FROM before.tokens b WHERE b.hash = tokens.hash)"
                " WHERE hash IN (SELECT hash FROM before.tokens WHERE expires_at_s IS NOT NULL)"
            )
            new.execute("INSERT OR IGNORE INTO main.audit SELECT * FROM before.audit")
        new.execute("COMMIT")
        new.execute("DETACH before")
    except sqlite3.Error:  # it may be damaged, which is why it is replaced
        with contextlib.suppress(sqlite3.Error):
            new.execute("ROLLBACK")
        return False
    return True


def _keep(database: Path) -> Path | None:
    """Give the database a second name; its log, which SQLite may drop when it looks at a damaged one, is copied.

    The first name stays until the restored one takes it: cut off in between, no controller finds an empty home.
    """
    if not _has_content(database):
        return None
    kept = database.with_name(f"{database.name}.{time.strftime('%Y%m%d-%H%M%S')}")
    while kept.exists():
        kept = kept.with_name(f"{kept.name}x")
    os.link(database, kept)
    if _has_content(log := Path(f"{database}-wal")):
        shutil.copy2(log, f"{kept}-wal")
    return kept


def _close_off(database: Path, kept: Path | None) -> None:
    """Have all of the old database in its file, and leave no log that the next one would take for its own."""
    if kept is not None:
        with contextlib.suppress(FairleadError), _opened(database, "mode=rw") as old:
            if old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0:
                Path(f"{kept}-wal").unlink(missing_ok=True)
    for ending in ("-wal", "-shm"):
        Path(f"{database}{ending}").unlink(missing_ok=True)


def _check_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Whether a file is a database of Fairlead; one of a later version is refused by `migrate`."""
    found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not found >= _TABLES:
        missing = ", ".join(sorted(_TABLES - found))
        raise InputError(
            f"{path} is no database of Fairlead: it has no table {missing}",
            hint="`fairlead backup` makes one, and replaces no other file",
        )


@contextlib.contextmanager
def _opened(path: Path, how: str) -> Iterator[sqlite3.Connection]:
    """A connection, closed at the end; what SQLite complains of is an error that names the file."""
    uri = f"file:{quote(str(path.absolute()))}?{how}"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=30.0, isolation_level=None)) as made:
            yield made
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # no room, no permission, locked
            raise RunError(f"{path}: {error}") from None
        raise InputError(f"{path}: {error}", hint="give a file that `fairlead backup` has made") from None


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _sync(path: Path) -> None:
    """Have it on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Who did what: an append-only table, written in the same transaction as what it tells of.

It holds numbers, names and sources, never a command, an environment or a token. Failed sign-ins, of which strangers can
make any number, are told of once a minute for each source and a few times a minute in all, with how many there were.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any

from fairlead.live.storage.database import BUSY_S, Database

KEPT = 500_000
"""The oldest go when there are more;"""
FAILURES_KEPT = 20_000
"""of failed sign-ins, when there are more of these: they push nothing else out."""
FAILED = "sign-in-failed"
HERE = "this machine"
"""The source of what was done from a shell and not over HTTP."""
_EVERY_S = 60.0
_MOST_SOURCES = 60
_PRUNE_EVERY = 1000
_SOURCE_CHARS, _ABOUT_CHARS = 64, 500
FIELDS = ("id", "at_s", "user", "token_id", "source", "what", "job_id", "about")


@dataclass(frozen=True, slots=True)
class Act:
    """Something that somebody did, for the audit."""

    user: str
    what: str
    """One kebab-case word."""
    token_id: int | None = None
    source: str = ""
    """Where it came from: an address."""
    job_id: int | None = None
    about: str = ""

    def on(self, job_id: int) -> Act:
        """The same, about a job whose number is known by now."""
        return replace(self, job_id=job_id)


def own_account() -> str:
    """The name of the account that this process runs under."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def insert(connection: sqlite3.Connection, act: Act | None, at_s: float) -> None:
    """Write it down, within a transaction of somebody else's; None is nothing."""
    if act is None:
        return
    values = (at_s, act.user, act.token_id, act.source[:_SOURCE_CHARS], act.what, act.job_id, act.about[:_ABOUT_CHARS])
    sql = "INSERT INTO audit (at_s, user, token_id, source, what, job_id, about) VALUES (?, ?, ?, ?, ?, ?, ?)"
    number = connection.execute(sql, values).lastrowid or 0
    if number % _PRUNE_EVERY == 0:
        _prune(connection, number)


def _prune(connection: sqlite3.Connection, newest: int) -> None:
    connection.execute("DELETE FROM audit WHERE id <= ?", (newest - KEPT,))
    older = "SELECT id FROM audit WHERE what = ? ORDER BY id DESC LIMIT -1 OFFSET ?"
    connection.execute(f"DELETE FROM audit WHERE id IN ({older})", (FAILED, FAILURES_KEPT))


class Audit:
    """The log of one controller. Calls may come from any thread, but for `failed`."""

    def __init__(self, database: Database, *, wall_s: Callable[[], float] = time.time) -> None:
        self._database, self._wall_s = database, wall_s
        self._failures: dict[str, int] = {}
        """By source, failed sign-ins since the last that was told of."""
        self._since_s = 0.0
        self._unnamed = 0
        self._last_note: Future[None] | None = None

    def note(self, act: Act) -> Future[None]:
        """Write it down by itself; the future is settled when it is on the disk."""
        at_s = self._wall_s()
        self._last_note = self._database.write(lambda connection: insert(connection, act, at_s))
        return self._last_note

    def failed(self, source: str, why: str, user: str = "", token_id: int | None = None) -> Act | None:
        """Somebody's token let nobody in; what was written of it, if anything was. For one thread."""
        self._tell_counts()
        is_new = source not in self._failures
        if is_new and len(self._failures) >= _MOST_SOURCES:
            self._unnamed += 1
            return None
        self._failures[source] = 0 if is_new else self._failures[source] + 1
        if not is_new:
            return None
        act = Act(user, FAILED, token_id, source, about=why)
        self.note(act)
        return act

    def _tell_counts(self) -> None:
        """Once a minute, how many more there were."""
        now_s = time.monotonic()
        if now_s - self._since_s < _EVERY_S:
            return
        more = {source: count for source, count in self._failures.items() if count}
        if self._unnamed:
            more["others"] = self._unnamed
        for source, count in more.items():
            self.note(Act("", FAILED, None, source, about=f"{count} more within a minute"))
        self._failures, self._unnamed, self._since_s = {}, 0, now_s

    def rows(
        self, after: int, limit: int, *, user: str | None = None, what: str | None = None, job_id: int | None = None
    ) -> list[dict[str, Any]]:
        """Those with larger numbers than `after`, oldest first; an `after` below 0 means the last so many.

        What was noted before this call is among them: failed sign-ins are answered before they are on the disk.
        """
        if self._last_note is not None:
            wait([self._last_note], timeout=BUSY_S)
        where, values = list[str](), list[Any]()
        for name, value in (("user", user), ("what", what), ("job_id", job_id)):
            if value is not None:
                where.append(f"{name} = ?")
                values.append(value)
        if after >= 0:
            where.append("id > ?")
            values.append(after)
        order, most = ("ASC", limit) if after >= 0 else ("DESC", min(limit, -after))
        said = f"WHERE {' AND '.join(where)}" if where else ""
        found = self._database.read(f"SELECT * FROM audit {said} ORDER BY id {order} LIMIT ?", (*values, most))
        rows = [{name: row[name] for name in FIELDS} for row in found]
        return rows if after >= 0 else rows[::-1]

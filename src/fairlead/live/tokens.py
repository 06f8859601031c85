"""Who may ask: bearer tokens, each with a user's name and a role. Shown once when made, kept as a hash.

A token is 256 random bits, so there is nothing to guess and no dictionary to try: one round of SHA-256 keeps it as well
as a slow hash would, and costs a microsecond instead of a tenth of a second for each request. All that stand are held
in memory, so no request waits for the disk to be let in; only the controller's process makes and revokes them.
"""

from __future__ import annotations

import enum
import hashlib
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InputError, did_you_mean
from fairlead.live.database import Database

PREFIX = "fl_"
"""So that a token that has leaked into a log or a repository can be found."""
_BYTES = 32
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}")
_MOST_NOTE = 200


class Role(enum.StrEnum):
    """What somebody may do; each may do what those before it may."""

    USER = "user"
    """Sees and touches jobs of its own."""
    OPERATOR = "operator"
    """Everybody's jobs, the nodes, the configuration."""
    ADMIN = "admin"
    """Tokens too."""

    def may(self, needed: Role) -> bool:
        """Whether this is enough where `needed` is asked for."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody with a token."""

    token_id: int
    user: str
    role: Role

    @property
    def sees_all(self) -> bool:
        """Whether others' jobs are there for them."""
        return self.role is not Role.USER


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as it is listed; the token itself is not kept."""

    id: int
    user: str
    role: str
    note: str
    created_at_s: float
    revoked_at_s: float | None


class Tokens:
    """The tokens of one controller. Calls may come from any thread."""

    def __init__(self, database: Database, *, wall_s: Callable[[], float] = time.time) -> None:
        self._database, self._wall_s = database, wall_s
        self._lock = threading.Lock()
        self._known: dict[str, Identity] = {}
        """Those that stand, by their hash."""
        for row in database.read("SELECT id, user, role, hash FROM tokens WHERE revoked_at_s IS NULL"):
            self._known[row["hash"]] = Identity(row["id"], row["user"], Role(row["role"]))

    def create(self, user: str, role: str, note: str = "") -> tuple[int, str]:
        """Its number, and the token itself, which nobody can show again."""
        _check(user, role, note)
        token = PREFIX + secrets.token_urlsafe(_BYTES)
        values = (user, role, _hash(token), note, self._wall_s())
        sql = "INSERT INTO tokens (user, role, hash, note, created_at_s) VALUES (?, ?, ?, ?, ?)"

        def change(connection: sqlite3.Connection) -> int | None:
            return connection.execute(sql, values).lastrowid

        made: int = self._database.write(change).result()
        with self._lock:
            self._known[values[2]] = Identity(made, user, Role(role))
        return made, token

    def revoke(self, token_id: int) -> bool:
        """From now on it lets nobody in; whether there was such a token, revoked before or not."""
        sql = "UPDATE tokens SET revoked_at_s = coalesce(revoked_at_s, ?) WHERE id = ?"
        values = (self._wall_s(), token_id)

        def change(connection: sqlite3.Connection) -> bool:
            return connection.execute(sql, values).rowcount > 0

        found: bool = self._database.write(change).result()
        with self._lock:
            self._known = {hash_: who for hash_, who in self._known.items() if who.token_id != token_id}
        return found

    def list(self) -> list[TokenRow]:
        """All that were ever made."""
        rows = self._database.read("SELECT * FROM tokens ORDER BY id")
        return [TokenRow(**{name: row[name] for name in TokenRow.__slots__}) for row in rows]

    def find(self, token: str) -> Identity | None:
        """Whose it is. Looked up by hash, of which a guesser controls no part, so time tells nothing."""
        return self._known.get(_hash(token))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _check(user: str, role: str, note: str) -> None:
    if not _USER.fullmatch(user):
        raise InputError(
            f"user {user[:80]!r} cannot be a name",
            hint="1 to 64 of letters, digits, '.', '_' and '-', not beginning with '-'",
        )
    if role not in list(Role):
        raise InputError(f"unknown role {role[:80]!r}", hint=did_you_mean(role, list(Role)))
    if len(note) > _MOST_NOTE or not note.isprintable():
        raise InputError(f"note {note[:80]!r} is too long or cannot be printed", hint=f"up to {_MOST_NOTE} characters")


def as_dict(row: TokenRow) -> dict[str, Any]:
    """As JSON has it."""
    return {name: getattr(row, name) for name in TokenRow.__slots__}

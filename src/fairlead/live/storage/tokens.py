"""Who may ask: bearer tokens, each with a user's name and a role. Shown once when made, kept as a hash.

A token is 256 random bits, so there is nothing to guess and no dictionary to try: one round of SHA-256 keeps it as well
as a slow hash would, and costs a microsecond instead of a tenth of a second for each request. All that stand are held
in memory, so no request waits for the disk to be let in; only the controller's process makes and revokes them.

A token stands until a moment that is set when it is made, or until it is revoked. To rotate one makes another for the
same user and role, and has the old one stand for a while longer, or not at all.
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
from fairlead.live.storage import audit
from fairlead.live.storage.audit import Act
from fairlead.live.storage.database import Database

PREFIX = "fl_"
"""So that a token that has leaked into a log or a repository can be found."""
MOST_LIFE_S = 36500 * 86400.0
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
    """Who a token stands for, and what they may do."""

    token_id: int
    user: str
    role: Role
    expires_at_s: float | None = None
    """When it ends, as time of day; None: never."""

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
    expires_at_s: float | None


class Tokens:
    """The tokens of one controller. Calls may come from any thread."""

    def __init__(self, database: Database, *, wall_s: Callable[[], float] = time.time) -> None:
        self._database, self._wall_s = database, wall_s
        self._lock = threading.Lock()
        self._known: dict[str, Identity] = {}
        """Those that are not revoked, by their hash."""
        for row in database.read("SELECT id, user, role, hash, expires_at_s FROM tokens WHERE revoked_at_s IS NULL"):
            self._known[row["hash"]] = Identity(row["id"], row["user"], Role(row["role"]), row["expires_at_s"])

    def create(
        self, user: str, role: str, note: str = "", *, life_s: float | None = None, act: Act | None = None
    ) -> tuple[int, str]:
        """Its number, and the token itself, which nobody can show again. It stands for `life_s`; None: for ever."""
        _check(user, role, note)
        now_s = self._wall_s()
        expires_at_s = None if life_s is None else now_s + life_s
        token = PREFIX + secrets.token_urlsafe(_BYTES)
        values = (user, role, _hash(token), note, now_s, expires_at_s)
        sql = "INSERT INTO tokens (user, role, hash, note, created_at_s, expires_at_s) VALUES (?, ?, ?, ?, ?, ?)"

        def change(connection: sqlite3.Connection) -> int | None:
            audit.insert(connection, act, now_s)
            return connection.execute(sql, values).lastrowid

        made: int = self._database.write(change).result()
        with self._lock:
            self._known[values[2]] = Identity(made, user, Role(role), expires_at_s)
        return made, token

    def rotate(self, token_id: int, *, keep_s: float, life_s: float | None, act: Act | None) -> tuple[int, str] | None:
        """Another one for the same user and role; the old one stands for `keep_s` more. None: there is none to rotate.

        It stands for `life_s`, but for ever where the old one did.
        """
        rows = self._database.read("SELECT * FROM tokens WHERE id = ? AND revoked_at_s IS NULL", (token_id,))
        if not rows or self._has_ended(rows[0]["expires_at_s"]):
            return None
        user, role, note, ends_at_s = (rows[0][name] for name in ("user", "role", "note", "expires_at_s"))
        made = self.create(user, role, note, life_s=None if ends_at_s is None else life_s, act=act)
        if keep_s <= 0.0:
            self.revoke(token_id)
        else:
            self._expire(token_id, self._wall_s() + keep_s)
        return made

    def revoke(self, token_id: int, *, act: Act | None = None) -> bool:
        """From now on it lets nobody in; whether there was such a token, revoked before or not."""
        sql = "UPDATE tokens SET revoked_at_s = coalesce(revoked_at_s, ?) WHERE id = ?"
        now_s = self._wall_s()

        def change(connection: sqlite3.Connection) -> bool:
            audit.insert(connection, act, now_s)
            return connection.execute(sql, (now_s, token_id)).rowcount > 0

        found: bool = self._database.write(change).result()
        with self._lock:
            self._known = {hash_: who for hash_, who in self._known.items() if who.token_id != token_id}
        return found

    def list(self) -> list[TokenRow]:
        """All that were ever made."""
        rows = self._database.read("SELECT * FROM tokens ORDER BY id")
        return [TokenRow(**{name: row[name] for name in TokenRow.__slots__}) for row in rows]

    def find(self, token: str) -> Identity | None:
        """Whose it is, if it stands. By hash, of which a guesser controls no part, so time tells nothing."""
        found = self._known.get(_hash(token))
        return None if found is None or self._has_ended(found.expires_at_s) else found

    def standing(self, token_id: int) -> Identity | None:
        """Whose token has this number, if it stands."""
        found = next((who for who in tuple(self._known.values()) if who.token_id == token_id), None)
        return None if found is None or self._has_ended(found.expires_at_s) else found

    def ended(self, token: str) -> Identity | None:
        """Whose it was, where it has ended by itself; whoever has it may know."""
        found = self._known.get(_hash(token))
        return found if found is not None and self._has_ended(found.expires_at_s) else None

    def _has_ended(self, expires_at_s: float | None) -> bool:
        return expires_at_s is not None and self._wall_s() >= expires_at_s

    def _expire(self, token_id: int, at_s: float) -> None:
        """Have it end then, unless it ends before."""
        sql = "UPDATE tokens SET expires_at_s = min(coalesce(expires_at_s, ?1), ?1) WHERE id = ?2"
        self._database.write(lambda connection: connection.execute(sql, (at_s, token_id)) and None).result()
        with self._lock:
            self._known = {
                hash_: who
                if who.token_id != token_id
                else Identity(who.token_id, who.user, who.role, min(at_s, who.expires_at_s or at_s))
                for hash_, who in self._known.items()
            }


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
    """A token as answers show it, without the token itself."""
    return {name: getattr(row, name) for name in TokenRow.__slots__}

"""Sessions of the page: what a browser has instead of a token.

A session stands for a token, for some hours at the most, and ends with that token. Its two halves are kept as hashes:
the cookie, which no script can read, and the key, which the page keeps for its own origin and sends as a header.
Cookies go to every port of a host; the key does not, so a server beside this one learns nothing that it could use.

A code signs in once, within minutes: `fairlead page` puts one into a link, so that nobody has to paste a token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairlead.live.storage import audit
from fairlead.live.storage.audit import Act
from fairlead.live.storage.database import Database
from fairlead.live.storage.tokens import Identity, Tokens

LIFE_S = 12 * 3600.0
CODE_S = 600.0
"""How long a code can be used."""
MOST_EACH = 50
"""Sessions of one token; the oldest goes when there are more."""
_MOST_CODES = 100
_COOKIE_BYTES, _KEY_BYTES, _CODE_BYTES = 32, 24, 24


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody signed in with a browser."""

    id: int
    token_id: int
    key_hash: str
    created_at_s: float
    expires_at_s: float
    source: str
    """The address that it was begun from."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A new session; its cookie and its key are shown this once."""

    session: Session
    cookie: str
    key: str


class Sessions:
    """Those of one controller. Calls may come from any thread."""

    def __init__(
        self,
        database: Database,
        tokens: Tokens,
        *,
        life_s: float = LIFE_S,
        wall_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database, self._tokens, self._life_s, self._wall_s, self._clock = database, tokens, life_s, wall_s, clock
        self._lock = threading.Lock()
        self._known: dict[str, Session] = {}
        """By the hash of the cookie."""
        self._codes: dict[str, tuple[int, float]] = {}
        """By their hash: whose, and until when on the clock."""
        for row in database.read("SELECT * FROM sessions"):
            self._known[row["hash"]] = Session(**{name: row[name] for name in Session.__slots__})

    def begin(self, who: Identity, source: str, act: Act | None = None) -> Begun:
        """For somebody whose token stands; it is on the disk when this returns."""
        now_s = self._wall_s()
        expires_at_s = min(now_s + self._life_s, who.expires_at_s or float("inf"))
        cookie, key = secrets.token_urlsafe(_COOKIE_BYTES), secrets.token_urlsafe(_KEY_BYTES)
        values = (_hash(cookie), _hash(key), who.token_id, now_s, expires_at_s, source)
        over = self._over(who.token_id, now_s)
        sql = (
            "INSERT INTO sessions (hash, key_hash, token_id, created_at_s, expires_at_s, source)"
            " VALUES (?, ?, ?, ?, ?, ?)"
        )

        def change(connection: sqlite3.Connection) -> int | None:
            audit.insert(connection, act, now_s)
            connection.executemany("DELETE FROM sessions WHERE id = ?", [(number,) for number in over])
            return connection.execute(sql, values).lastrowid

        number: int = self._database.write(change).result()
        session = Session(number, who.token_id, values[1], now_s, expires_at_s, source)
        with self._lock:
            self._known = {h: s for h, s in self._known.items() if s.id not in over} | {values[0]: session}
        return Begun(session, cookie, key)

    def find(self, cookie: str, key: str) -> tuple[Session, Identity] | None:
        """Whose it is, where both halves belong together, it has not ended, and its token stands."""
        session = self._known.get(_hash(cookie))
        if session is None or not hmac.compare_digest(_hash(key), session.key_hash):
            return None
        who = self.identity(session)
        return None if who is None else (session, who)

    def identity(self, session: Session) -> Identity | None:
        """Who is behind a session that was found before; None once it has ended."""
        known = any(one.id == session.id for one in tuple(self._known.values()))
        if not known or self._wall_s() >= session.expires_at_s:
            return None
        return self._tokens.standing(session.token_id)

    def end(self, ended: Callable[[Session], bool], act: Act | None = None) -> int:
        """From now on these let nobody in; gives how many there were."""
        gone = {s.id for s in tuple(self._known.values()) if ended(s)}
        now_s = self._wall_s()

        def change(connection: sqlite3.Connection) -> None:
            audit.insert(connection, act, now_s)
            connection.executemany("DELETE FROM sessions WHERE id = ?", [(number,) for number in gone])

        with self._lock:
            self._known = {h: s for h, s in self._known.items() if s.id not in gone}
        self._database.write(change).result()
        return len(gone)

    def make_code(self, who: Identity) -> str:
        """For one sign-in as this caller, soon."""
        code, now_s = secrets.token_urlsafe(_CODE_BYTES), self._clock()
        with self._lock:
            self._codes = {h: c for h, c in self._codes.items() if c[1] > now_s}
            while len(self._codes) >= _MOST_CODES:
                del self._codes[next(iter(self._codes))]
            self._codes[_hash(code)] = (who.token_id, now_s + CODE_S)
        return code

    def redeem(self, code: str) -> Identity | None:
        """Whose code it is; it is used up."""
        with self._lock:
            token_id, until_s = self._codes.pop(_hash(code), (0, 0.0))
        return self._tokens.standing(token_id) if self._clock() < until_s else None

    def _over(self, token_id: int, now_s: float) -> set[int]:
        """Those that have expired, and of this token the oldest where there would be too many."""
        known = tuple(self._known.values())
        over = {s.id for s in known if s.expires_at_s <= now_s}
        own = sorted(s.id for s in known if s.token_id == token_id and s.id not in over)
        return over | set(own[: max(len(own) + 1 - MOST_EACH, 0)])


def as_dict(session: Session) -> dict[str, Any]:
    """A session as answers show it."""
    return {name: getattr(session, name) for name in ("id", "created_at_s", "expires_at_s", "source")}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()

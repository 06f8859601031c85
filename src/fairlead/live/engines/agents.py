"""Talking to node agents: one request at a time over their socket, and a thread per node that waits for news."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fairlead.errors import InputError
from fairlead.live.engine import EngineError

Status = Mapping[str, Any]
"""What an agent tells of its node; `node/host.py` makes it."""
NO_EVENTS = 2**62
"""More than any event's number."""
_ANSWER_S = 10.0
_START_S = 90.0
"""A launcher gives a supervisor a minute to come up."""
_WAIT_S = 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


class AgentAwayError(EngineError):
    """Nobody answers there."""


class _UnknownError(InputError):
    """What was asked for is not there."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(str(self._path))


class AgentClient:
    """One agent, by its socket. A request that fails may have been carried out; all of them can be repeated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: http.client.HTTPConnection | None = None

    def status(self, events_after: int) -> Status:
        """How its node stands now."""
        found: Status = json.loads(self._ask("GET", f"/status?events_after={events_after}", None, _ANSWER_S))
        return found

    def news(self, after: str) -> Status:
        """The same, once something differs from that revision, or after a while. One thread only; see `interrupt`."""
        query = urlencode({"after": after, "wait_s": _WAIT_S, "events_after": NO_EVENTS})
        connection = self._waiting = self._connection(_WAIT_S + _ANSWER_S)
        try:
            found: Status = json.loads(self._exchange(connection, "GET", f"/status?{query}", None))
        finally:
            self._waiting = None
        return found

    def interrupt(self) -> None:
        """Make `news` fail now."""
        connection = self._waiting
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def post(self, what: str, about: Mapping[str, Any]) -> None:
        """Have something done: start, stop, forget, remove, sleep or wake."""
        self._ask("POST", f"/{what}", json.dumps(about).encode(), _START_S if what == "start" else _ANSWER_S)

    def log(self, job_id: int, attempt: int, stream: str, offset: int, limit: int) -> bytes | None:
        """A piece of what a job wrote there; None where it never ran."""
        asked = {"job_id": job_id, "attempt": attempt, "stream": stream, "offset": offset, "limit": limit}
        try:
            return self._ask("GET", f"/log?{urlencode(asked)}", None, _ANSWER_S)
        except _UnknownError:
            return None

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return _UnixConnection(self.path, timeout_s)

    def _ask(self, method: str, where: str, body: bytes | None, timeout_s: float) -> bytes:
        return self._exchange(self._connection(timeout_s), method, where, body)

    def _exchange(self, connection: http.client.HTTPConnection, method: str, where: str, body: bytes | None) -> bytes:
        try:
            connection.request(method, where, body, {"Connection": "close"})
            answer = connection.getresponse()
            found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise AgentAwayError(f"the agent at {self.path} does not answer: {error}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise _complaint(answer.status, found)
        return found


def _complaint(code: int, said: bytes) -> InputError | EngineError:
    try:
        found = json.loads(said)
        message, hint = str(found["error"]), found.get("hint")
    except (ValueError, KeyError, TypeError):
        message, hint = f"the agent answered {code}", None
    kinds: dict[int, type[InputError | EngineError]] = {400: InputError, 404: _UnknownError}
    return kinds.get(code, EngineError)(message, hint=hint)


class Watcher:
    """One node's thread: it waits for news, and where the agent is away it has it brought back.

    `bring` starts the agent or finds it, and raises where that fails; `on_news` is called with every change, also
    between answering and not.
    """

    def __init__(self, client: AgentClient, bring: Callable[[], None], on_news: Callable[[], None], name: str) -> None:
        self.client = client
        self.latest: Status | None = None
        """As last told; None while the agent is away."""
        self._bring, self._on_news = bring, on_news
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)

    def start(self) -> None:
        """From now on."""
        self.latest = self.client.status(NO_EVENTS)
        self._thread.start()

    def lost(self) -> None:
        """Somebody found that it does not answer."""
        if self.latest is not None:
            self.latest = None
            self.client.interrupt()

    def close(self) -> None:
        """Watch no more."""
        self._closing.set()
        until_s = time.monotonic() + 5.0
        while self._thread.is_alive() and time.monotonic() < until_s:
            self.client.interrupt()
            self._thread.join(0.05)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set():
            latest = self.latest
            try:
                if latest is None:
                    self._bring()
                found = self.client.news("" if latest is None else latest["revision"])
            except (EngineError, InputError):
                if latest is not None:
                    self.latest = None
                    self._on_news()
                self._closing.wait(pause_s)
                pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            is_new = latest is None or found["revision"] != latest["revision"]
            self.latest = found
            if is_new and not self._closing.is_set():
                self._on_news()

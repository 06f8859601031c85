"""Talking to node agents: one request at a time over their socket, and a thread per node that waits for news."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fairlead.errors import InputError
from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.node_source import NO_EVENTS, AgentAwayError, Status
from fairlead.node.identity import AttemptId

log = logging.getLogger("fairlead")
_ANSWER_S = 10.0
_START_S = 90.0
"""A launcher gives a supervisor a minute to come up."""
_WAIT_S = 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


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
        self._open: set[http.client.HTTPConnection] = set()
        """Those that wait for an answer; sets are changed in one step, so that any thread may look."""

    def status(self, events_after: int, event_log: str | None = None) -> Status:
        """How its node stands now, with the events after this one of its event log; of another one, all it has."""
        query = urlencode({"events_after": events_after, **({} if event_log is None else {"event_log": event_log})})
        found: Status = json.loads(self._ask("GET", f"/status?{query}", None, _ANSWER_S))
        return found

    def news(self, after: str) -> Status:
        """The same, once something differs from that revision, or after a while."""
        query = urlencode({"after": after, "wait_s": _WAIT_S, "events_after": NO_EVENTS})
        found: Status = json.loads(self._ask("GET", f"/status?{query}", None, _WAIT_S + _ANSWER_S))
        return found

    def interrupt(self) -> None:
        """Make everything fail now that waits for an answer."""
        for connection in tuple(self._open):
            if (waiting := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    waiting.shutdown(socket.SHUT_RDWR)

    def post(self, what: str, about: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have something done: start, stop, forget, remove, sleep or wake."""
        said = self._ask("POST", f"/{what}", json.dumps(about).encode(), _START_S if what == "start" else _ANSWER_S)
        answer: Mapping[str, Any] = json.loads(said)
        return answer

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of there."""
        return int(json.loads(self._ask("GET", "/known", None, _ANSWER_S))["highest_job_id"])

    def log(self, attempt: AttemptId, stream: str, offset: int, limit: int) -> bytes | None:
        """A piece of what a job wrote there; None where it never ran."""
        asked = {"id": str(attempt), "stream": stream, "offset": offset, "limit": limit}
        try:
            return self._ask("GET", f"/log?{urlencode(asked)}", None, _ANSWER_S)
        except _UnknownError:
            return None

    def _ask(self, method: str, where: str, body: bytes | None, timeout_s: float) -> bytes:
        connection = _UnixConnection(self.path, timeout_s)
        self._open.add(connection)
        try:
            connection.request(method, where, body, {"Connection": "close"})
            answer = connection.getresponse()
            found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise AgentAwayError(f"the agent at {self.path} does not answer: {error}") from None
        finally:
            self._open.discard(connection)
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
    """One node's thread, and the link to its agent: it waits for news, and has an agent that is away brought back.

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

    def start(self) -> Status:
        """From now on; gives how its node stands."""
        found = self.latest = self.client.status(NO_EVENTS)
        self._thread.start()
        return found

    def status(self, events_after: int, event_log: str | None = None) -> Status:
        """How its node stands now, asked anew."""
        return self.client.status(events_after, event_log)

    def post(self, what: str, about: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the agent do something: start, stop, forget and so on."""
        return self.client.post(what, about)

    def log(self, attempt: AttemptId, stream: str, offset: int, limit: int) -> bytes | None:
        """A piece of what a job wrote there; None where it never ran."""
        return self.client.log(attempt, stream, offset, limit)

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of there."""
        return self.client.highest_job_id()

    def lost(self) -> None:
        """Somebody found that it does not answer: nobody else need wait for that either, for a start above all."""
        if self.latest is not None:
            self.latest = None
            self.client.interrupt()

    def close(self) -> None:
        """End the thread; its node is no longer watched."""
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
                is_new = latest is None or found["revision"] != latest["revision"]
            except Exception as error:  # whatever it is, no descriptors left for instance: nobody else brings it back
                if not isinstance(error, (EngineError, InputError)):
                    log.warning("the agent at %s cannot be watched: %s", self.client.path, error)
                if latest is not None:
                    self.latest = None
                    self._tell()
                self._closing.wait(pause_s)
                pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)
                continue
            pause_s = _FIRST_PAUSE_S
            self.latest = found
            if is_new and not self._closing.is_set():
                self._tell()

    def _tell(self) -> None:
        try:
            self._on_news()
        except Exception:
            log.exception("the news of the agent at %s are lost", self.client.path)

"""How services tell the node agent of their latency: a small Python call, or a page of their own that it asks for.

In the service:

    from fairlead import job
    job.latency(0.0063)                     # one request's latency in seconds, as often as you like

which costs some ten microseconds and never blocks or raises: where no agent listens the report is lost. Services in
other languages send the same JSON as a datagram, {"key": "...", "latency_s": 0.0063}, or have a page (`scrape`).

The key is FAIRLEAD_LAUNCH of the service's environment, a random text of this very start. It says who speaks: forked
workers and containers have it too, and another user's job cannot read it. A report without a known key is dropped
before it takes anybody's room.

In the agent both are a `Source`: ask it for what has come in since the last time.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fairlead.node.identity import AttemptId

_MOST_BYTES = 4096
_MOST_WAITING = 1000
"""Reports of one service between two polls; the newest are kept, so that no service can crowd out another."""
MOST_LATENCY_S = 1e6
_GARBAGE_BEFORE_PAUSE, _PAUSE_S = 100, 0.01
"""Whoever floods the socket costs a hundredth of a core: 10,000 datagrams a second are looked at."""


@dataclass(frozen=True, slots=True)
class Report:
    """One word from a service."""

    service: AttemptId
    latency_s: float
    at_s: float
    """When it reached us, on the agent's clock."""


class Source(Protocol):
    """Something that brings reports of services' latencies."""

    def poll(self) -> list[Report]:
        """What has come in since the last time; never blocks."""
        ...

    def close(self) -> None:
        """Let go of sockets and threads."""
        ...


class Keys:
    """Who may report, by the key of each service's start. Calls may come from any thread."""

    def __init__(self) -> None:
        self._services: dict[str, AttemptId] = {}

    def add(self, key: str, service: AttemptId) -> None:
        """Take reports with this key as this service's."""
        self._services[key] = service

    def drop(self, service: AttemptId) -> None:
        """Take no more reports of this service."""
        for key in [key for key, name in list(self._services.items()) if name == service]:
            self._services.pop(key, None)

    def service_of(self, key: object) -> AttemptId | None:
        """Whose key this is; None where it is nobody's."""
        return self._services.get(key) if isinstance(key, str) else None


def parse(text: bytes | str, at_s: float, keys: Keys) -> Report | None:
    """A report as it is sent; None where it is none, or comes from nobody that may send one."""
    try:
        # Whole numbers as floats: one of thousands of digits is then infinite, and takes no time to convert.
        found = json.loads(text, parse_int=float)
        service, latency_s = keys.service_of(found["key"]), float(found["latency_s"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Report(service, latency_s, at_s) if service is not None and 0.0 <= latency_s <= MOST_LATENCY_S else None


class _Waiting:
    """Reports that nobody has asked for yet, so many of each service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: dict[AttemptId, deque[Report]] = {}

    def add(self, report: Report) -> None:
        with self._lock:
            self._reports.setdefault(report.service, deque(maxlen=_MOST_WAITING)).append(report)

    def take(self) -> list[Report]:
        with self._lock:
            found, self._reports = self._reports, {}
        return [report for reports in found.values() for report in reports]


class SocketSource:
    """Datagrams on a Unix socket of this machine, from services whose keys are known."""

    def __init__(self, path: Path, keys: Keys, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.refused = 0
        """Datagrams that were no report of a known service."""
        self._keys, self._clock = keys, clock
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o622)  # services of any user may write to it; their keys say who they are
        # The kernel keeps few datagrams, and a busy service sends hundreds between two polls.
        self._waiting = _Waiting()
        self._closing = False
        self._thread = threading.Thread(target=self._receive, name="latency-socket", daemon=True)
        self._thread.start()

    def poll(self) -> list[Report]:
        """The reports that have come in since the last time."""
        return self._waiting.take()

    def close(self) -> None:
        """End the thread, and remove the socket."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join(1.0)
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _receive(self) -> None:
        while not self._closing:
            try:
                found = parse(self._socket.recv(_MOST_BYTES), self._clock(), self._keys)
            except Exception:  # whatever it was: without this thread no service is heard any more
                found = None
                time.sleep(_PAUSE_S)
            if found is not None:
                self._waiting.add(found)
                continue
            self.refused += 1
            if self.refused % _GARBAGE_BEFORE_PAUSE == 0:
                time.sleep(_PAUSE_S)

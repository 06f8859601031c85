"""How services tell the node agent of their latency: a small Python call, an HTTP endpoint or a Prometheus scrape.

In the service:

    from fairlead import job
    job.latency(0.0063)                     # one request's latency in seconds, as often as you like

which costs some ten microseconds and never blocks or raises: where no agent listens the report is lost. Services in
other languages send the same JSON as a datagram, or `POST /latency` with {"service": "name", "latency_s": 0.0063}.

In the agent all three are a `Source`: ask it for what has come in since the last time.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from fairlead.job.place import LATENCY as ADDRESS
from fairlead.job.service import Reporter, report

__all__ = ["ADDRESS", "HttpSource", "Report", "Reporter", "SocketSource", "Source", "parse", "report"]

_MOST_BYTES = 4096
_MOST_WAITING = 100_000


@dataclass(frozen=True, slots=True)
class Report:
    """One word from a service."""

    service: str
    latency_s: float
    at_s: float
    """When it reached us, on the agent's clock."""


class Source(Protocol):
    """Where reports come from."""

    def poll(self) -> list[Report]:
        """What has come in since the last time; never blocks."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


def parse(text: bytes | str, at_s: float) -> Report | None:
    """A report as it is sent; None where it is none."""
    try:
        found = json.loads(text)
        service, latency_s = str(found["service"]), float(found["latency_s"])
    except (ValueError, KeyError, TypeError):
        return None
    return Report(service, latency_s, at_s) if 0.0 <= latency_s < float("inf") else None


class SocketSource:
    """Datagrams on a Unix socket of this machine."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o622)  # services of any user may write to it
        self._socket.setblocking(False)
        # The kernel keeps few datagrams, and a busy service sends hundreds between two polls.
        self._waiting: deque[Report] = deque(maxlen=_MOST_WAITING)
        self._closing = False
        self._thread = threading.Thread(target=self._receive, name="latency-socket", daemon=True)
        self._socket.setblocking(True)
        self._thread.start()

    def poll(self) -> list[Report]:
        """What has come in."""
        return _drain(self._waiting)

    def close(self) -> None:
        """Remove the socket."""
        self._closing = True
        with contextlib.suppress(OSError):
            waker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            waker.sendto(b"", str(self.path))
            waker.close()
        self._thread.join(1.0)
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    def _receive(self) -> None:
        while not self._closing:
            try:
                message = self._socket.recv(_MOST_BYTES)
            except OSError:
                return
            found = parse(message, self._clock())
            if found is not None:
                self._waiting.append(found)


class HttpSource:
    """`POST /latency`, on this machine only unless told otherwise."""

    def __init__(self, port: int = 0, host: str = "127.0.0.1", clock: Callable[[], float] = time.monotonic) -> None:
        waiting: deque[Report] = deque(maxlen=_MOST_WAITING)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                found = None
                if self.path == "/latency" and 0 < length <= _MOST_BYTES:
                    found = parse(self.rfile.read(length), clock())
                if found is not None:
                    waiting.append(found)
                self.send_response(204 if found is not None else 400)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._waiting = waiting
        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="latency-http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def poll(self) -> list[Report]:
        """What has come in."""
        return _drain(self._waiting)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


def _drain(waiting: deque[Report]) -> list[Report]:
    found = []
    with contextlib.suppress(IndexError):
        while True:
            found.append(waiting.popleft())
    return found

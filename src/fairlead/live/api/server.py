"""The server: uvicorn on a socket of ours, in the calling thread or in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import os
import socket
import threading
from collections.abc import Generator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from fairlead.errors import InputError
from fairlead.live.api.connection_limits import ConnectionLimits, Protocol
from fairlead.node.process.file_descriptors import descriptors

log = logging.getLogger("fairlead")
_LEAVE_S = 3
"""Requests that are under way when it stops may take this long."""
_RESERVE = 256
"""File descriptors that no connection gets: for the store, the agents and the logs."""


class Server:
    """Listens from the moment it is made; answers while `run` runs, or between `start` and `stop`."""

    def __init__(
        self,
        app: FastAPI,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls_cert: Path | None = None,
        tls_key: Path | None = None,
        uds: Path | None = None,
        connections: int = 1024,
        connections_each: int = 512,
    ) -> None:
        """`connections` in all, `connections_each` of one client; fewer where there are few file descriptors."""
        for path in (tls_cert, tls_key):
            if path is not None and not os.access(path, os.R_OK):
                raise InputError(f"cannot read {path}", hint="TLS needs a certificate and its key, as PEM files")
        if (tls_cert is None) != (tls_key is None):
            raise InputError("TLS needs both a certificate and its key, found one of them")
        self._uds = uds
        self._stopping: threading.Event = app.state.context.stopping
        self._socket = _listen(host, port) if uds is None else _listen_uds(uds)
        self.url = f"unix:{uds}" if uds is not None else _url(self._socket, host, has_tls=tls_cert is not None)
        """Where clients find it."""
        most = min(connections, max(descriptors() - _RESERVE, descriptors() // 2))
        self.limits = ConnectionLimits(most, min(connections_each, most))
        self._server = _Uvicorn(
            self.limits,
            uvicorn.Config(
                app,
                http=Protocol,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                ws="none",
                ssl_certfile=tls_cert,
                ssl_keyfile=tls_key,
                timeout_graceful_shutdown=_LEAVE_S,
            ),
        )
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Answer requests until `stop` is called."""
        collect_seldom()
        self._stopping.clear()
        try:
            self._server.run([self._socket])
        finally:
            self._socket.close()
            if self._uds is not None:
                self._uds.unlink(missing_ok=True)

    def start(self) -> None:
        """The same, in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """From any thread but its own: finish what is under way and let go."""
        self._stopping.set()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()


class _Uvicorn(uvicorn.Server):
    """Signals are the concern of whoever made it, and connections come through a door."""

    def __init__(self, limits: ConnectionLimits, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._limits = limits
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []  # of asyncio's own there are none
        loop, context = asyncio.get_running_loop(), self.config.ssl
        self._tasks = [loop.create_task(self._limits.serve(sock, self._protocol, context)) for sock in sockets or ()]
        self._tasks.append(loop.create_task(self._limits.watch()))
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    def _protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)


def collect_seldom() -> None:
    """Have Python look for cyclic garbage less often.

    What waits in the queue is no garbage, however often it is looked at: with 60,000 jobs the default thresholds cost
    half of the submissions a second (1,200 instead of 2,600) and pauses of half a second, and freed nothing.
    """
    gc.set_threshold(100_000, 20, 20)


def _url(listening: socket.socket, host: str, *, has_tls: bool) -> str:
    if not has_tls and not _is_loopback(host):
        log.warning(
            "listening on %s without TLS: tokens and jobs can be read by whoever sees the network;"
            " give a certificate and its key, or put a proxy with TLS before it",
            host,
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if has_tls else 'http'}://{shown}:{listening.getsockname()[1]}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(f"cannot listen on {host}:{port}: {error}", hint="give an address of this machine") from None
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)
    except OSError as error:
        made.close()
        hint = "is another controller running there? give another port" if error.errno == errno.EADDRINUSE else None
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint) from None
    return made


def _listen_uds(path: Path) -> socket.socket:
    """For the account that runs it only. A socket that nobody answers on is a dead controller's."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            with contextlib.suppress(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as there:
                there.connect(str(path))
                raise InputError(f"another controller answers on {path}")
            path.unlink()
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(2048)
    except OSError as error:
        made.close()
        raise InputError(f"cannot listen on {path}: {error.strerror or error}") from None
    except InputError:
        made.close()
        raise
    return made

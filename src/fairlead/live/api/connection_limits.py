"""The door of the HTTP server: how many connections there are, in all and of each client, and how long they may idle.

Who connects and says nothing, or says it a byte at a time, costs a file descriptor and some memory. There is room for a
number of such; when there is no more, whoever has kept it waiting the longest goes, and the newcomer comes in. So a
thousand half-open connections shut nobody out, and what the store and the agents need of descriptors is never touched.
Counted before TLS, which would give each of them a minute for its handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

log = logging.getLogger("fairlead")
REQUEST_S = 30.0
"""A request has to be there by then, headers and body, counted from the connection or from the answer before."""
ANSWER_S = 150.0
"""And its answer has to be read by then; the longest that anybody waits for events is a minute."""
MOST_HEAD = 64 * 1024
"""Bytes of a request line and its headers."""
_LOOK_S = 1.0
_AGAIN_S = 0.1
"""After an accept that failed: there are no descriptors, say."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
Clock = Callable[[], float]


class HttpConnection:
    """One connection, from its accept on."""

    def __init__(self, sock: socket.socket, client: str, since_s: float) -> None:
        self.client, self.since_s = client, since_s
        """Who it is, and since when a request is waited for."""
        self.protocol: Protocol | None = None
        """None until TLS is settled."""
        self._socket = sock

    @property
    def is_answered(self) -> bool:
        """Whether its request is all there, and the answer is not."""
        return self.protocol is not None and self.protocol.is_answering

    def end(self) -> None:
        """Cut the connection off without an answer."""
        transport = None if self.protocol is None else self.protocol.transport
        if transport is not None:
            transport.abort()
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


class ConnectionLimits:
    """Lets connections in, up to `most` in all and `most_each` of one client."""

    def __init__(self, most: int, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self.inside: OrderedDict[HttpConnection, None] = OrderedDict()
        """Whoever has kept us waiting the longest first."""
        self._clients: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._now_s: Clock = lambda: asyncio.get_running_loop().time()

    async def serve(
        self, listening: socket.socket, make: Callable[[], Protocol], context: ssl.SSLContext | None
    ) -> None:
        """Accept for ever, whatever happens; `make` gives a protocol for each connection."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
                sock.setblocking(False)
                visit = self.enter(sock, client_of(sock, address))
                if visit is None:
                    _refuse(sock, context)
                else:
                    task = loop.create_task(self._connect(visit, sock, make, context))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            except Exception as error:  # descriptors, above all: a server that accepts nothing more is worse
                log.warning("cannot accept a connection: %s", error)
                self.make_room(self.inside)
                await asyncio.sleep(_AGAIN_S)

    async def watch(self) -> None:
        """Cut off, for ever, who keeps us waiting for too long."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._now_s()
            for visit in list(self.inside):
                if now_s - visit.since_s > (ANSWER_S if visit.is_answered else REQUEST_S):
                    visit.end()

    def enter(self, sock: socket.socket, client: str) -> HttpConnection | None:
        """Let somebody in, and another one go if there is no room; None where all are being answered."""
        if self._clients.get(client, 0) >= self.most_each:
            crowd: str | None = client
        elif len(self.inside) >= self.most:
            crowd = max(self._clients, key=self._clients.__getitem__)
        else:
            crowd = None
        if crowd is not None and not self.make_room([v for v in self.inside if v.client == crowd]):
            return None
        visit = HttpConnection(sock, client, self._now_s())
        self.inside[visit] = None
        self._clients[client] = self._clients.get(client, 0) + 1
        return visit

    def make_room(self, crowd: Any) -> bool:
        """End the first of them that is not being answered."""
        for visit in crowd:
            if not visit.is_answered:
                self.leave(visit)
                visit.end()
                return True
        return False

    def leave(self, visit: HttpConnection) -> None:
        """A connection is closed: it no longer counts for its client."""
        if visit not in self.inside:
            return
        del self.inside[visit]
        self._clients[visit.client] -= 1
        if not self._clients[visit.client]:
            del self._clients[visit.client]

    def answered(self, visit: HttpConnection) -> None:
        """From now on its next request is waited for."""
        visit.since_s = self._now_s()
        if visit in self.inside:
            self.inside.move_to_end(visit)

    async def _connect(
        self, visit: HttpConnection, sock: socket.socket, make: Callable[[], Protocol], context: ssl.SSLContext | None
    ) -> None:
        def made() -> Protocol:
            protocol = make()
            protocol.visit, protocol.limits = visit, self
            return protocol

        handshake_s = None if context is None else REQUEST_S
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                made, sock, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except Exception:  # it is gone already, or speaks no TLS
            self.leave(visit)
            sock.close()


class Protocol(HttpToolsProtocol):
    """HTTP of one connection that a door has let in."""

    visit: HttpConnection
    limits: ConnectionLimits
    _head = 0
    """Bytes of a head that is not complete."""

    @property
    def is_answering(self) -> bool:
        """Whether a request is all there and its answer is being made; one that is only not read does not count."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        return self.transport.get_write_buffer_size() == 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is there, TLS settled."""
        super().connection_made(transport)
        self.visit.protocol = self
        if self.visit not in self.limits.inside:  # it had to go meanwhile
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read on, up to what a head may have."""
        is_body = self.cycle is not None and self.cycle.more_body
        self._head += 0 if is_body else len(data)
        super().data_received(data)
        if self._head > MOST_HEAD:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """The head of a request is whole: what follows is its body."""
        self._head = 0
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """A request is answered: the connection is idle until the next one."""
        self.limits.answered(self.visit)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed: it no longer counts."""
        self.limits.leave(self.visit)
        super().connection_lost(exc)


def client_of(sock: socket.socket, address: Any) -> str:
    """Who counts as one: an address, of IPv6 a network that one customer gets, of a Unix socket the account."""
    if sock.family == socket.AF_UNIX:
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return f"uid {uid}"
    found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if found.version == 4:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def _refuse(sock: socket.socket, context: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError):
        if context is None:
            sock.send(_FULL)
    sock.close()

"""A network between agents and their controller that can be cut: what comes while it is cut is dropped."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Listens on a port of its own and passes bytes to `to`, on loopback."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._other: dict[socket.socket, socket.socket] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._thread.join(5)
        for one in (*self._other, self._listener):
            one.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._listener, selectors.EVENT_READ)
            while not self._closing:
                for key, _ in waiting.select(0.1):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    self._accept(waiting) if one is self._listener else self._pass(waiting, one)

    def _accept(self, waiting: selectors.BaseSelector) -> None:
        came, _ = self._listener.accept()
        try:
            going = socket.create_connection(("127.0.0.1", self._to), 2)
        except OSError:
            came.close()
            return
        for one, other in ((came, going), (going, came)):
            self._other[one] = other
            waiting.register(one, selectors.EVENT_READ)

    def _pass(self, waiting: selectors.BaseSelector, one: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = one.recv(1 << 16)
        other = self._other.get(one)
        if data and self.is_cut:
            return  # dropped, and nobody is told
        if data and other is not None:
            with contextlib.suppress(OSError):
                other.sendall(data)
                return
        for end in (one, other):
            if end is not None and end in self._other:
                del self._other[end]
                waiting.unregister(end)
                end.close()

"""The connections of an agent's server: how many there are, and how long one may keep it waiting for a request.

Each has a thread. Who connects and says nothing, or says it a byte at a time, is cut off after a while, and at once
when there are too many: whoever has been waited for the longest goes first, and callers that have shown that they may
ask do not go at all while they are answered.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

MOST = 64
REQUEST_S = 30.0
"""A request has to be there by then."""


class Connections:
    """Counts a server's connections, and cuts off those that ask nothing."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._since_s: OrderedDict[socket.socket, float] = OrderedDict()
        """Since when a request is waited for, the longest first."""
        self._known: set[socket.socket] = set()
        """Those that are being answered."""

    def came(self, connection: socket.socket) -> None:
        """Count it in, and have another go where there are too many."""
        with self._lock:
            self._since_s[connection] = self._clock()
            if len(self._since_s) > self._most:
                self._cut(next(one for one in self._since_s if one not in self._known))

    def left(self, connection: socket.socket) -> None:
        """A connection is closed: count it out."""
        with self._lock:
            self._since_s.pop(connection, None)
            self._known.discard(connection)

    @contextlib.contextmanager
    def known(self, connection: socket.socket) -> Iterator[None]:
        """It may ask, and is answered now; afterwards it is waited for anew."""
        with self._lock:
            self._known.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._known.discard(connection)
                if connection in self._since_s:
                    self._since_s[connection] = self._clock()
                    self._since_s.move_to_end(connection)

    def sweep(self) -> None:
        """Cut off who has been waited for for too long."""
        with self._lock:
            for connection, since_s in list(self._since_s.items()):
                if connection not in self._known and self._clock() - since_s > REQUEST_S:
                    self._cut(connection)

    def _cut(self, connection: socket.socket) -> None:
        """Count it out; its thread reads the end of it, and closes it."""
        del self._since_s[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

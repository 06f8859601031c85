"""How a service tells the node's agent of its latency: one datagram for each request."""

from __future__ import annotations

import json
import os
import socket

from fairlead.job.place import LATENCY, LAUNCH


class Reporter:
    """The service's end of the socket. `key` is that of this start of the service, which the agent knows it by."""

    def __init__(self, address: str, key: str) -> None:
        self._address = address
        self._key = key
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    @classmethod
    def from_environment(cls) -> Reporter:
        """For a job that the agent has started."""
        return cls(os.environ.get(LATENCY, ""), os.environ.get(LAUNCH, ""))

    def report(self, latency_s: float) -> bool:
        """Tell it; False where nobody listens or the agent is behind."""
        message = json.dumps({"key": self._key, "latency_s": latency_s}).encode()
        try:
            self._socket.sendto(message, self._address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let the socket go; later reports are lost."""
        self._socket.close()


_default: Reporter | None = None


def report(latency_s: float) -> bool:
    """Report one request's latency in seconds, as often as you like.

    It costs some ten microseconds and never blocks or raises; False where the report was lost, because no agent listens
    or it is behind.
    """
    global _default
    try:
        if _default is None:
            _default = Reporter.from_environment()
        return _default.report(float(latency_s))
    except Exception:  # no socket left, or a value of the user's that is no number
        return False

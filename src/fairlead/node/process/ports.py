"""Ports at which the processes of a job find each other."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Container

from fairlead.errors import RunError

_FIRST, _PORTS = 12_000, 18_000
"""Under those that the kernel gives to anybody (32768 and up)."""
_TRIES = 200
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Where the kernel has the family but no address of it."""


def free_port(taken: Container[int]) -> int:
    """A port that nobody listens on here and nobody can guess, other than those `taken`.

    A job that binds it does so seconds later, so one that was given out counts as taken while its job runs.
    """
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_PORTS)
        if port not in taken and _is_free(port):
            return port
    raise RunError(
        f"no free port from {_FIRST} to {_FIRST + _PORTS - 1} in {_TRIES} tries",
        hint="see who listens there: ss -ltn",
    )


def _is_free(port: int) -> bool:
    """As the job would find it: on all addresses, of both families where there are both."""
    families = [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    for family, address in families if socket.has_ipv6 else families[:1]:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                if family is socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind((address, port))
        except OSError as error:
            if family is socket.AF_INET6 and error.errno in _NO_IPV6:
                continue
            return False
    return True

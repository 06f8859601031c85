"""File descriptors: a process that serves others needs more than the 1,024 that it is given."""

from __future__ import annotations

import contextlib
import resource

_ENOUGH = 65536
"""More is of no use to us, and jobs inherit it: programs that close all that they may have would be slow."""


def raise_limit() -> int:
    """Allow this process as many as its hard limit does; gives how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptors()


def descriptors() -> int:
    """How many this process may have open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft

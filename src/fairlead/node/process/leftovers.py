"""Ends what a job leaves behind, however it tries to get away. For its supervisor, which has one thread.

The supervisor is a subreaper: a process of the job whose parent ends becomes the supervisor's child, whatever session
or group it made for itself. So there is something left exactly as long as the supervisor has children, and the kernel
itself says when it has none. One that forks and ends every fraction of a millisecond is hardly ever in a list of all
processes, which takes milliseconds; the list of our own children is read in microseconds, until a kill hits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from fairlead.node.process.processes import descendants, processes, send

STRAGGLER_GRACE_S = 5.0
"""What a finished job's left-over processes get between SIGTERM and SIGKILL."""
_POLITE_S = 0.02
_HUNT_S = 0.2
_LONGEST_REST_S = 1.0


def sweep(grace_s: float, cgroup: str | None = None, meanwhile: Callable[[], None] = lambda: None) -> None:
    """End all that is below us: each is told once, then killed. Returns when nothing is left, and never before.

    What cannot be killed, since it sits in a driver for instance, may be on a GPU: nobody else should get that.
    """
    since_s = time.monotonic()
    told: set[int] = set()
    rest_s = _POLITE_S
    while reap() or is_populated(cgroup):
        meanwhile()
        if time.monotonic() - since_s < grace_s:
            for one in descendants([os.getpid()], processes()):
                if not one.has_ended and one.pid not in told:
                    told.add(one.pid)
                    send(one.pid, one.start_ticks, signal.SIGTERM)
            time.sleep(_POLITE_S)
            continue
        kill_cgroup(cgroup)
        # Who sits in the kernel is not hit by more blows: the same few as before can wait longer and longer.
        rest_s = _POLITE_S if hunt() else min(2.0 * rest_s, _LONGEST_REST_S)
        time.sleep(rest_s if reap() else 0.0)


def hunt(for_s: float = _HUNT_S) -> bool:
    """Kill our children and whoever they leave to us, again and again; whether new ones kept coming."""
    until_s = time.monotonic() + for_s
    own_group = os.getpgrp()
    seen: set[int] = set()
    while time.monotonic() < until_s:
        found = children()
        if not found and not reap():
            return False
        has_new = not found  # the kernel's list may miss one that comes while it is made
        for pid in found:
            has_new = has_new or pid not in seen
            seen.add(pid)
            # Nobody's number is given to another before we have asked for its exit code, so it is the one we saw.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                group = os.getpgid(pid)
                if group != own_group:
                    os.killpg(group, signal.SIGKILL)  # in one blow: none of a group can fork away from that
        reap()
        if not has_new:
            time.sleep(0.001)
            if not set(children()) - seen:
                return False
    return True


def reap() -> bool:
    """Take the exit codes of children that have ended; whether others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """The numbers of our own children, also of those that have ended."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [one.pid for one in processes() if one.parent == me]
    except ProcessLookupError:
        return []


def kill_cgroup(folder: str | None) -> None:
    """All processes in it at once or, where the kernel cannot (before 5.14), one after the other."""
    if folder is None:
        return
    try:
        with open(os.path.join(folder, "cgroup.kill"), "r+b", buffering=0) as file:
            file.write(b"1")
    except OSError:
        for pid in members(folder):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def members(folder: str) -> list[int]:
    """The processes in it, without those below."""
    try:
        with open(os.path.join(folder, "cgroup.procs"), "rb") as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


def is_populated(folder: str | None) -> bool:
    """Whether a process is left in it or below."""
    if folder is None:
        return False
    try:
        with open(os.path.join(folder, "cgroup.events"), encoding="ascii") as file:
            return "populated 1" in file.read()
    except (OSError, ValueError):
        return False

"""Processes by identity, not by number: a number that was given to somebody else is never signalled.

A process is its pid together with the moment it started (in clock ticks since boot), both from /proc.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# No dataclasses, no pathlib: supervisors load this, one per job, and these two would double their start-up time.


class Process(NamedTuple):
    """One process as /proc shows it."""

    pid: int
    start_ticks: int
    parent: int
    group: int
    session: int
    state: str

    @property
    def has_ended(self) -> bool:
        """Dead, though its parent may not have asked for its exit code yet."""
        return self.state in "ZX"


def process(pid: int) -> Process | None:
    """The process that has this number now."""
    text = _read(pid, "stat")
    if not text:
        return None
    # The name stands in parentheses and may hold anything, so fields are counted from the last one on.
    fields = text.rpartition(")")[2].split()
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[2]), int(fields[3]), fields[0])


def processes() -> list[Process]:
    """All processes of this machine that can be looked at."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [one for one in found if one is not None]


def is_running(pid: int, start_ticks: int) -> bool:
    """Whether that very process still runs."""
    found = process(pid)
    return found is not None and found.start_ticks == start_ticks and not found.has_ended


def send(pid: int, start_ticks: int, number: int) -> bool:
    """Signal that very process; False where it is gone. The descriptor keeps a recycled number from being hit."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_running(pid, start_ticks):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:  # it has just ended, or is not ours to signal
        return False
    finally:
        os.close(descriptor)
    return True


def descendants(roots: Iterable[int], among: Sequence[Process]) -> list[Process]:
    """Children of these, their children, and so on; without the roots."""
    children: dict[int, list[Process]] = {}
    for one in among:
        children.setdefault(one.parent, []).append(one)
    found: list[Process] = []
    todo = list(roots)
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child.pid)
    return found


def environment_of(pid: int) -> dict[str, str]:
    """What a process was started with; empty where we may not look."""
    pairs = (entry.partition("=") for entry in _read(pid, "environ").split("\0") if entry)
    return {name: value for name, _, value in pairs}


def command_line(pid: int) -> list[str]:
    """The words a process was started with; empty where it is gone."""
    return _read(pid, "cmdline").split("\0")[:-1]


def boot_s() -> float:
    """Seconds since the machine started, sleep included. Setting the time of day does not change it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Changes when the machine starts again, and with it the meaning of every pid."""
    return _read("sys/kernel/random", "boot_id").strip() or "unknown"


def _read(where: int | str, name: str) -> str:
    """A file of /proc; empty where the process is gone or is none of our business."""
    try:
        with open(f"/proc/{where}/{name}", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""

"""The busy page of a service: when each of its processes is at work on which GPU.

The processes of the service write it, by the shim in its observing role, and the shims of offline jobs on the same GPUs
read it: their launches wait while the service is busy. `shim/page.h` states the same layout in C; a test compares them.
The agent makes the page and reads it. One page serves all restarts of an attempt.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fairlead.errors import InputError
from fairlead.node.guard.control_page import MAX_GPUS, VERSION, SharedLock, uuid_bytes
from fairlead.node.process.untrusted_files import open_regular

BUSY_MAGIC = int.from_bytes(b"FAIRLBSY", "little")
BUSY_PROCESSES = 64
_OWNER = 0x3FFFFFFF
"""The bits of a lock's first word that hold its owner's thread id; the kernel clears them when that dies."""
BEARABLE_FRAC = 0.2
"""Of a request's time on the GPU, what its neighbour may have in flight when it comes. On an H200 this cost 2 to 3 % of
the p50, since not every request meets a neighbour at work, and kernels of both run side by side.
"""
LEAST_INFLIGHT_S = 0.0001
"""Less than a few kernels in flight leaves gaps between them."""


class BusyMark(ctypes.Structure):
    """What one process does on one GPU; times are of the monotonic clock."""

    _fields_ = (
        ("since_ns", ctypes.c_uint64),
        ("touched_ns", ctypes.c_uint64),
        ("idle_ns", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("stretches", ctypes.c_uint64),
        ("waiting", ctypes.c_uint32),
        ("lease_us", ctypes.c_uint32),
        ("linger_us", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("requests", ctypes.c_uint64),
    )


class BusyProcess(ctypes.Structure):
    """One process of the service."""

    _fields_ = (
        ("owner", SharedLock),
        ("pid", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
        ("marks", BusyMark * MAX_GPUS),
    )


class BusyLayout(ctypes.Structure):
    """Where each field of the busy page is."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("processes_used", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint8 * 40),
        ("gpus", (ctypes.c_uint8 * 16) * MAX_GPUS),
        ("processes", BusyProcess * BUSY_PROCESSES),
    )


@dataclass(frozen=True, slots=True)
class ServiceWork:
    """What a live process of a service has done on one GPU so far."""

    pid: int
    is_busy: bool
    stretches: int
    """Times that it began to work after a pause."""
    busy_s: float
    """Of the stretches that have ended."""
    linger_s: float
    requests: int
    """Stretches that came after a pause longer than the linger."""


class BusyPage:
    """The agent's view of a service's busy page."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, uuids: Sequence[str] = ()) -> Self:
        """A page for these GPUs, or for every GPU; one that is there stays, since others have it mapped."""
        if path.exists():
            return cls(path)
        layout = BusyLayout(magic=BUSY_MAGIC, version=VERSION, process_count=BUSY_PROCESSES, gpu_count=1)
        try:
            rows = [uuid_bytes(uuid) for uuid in uuids[:MAX_GPUS]] or [bytes(16)]
        except InputError:  # part of a GPU has another kind of name: then it stands for whatever the job has
            rows = [bytes(16)]
        layout.gpu_count = len(rows)
        for i, row in enumerate(rows):
            layout.gpus[i][:] = row
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_bytes(bytes(layout))
        scratch.chmod(0o644)  # the service's user writes it, everybody reads it
        scratch.replace(path)
        return cls(path)

    def work(self, row: int | None = None) -> list[ServiceWork]:
        """What the live processes did, on all GPUs or that of one row. The service can write it: it is its own word."""
        with open_regular(self.path) as file:
            raw = file.read(ctypes.sizeof(BusyLayout))
        if len(raw) < ctypes.sizeof(BusyLayout):
            raise InputError(f"{self.path} is no busy page of version {VERSION}")
        layout = BusyLayout.from_buffer_copy(raw)
        alive = [
            one for one in layout.processes[: min(layout.processes_used, BUSY_PROCESSES)] if one.owner.word & _OWNER
        ]
        rows = range(min(layout.gpu_count, MAX_GPUS)) if row is None else (row,)
        return [_work(one.pid, one.marks[row]) for one in alive for row in rows]


def _work(pid: int, mark: BusyMark) -> ServiceWork:
    return ServiceWork(
        pid, bool(mark.since_ns), mark.stretches, mark.busy_ns / 1e9, mark.linger_us / 1e6, mark.requests
    )


def bearable_inflight_s(pages: Iterable[BusyPage], most_s: float) -> float:
    """How much GPU time a job may have in flight beside these services, by how long their requests take the GPU."""
    bound_s = most_s
    for page in pages:
        try:
            found = page.work()
        except (InputError, OSError):  # not made yet, or not ours to read: then what is set has to do
            continue
        requests = sum(work.requests for work in found)
        if requests:
            bound_s = min(bound_s, BEARABLE_FRAC * sum(work.busy_s for work in found) / requests)
    return max(bound_s, min(LEAST_INFLIGHT_S, most_s))

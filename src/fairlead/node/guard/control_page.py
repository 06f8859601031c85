"""The two files that an agent and an offline job share: the control page and the usage page.

The control page is written by the agent and only read by the job's shim: how fast the job may launch, whether it is
frozen, and a heartbeat that says that somebody is watching. The usage page is written by the job's processes and read
here: the memory they hold, launches, waits. `shim/page.h` states the same layout in C and says why it is so; a test
compares the two. Both are best kept on a memory file system (`/run`, `/dev/shm`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from fairlead.errors import InputError
from fairlead.node.process.untrusted_files import cut, open_regular

PAGE_MAGIC = int.from_bytes(b"FAIRLPAG", "little")
USAGE_MAGIC = int.from_bytes(b"FAIRLUSE", "little")
VERSION = 2
PAGE_BYTES = 4096
MAX_GPUS = 16
SLOTS = 1024
SERVICES = 16
SERVICE_NAME = 64
STATES = ("none", "running", "stopping", "closing", "drained")
PPM = 1_000_000
_OWNER = 0x3FFFFFFF
"""The bits of a lock's first word that hold its owner's thread id."""


class PageGpu(ctypes.Structure):
    """One GPU's record on the control page."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("rate_ppm", ctypes.c_uint32),
        ("frozen", ctypes.c_uint32),
        ("clock_mhz", ctypes.c_uint32),
        ("reference_clock_mhz", ctypes.c_uint32),
        ("util_ppm", ctypes.c_uint32),
        ("sm_activity_ppm", ctypes.c_uint32),
        ("quota_bytes", ctypes.c_uint64),
        ("inflight_us", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
    )


class ControlLayout(ctypes.Structure):
    """Where each field of the control page is, as the shim reads it."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("gpu_count", ctypes.c_uint32),
        ("seq", ctypes.c_uint32),
        ("inflight_us", ctypes.c_uint32),
        ("heartbeat_ns", ctypes.c_uint64),
        ("stale_after_ms", ctypes.c_uint32),
        ("stale_rate_ppm", ctypes.c_uint32),
        ("services_seq", ctypes.c_uint32),
        ("floor_ppm", ctypes.c_uint32),
        ("reserved", ctypes.c_uint8 * 16),
        ("gpus", PageGpu * MAX_GPUS),
        ("services", (ctypes.c_char * SERVICE_NAME) * SERVICES),
    )


class SharedLock(ctypes.Structure):
    """A robust mutex of the C library; the kernel takes the owner's number out of its first word when that dies."""

    _fields_ = (("word", ctypes.c_uint32), ("rest", ctypes.c_uint32 * 11))


class UsageSlot(ctypes.Structure):
    """One process of the job."""

    _fields_ = (
        ("owner", SharedLock),
        ("pid", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("launches", ctypes.c_uint64),
        ("charged_ns", ctypes.c_uint64),
        ("gated_ns", ctypes.c_uint64),
        ("capped_ns", ctypes.c_uint64),
        ("cap_timeouts", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("out_of_memory", ctypes.c_uint64),
        ("unhooked", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64 * MAX_GPUS),
        ("exported_bytes", ctypes.c_uint64 * MAX_GPUS),
        ("imported_bytes", ctypes.c_uint64 * MAX_GPUS),
    )


class UsageGpu(ctypes.Structure):
    """One GPU that the job has used."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("known", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("tokens_ns", ctypes.c_int64),
        ("refilled_ns", ctypes.c_uint64),
        ("orphaned_bytes", ctypes.c_uint64),
        ("floor_tokens_ns", ctypes.c_int64),
        ("floor_refilled_ns", ctypes.c_uint64),
    )


class UsageLayout(ctypes.Structure):
    """Where each field of the usage page is, as the shim writes it."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("slot_count", ctypes.c_uint32),
        ("prepared", ctypes.c_uint32),
        ("slots_used", ctypes.c_uint32),
        ("deciding", SharedLock),
        ("reserved", ctypes.c_uint8 * 56),
        ("gpus", UsageGpu * MAX_GPUS),
        ("slots", UsageSlot * SLOTS),
    )


def uuid_bytes(uuid: str) -> bytes:
    """The 16 bytes of a GPU's UUID as NVML and nvidia-smi write it."""
    digits = uuid.removeprefix("GPU-").replace("-", "")
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if len(found) != 16:
        raise InputError(f"{uuid!r} is no GPU UUID", hint="it looks like GPU-8e1f5a3c-0d3c-11ef-9f4b-0242ac120002")
    return found


def uuid_text(raw: bytes) -> str:
    """The text of a UUID from its bytes, as `uuid_bytes` takes them."""
    h = raw.hex()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


@dataclass(frozen=True, slots=True)
class GpuOrder:
    """What the agent tells the job about one GPU; the job obeys `rate_frac` and `frozen`, the rest is information."""

    rate_frac: float = 1.0
    frozen: bool = False
    clock_mhz: int = 0
    reference_clock_mhz: int = 0
    util_frac: float = 0.0
    sm_activity_frac: float = 0.0


class ControlPage:
    """The agent's side of the control page. One writer; `heartbeat` must be called at least every few seconds."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self._memory = memory
        self._layout = ControlLayout.from_buffer(memory)

    @classmethod
    def create(
        cls,
        path: Path,
        uuids: Sequence[str] = (),
        *,
        inflight_s: float = 0.0,
        stale_after_s: float = 0.0,
        stale_rate_frac: float = 0.0,
    ) -> Self:
        """A new page for these GPUs, at full rate; without any, one record stands for every GPU.

        It appears under its name complete, in place of an older one. 0 leaves a value to the shim's default.
        """
        if len(uuids) > MAX_GPUS:
            raise InputError(f"{len(uuids)} GPUs do not fit a control page, which holds {MAX_GPUS}")
        layout = ControlLayout(
            magic=PAGE_MAGIC,
            version=VERSION,
            gpu_count=max(1, len(uuids)),
            inflight_us=round(inflight_s * 1e6),
            heartbeat_ns=time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            stale_after_ms=round(stale_after_s * 1e3),
            stale_rate_ppm=round(stale_rate_frac * PPM),
        )
        for i in range(layout.gpu_count):
            layout.gpus[i].rate_ppm = PPM
            if uuids:
                layout.gpus[i].uuid[:] = uuid_bytes(uuids[i])
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_bytes(bytes(layout).ljust(PAGE_BYTES, b"\0"))
        scratch.chmod(0o644)  # the job reads it, whoever it runs as
        scratch.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """An existing page, to go on writing it: how a restarted agent takes over."""
        memory = _map(path, PAGE_BYTES, writable=True)
        layout = ControlLayout.from_buffer_copy(memory)
        if layout.magic != PAGE_MAGIC or layout.version != VERSION:
            memory.close()
            raise InputError(f"{path} is no control page of version {VERSION}")
        page = cls(path, memory)
        page._layout.seq += page._layout.seq % 2  # its last writer may have died in the middle of writing
        return page

    def write(self, order: GpuOrder, uuid: str | None = None) -> None:
        """Publishes the order for one GPU, or for all without a record of their own; counts as a heartbeat."""
        if not 0.0 <= order.rate_frac <= 1.0:
            raise InputError(f"rate_frac is {order.rate_frac}, allowed is 0 to 1")
        record = self._record(uuid)
        layout = self._layout
        layout.seq += 1
        record.rate_ppm = round(order.rate_frac * PPM)
        record.frozen = order.frozen
        record.clock_mhz = order.clock_mhz
        record.reference_clock_mhz = order.reference_clock_mhz
        record.util_ppm = round(order.util_frac * PPM)
        record.sm_activity_ppm = round(order.sm_activity_frac * PPM)
        layout.seq += 1
        self.heartbeat()

    def obey(self, services: Sequence[Path], inflight_s: float = 0.0) -> None:
        """Has the job's launches wait while one of these services is busy, by their busy pages, which lie beside this.

        `inflight_s` bounds the GPU time that the job may have in flight then; 0 leaves it to the shim's default.
        """
        names = [path.name.encode() for path in services if path.parent == self.path.parent][:SERVICES]
        layout, wanted_us = self._layout, round(inflight_s * 1e6)
        for i in range(layout.gpu_count):
            if layout.gpus[i].inflight_us != wanted_us:
                layout.gpus[i].inflight_us = wanted_us
        padded = names + [b""] * (SERVICES - len(names))
        if [bytes(layout.services[i].value) for i in range(SERVICES)] == padded:
            return
        layout.services_seq += 1 + layout.services_seq % 2
        for i, name in enumerate(padded):
            layout.services[i].value = name
        layout.services_seq += 1

    def set_quota(self, quota_bytes: int, uuid: str | None = None) -> None:
        """Publishes how much memory the job may hold on one GPU, from now on; 0 leaves it to its environment."""
        if quota_bytes < 0:
            raise InputError(f"quota_bytes is {quota_bytes}, allowed is 0 or more")
        self._record(uuid).quota_bytes = quota_bytes

    def quota_bytes(self, uuid: str | None = None) -> int:
        """What the page sets; 0 where it sets none."""
        return int(self._record(uuid).quota_bytes)

    def heartbeat(self) -> None:
        """Tells the job that somebody is watching."""
        self._layout.heartbeat_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def read(self, uuid: str | None = None) -> GpuOrder:
        """What the page says now."""
        record = self._record(uuid)
        return GpuOrder(
            rate_frac=record.rate_ppm / PPM,
            frozen=bool(record.frozen),
            clock_mhz=record.clock_mhz,
            reference_clock_mhz=record.reference_clock_mhz,
            util_frac=record.util_ppm / PPM,
            sm_activity_frac=record.sm_activity_ppm / PPM,
        )

    def close(self) -> None:
        """Unmaps the page; the file stays, and without a heartbeat the job falls back to its floor rate."""
        del self._layout
        self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _record(self, uuid: str | None) -> PageGpu:
        wanted = uuid_bytes(uuid) if uuid else bytes(16)
        for i in range(self._layout.gpu_count):
            record: PageGpu = self._layout.gpus[i]
            if bytes(record.uuid) == wanted:
                return record
        raise InputError(f"the control page {self.path} has no record for {uuid or 'every GPU'}")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One live process of the job that uses CUDA."""

    pid: int
    state: str
    launches: int
    charged_s: float
    gated_s: float
    capped_s: float
    cap_timeouts: int
    samples: int
    out_of_memory: int
    unhooked: int
    used_bytes: dict[str, int]


class UsagePage:
    """The agent's view of the usage page."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new, empty page; the job's user must be able to write it."""
        layout = UsageLayout(magic=USAGE_MAGIC, version=VERSION, slot_count=SLOTS)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        with scratch.open("wb") as file:
            file.write(bytes(layout)[: UsageLayout.slots.offset])
            file.truncate(ctypes.sizeof(UsageLayout))  # slots that nobody uses take no room
        scratch.replace(path)
        return cls(path)

    def processes(self) -> list[ProcessUsage]:
        """The live processes. A dead one's slot is left out even before another process reclaims it.

        The job can write this page: what it says is the job's own word.
        """
        with open_regular(self.path) as file:
            raw = file.read(ctypes.sizeof(UsageLayout))
            if not raw:
                return []
            if os.fstat(file.fileno()).st_size > ctypes.sizeof(UsageLayout):
                cut(self.path, ctypes.sizeof(UsageLayout))  # the job's user may write it, but not fill the disk by it
            layout = self._check(raw)
            names = [uuid_text(bytes(gpu.uuid)) if gpu.known else "" for gpu in layout.gpus]
            slots = layout.slots[: min(layout.slots_used, SLOTS)]
            return [_process(slot, names) for slot in slots if slot.pid and slot.owner.word & _OWNER]

    def used_bytes(self) -> dict[str, int]:
        """Device memory that the job holds, by the UUID of the GPU."""
        total: dict[str, int] = {}
        for process in self.processes():
            for uuid, amount in process.used_bytes.items():
                total[uuid] = total.get(uuid, 0) + amount
        return total

    def _check(self, raw: bytes) -> UsageLayout:
        if len(raw) == ctypes.sizeof(UsageLayout):
            layout = UsageLayout.from_buffer_copy(raw)
            if (layout.magic, layout.version, layout.slot_count) == (USAGE_MAGIC, VERSION, SLOTS):
                return layout
        raise InputError(f"{self.path} is no usage page of version {VERSION}")


def _process(slot: UsageSlot, names: Sequence[str]) -> ProcessUsage:
    return ProcessUsage(
        pid=slot.pid,
        state=STATES[slot.state] if slot.state < len(STATES) else "unknown",
        launches=slot.launches,
        charged_s=slot.charged_ns / 1e9,
        gated_s=slot.gated_ns / 1e9,
        capped_s=slot.capped_ns / 1e9,
        cap_timeouts=slot.cap_timeouts,
        samples=slot.samples,
        out_of_memory=slot.out_of_memory,
        unhooked=slot.unhooked,
        used_bytes={name: amount for name, amount in zip(names, slot.used_bytes, strict=True) if name},
    )


def _map(path: Path, size: int, *, writable: bool) -> mmap.mmap:
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    try:
        with path.open("r+b" if writable else "rb") as file:
            return mmap.mmap(file.fileno(), size, access=access)
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} can't be used as a shared page: {problem}") from problem

"""Takes device memory by one path until it is refused; says how far it got and by which error. Run under a quota."""

from __future__ import annotations

import argparse
import ctypes
import json

STEP = 256 << 20
MOST = 24 << 30
"""Far over the quota and far under the card: a path that is not held back must not fill it."""
OUT_OF_MEMORY = 2


def by_torch() -> tuple[int, str]:
    import torch

    held, taken = [], 0
    try:
        while taken < MOST:
            held.append(torch.empty(STEP, dtype=torch.uint8, device="cuda"))
            taken += STEP
    except torch.cuda.OutOfMemoryError as error:
        return taken, str(error).splitlines()[0]
    return taken, "not refused"


class Driver:
    """The driver's calls, by ctypes."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        self.check(self.cuda.cuCtxSetCurrent(self.context))

    def check(self, code: int) -> None:
        if code:
            raise SystemExit(f"the driver answered {code}")

    def until_refused(self, take: object) -> tuple[int, str]:
        taken = 0
        while taken < MOST:
            code = take()  # type: ignore[operator]
            if code:
                return taken, "out of memory" if code == OUT_OF_MEMORY else f"error {code}"
            taken += STEP
        return taken, "not refused"

    def alloc(self) -> int:
        return int(self.cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(STEP)))

    def pitch(self) -> int:
        found, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        width = ctypes.c_size_t(1 << 16)
        return int(
            self.cuda.cuMemAllocPitch_v2(
                ctypes.byref(found), ctypes.byref(pitch), width, ctypes.c_size_t(STEP >> 16), 4
            )
        )

    def managed(self) -> int:
        return int(self.cuda.cuMemAllocManaged(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(STEP), 1))

    def ordered(self) -> int:
        return int(self.cuda.cuMemAllocAsync(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(STEP), None))

    def created(self) -> int:
        class Property(ctypes.Structure):
            _fields_ = (
                ("kind", ctypes.c_int),
                ("handles", ctypes.c_int),
                ("location_kind", ctypes.c_int),
                ("location", ctypes.c_int),
                ("win32", ctypes.c_void_p),
                ("flags", ctypes.c_ubyte * 8),
            )

        wanted = Property(kind=1, location_kind=1)
        handle = ctypes.c_uint64()
        return int(self.cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(STEP), ctypes.byref(wanted), 0))

    def array(self) -> int:
        class Shape(ctypes.Structure):
            _fields_ = (
                ("width", ctypes.c_size_t),
                ("height", ctypes.c_size_t),
                ("format", ctypes.c_int),
                ("channels", ctypes.c_uint),
            )

        wanted = Shape(8192, STEP // 8192 // 4, 0x20, 1)  # floats
        found = ctypes.c_void_p()
        return int(self.cuda.cuArrayCreate_v2(ctypes.byref(found), ctypes.byref(wanted)))

    def info(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.check(self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value, total.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", choices=("torch", "alloc", "pitch", "managed", "ordered", "created", "array", "info"))
    path = parser.parse_args().path
    if path == "torch":
        taken, said = by_torch()
        print(json.dumps({"taken_bytes": taken, "said": said}))
        return
    driver = Driver()
    free, total = driver.info()
    if path == "info":
        print(json.dumps({"free_bytes": free, "total_bytes": total}))
        return
    taken, said = driver.until_refused(getattr(driver, path))
    print(json.dumps({"taken_bytes": taken, "said": said, "total_bytes": total}))


if __name__ == "__main__":
    main()

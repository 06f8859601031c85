"""For programs that tests run under the shim: the driver through ctypes, loaded privately and searched with dlsym."""

from __future__ import annotations

import atexit
import ctypes

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
LEGACY, PER_THREAD = 1, 2


def start(device: int = 0) -> ctypes.c_void_p:
    """cuInit and the primary context, made current."""
    assert cuda.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return context


def join_clock() -> None:
    """Lives by the virtual clock until the program ends, where `clock.c` is preloaded."""
    everything = ctypes.CDLL(None)
    everything.stub_clock_join()
    atexit.register(everything.stub_clock_leave)


def function(us: float, name: str = "") -> ctypes.c_void_p:
    """A kernel that takes so long."""
    found = ctypes.c_void_p()
    assert cuda.cuModuleGetFunction(ctypes.byref(found), None, f"k{us}us{name}".encode()) == 0
    return found


def launch(f: ctypes.c_void_p, stream: ctypes.c_void_p | None = None, blocks: int = 1) -> int:
    result: int = cuda.cuLaunchKernel(f, blocks, 1, 1, 32, 1, 1, 0, stream, None, None)
    return result


def stream() -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(made), 1) == 0
    return made


def alloc(mib: int) -> tuple[int, ctypes.c_ulonglong]:
    pointer = ctypes.c_ulonglong()
    return cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB)), pointer


def info() -> tuple[int, int]:
    """Free and total, in MiB."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value // MIB, total.value // MIB


def get_proc(symbol: str, version: int, flags: int = 0, second: bool = True) -> int:
    """The address that cuGetProcAddress gives; 0 if none."""
    out = ctypes.c_void_p()
    arguments = [symbol.encode(), ctypes.byref(out), version, ctypes.c_ulonglong(flags)]
    if second:
        cuda.cuGetProcAddress_v2(*arguments, None)
    else:
        cuda.cuGetProcAddress(*arguments)
    return out.value or 0


def address(symbol: str) -> int:
    """The address that dlsym gives."""
    return ctypes.cast(getattr(cuda, symbol), ctypes.c_void_p).value or 0


def pack(*sizes: int, ints: tuple[int, ...]) -> ctypes.Array[ctypes.c_char]:
    """An array descriptor: sizes, then ints."""
    raw = b"".join(s.to_bytes(8, "little") for s in sizes) + b"".join(i.to_bytes(4, "little") for i in ints)
    return ctypes.create_string_buffer(raw, len(raw) + 8)

"""An offline job that keeps big matrix products queued, and ends as it is told to: the neighbour of the kill tests.

--end: `never` (until killed), or after --after-s by itself: segfault, illegal-address, device-assert.
--handlers default: SIGINT kills at once, as it would a C program; python: Python's own handler.
"""

from __future__ import annotations

import argparse
import ctypes
import signal
import time

import torch

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry bad()
{
    .reg .u64 %address;
    mov.u64 %address, 16;
    st.global.u64 [%address], %address;
    ret;
}
\0"""


def illegal_address() -> None:
    """A kernel that writes where nothing is."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    for code in (
        driver.cuModuleLoadData(ctypes.byref(module), PTX),
        driver.cuModuleGetFunction(ctypes.byref(function), module, b"bad"),
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None),
    ):
        if code:
            raise SystemExit(f"the bad kernel could not be launched: error {code}")
    torch.cuda.synchronize()


def device_assert() -> None:
    """PyTorch's own: an index that is out of range."""
    torch.zeros(10, device="cuda")[torch.tensor([100], device="cuda")]
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--ready", default="")
    parser.add_argument("--end", default="never")
    parser.add_argument("--after-s", type=float, default=2.0)
    parser.add_argument("--handlers", choices=("default", "python"), default="python")
    options = parser.parse_args()

    if options.handlers == "default":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    a, b = (torch.randn(options.size, options.size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    c = torch.empty_like(a)
    torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    if options.ready:
        with open(options.ready, "w", encoding="utf-8") as file:
            file.write(str(time.monotonic()))
    until_s = time.monotonic() + options.after_s
    pending: list[torch.cuda.Event] = []
    while options.end == "never" or time.monotonic() < until_s:
        torch.mm(a, b, out=c)
        done = torch.cuda.Event(blocking=True)
        done.record()
        pending.append(done)
        if len(pending) > 64:  # about 0.1 s of work queued, alone
            pending.pop(0).synchronize()
    if options.end == "segfault":
        ctypes.string_at(8)
    elif options.end == "illegal-address":
        illegal_address()
    elif options.end == "device-assert":
        device_assert()


if __name__ == "__main__":
    main()

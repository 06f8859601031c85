"""A file system that never answers, for tests under root: FUSE with nobody behind it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_DETACH = 2


@contextlib.contextmanager
def hung_mount(folder: Path) -> Iterator[Path]:
    """Whoever looks into the folder that this gives waits until the block ends, or until they are killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        pytest.skip("no FUSE here")
    folder.mkdir()
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
    if libc.mount(b"hung", os.fsencode(folder), b"fuse", 0, options) != 0:
        os.close(device)
        pytest.skip(f"nothing can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder / "inside"
    finally:
        os.close(device)  # which ends the waiting of whoever still waits
        libc.umount2(os.fsencode(folder), _DETACH)

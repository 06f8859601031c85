"""What only one process of this machine may hold: a folder, real GPUs. The kernel takes it back when that one dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from fairlead.errors import InputError
from fairlead.node.process.processes import command_line

_CONNECT_S = 1.0


def hold_folder(folder: Path, name: str) -> tuple[int, int]:
    """Be the only holder of a folder as long as these descriptors are open; `BlockingIOError` where another one is.

    The lock is on the folder itself: who deletes a file in it, the file `name` for instance, lets nobody else in. That
    file is the second descriptor, to write to, and is locked as well: earlier versions lock nothing else.
    """
    descriptors: list[int] = []
    try:
        descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        fcntl.flock(descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        descriptors.append(os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(descriptors[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors[0], descriptors[1]


def folder_holder(folder: Path) -> int | None:
    """The process that holds a folder, as the kernel tells it; None where nobody does, or it cannot be told."""
    try:
        held = folder.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()  # 1: FLOCK ADVISORY WRITE 815 fe:00:131073 0 EOF
        is_alike = len(words) > 5 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(held.st_ino)
        if is_alike and _has_open(int(words[4]), held):  # other file systems have the same numbers
            return int(words[4])
    return None


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), wanted):
                    return True
    return False


@contextlib.contextmanager
def held(uuids: Sequence[str]) -> Iterator[None]:
    """Be the only agent of this machine that drives these GPUs; an `InputError` names the one that does already."""
    with contextlib.ExitStack() as stack:
        for uuid in uuids:
            stack.enter_context(_claim(uuid))
        yield


def _claim(uuid: str) -> socket.socket:
    """A name in the kernel's own space (an abstract socket), so that there is no file to delete or to leave behind."""
    made, name = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), f"\0fairlead/gpu/{uuid}"
    try:
        made.bind(name)
        made.listen(1)  # whoever is refused learns by connecting who we are
    except OSError:
        made.close()
        raise InputError(
            f"GPU {uuid} is driven by another agent already: {_holder_of(name)}",
            hint="stop that one (fairlead down --home ITS-HOME), or use its home folder",
        ) from None
    return made


def _holder_of(name: str) -> str:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_CONNECT_S)
            asking.connect(name)
            about = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return "an unknown process"
    pid, uid, _ = struct.unpack("3i", about)
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    words = command_line(pid)
    folder = words[words.index("--folder") + 1] if "--folder" in words[:-1] else "an unknown folder"
    return f"process {pid} of {user}, in {folder}"

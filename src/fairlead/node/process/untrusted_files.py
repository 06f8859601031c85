"""Files that jobs write: opened so that what stands in their place can neither hold us up nor lead us elsewhere."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, *, writable: bool = False) -> BinaryIO:
    """A plain file, to read or also to cut; OSError for a link, a FIFO, a device, a folder or a socket.

    Without O_NONBLOCK the opening of a FIFO waits for whoever is at its other end, for ever if there is nobody.
    """
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no plain file", str(path))
    return os.fdopen(descriptor, "r+b" if writable else "rb")


def cut(path: Path, most_bytes: int) -> None:
    """Shorten a file that a job has made longer than it may be; nothing where that cannot be done."""
    try:
        with open_regular(path, writable=True) as file:
            if os.fstat(file.fileno()).st_size > most_bytes:
                os.ftruncate(file.fileno(), most_bytes)
    except OSError:
        return


def give_to(path: Path, user: str | None) -> None:
    """A file for a job that runs as this user to write; None is whoever runs the agent."""
    import pwd

    if user is None:
        return
    with contextlib.suppress(KeyError, OSError):
        found = pwd.getpwnam(user)
        os.chown(path, found.pw_uid, found.pw_gid, follow_symlinks=False)

"""Limits of memory and CPU by cgroup v2, where this machine lets us; a note where it does not."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fairlead.node.launch import Limits

_PERIOD_US = 100_000


def own_cgroup() -> Path | None:
    """The cgroup v2 folder that this process is in; None where the machine has no cgroup v2."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        paths = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    mounted = [line.split()[4] for line in mounts if " - cgroup2 " in line]
    inside = [line.removeprefix("0::/") for line in paths if line.startswith("0::/")]
    return Path(mounted[0]) / inside[0] if mounted and inside else None


def writable_parent() -> tuple[Path | None, str]:
    """Where jobs' cgroups can be made, and what was found: the kernel wants it to hold no processes of its own."""
    own = own_cgroup()
    if own is None:
        return None, "no cgroup v2 on this machine"
    for folder in (own, own.parent):
        try:
            limits = set((folder / "cgroup.subtree_control").read_text().split())
        except OSError:
            continue
        if {"memory", "cpu"} <= limits and os.access(folder, os.W_OK):
            return folder, str(folder)
    return None, f"{own}: memory and cpu are not delegated to us"


def make(parent: Path, name: str, limits: Limits) -> tuple[Path | None, list[str]]:
    """A cgroup with these limits, and notes on what could not be had."""
    folder = parent / name
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        return None, [f"no limits by cgroup: {folder}: {error.strerror}"]
    notes = []
    for file, value in _settings(limits):
        try:
            (folder / file).write_text(value)
        except OSError as error:
            notes.append(f"no limit {file} = {value}: {error.strerror}")
    return folder, notes


def kill(folder: Path) -> None:
    """All processes in it at once, where the kernel can (5.14 and newer)."""
    with contextlib.suppress(OSError), (folder / "cgroup.kill").open("r+") as file:
        file.write("1")


def _settings(limits: Limits) -> list[tuple[str, str]]:
    found = []
    if limits.memory_mib is not None:
        found.append(("memory.max", str(int(limits.memory_mib * 1024 * 1024))))
    if limits.cpus is not None:
        found.append(("cpu.max", f"{int(limits.cpus * _PERIOD_US)} {_PERIOD_US}"))
    return found

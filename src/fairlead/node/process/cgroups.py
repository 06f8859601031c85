"""A cgroup v2 for each job, where this machine lets us: limits of memory, CPU and processes, and an end for all of it.

What cannot be had is a note with the job. Ending a cgroup needs no delegated controller: only a folder to write to.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fairlead.node.process import leftovers
from fairlead.node.process.launch import Limits

CONTROLLERS = ("memory", "cpu", "pids")
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


def writable_parent(given: Path | None = None) -> tuple[Path | None, str]:
    """Where jobs' cgroups can be made, and what was found; `given` is the operator's choice.

    Without one it is our own cgroup or, where that has the controllers, the one above: the kernel gives controllers
    only to the children of a cgroup that holds no processes itself.
    """
    own = own_cgroup() if given is None else given
    if own is None:
        return None, "no cgroup v2 on this machine"
    found = [folder for folder in ((own,) if given else (own, own.parent)) if _is_writable(folder)]
    if not found:
        return None, f"{own}: not writable"
    _enable(found[0])
    best = max(found, key=lambda folder: len(controllers(folder)))  # of equals the first
    missing = [name for name in CONTROLLERS if name not in controllers(best)]
    return best, f"{best}, no limits of {', '.join(missing)}: not delegated" if missing else str(best)


def controllers(folder: Path) -> set[str]:
    """By which the children of a cgroup can be limited."""
    try:
        return set((folder / "cgroup.subtree_control").read_text().split()).intersection(CONTROLLERS)
    except OSError:
        return set()


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


def members(folder: Path) -> set[int]:
    """The processes in it and below; none in what has gone meanwhile, since its supervisor removes it at the end."""
    return {pid for inner, _, _ in os.walk(folder) for pid in leftovers.members(inner)}


def remove(folder: Path) -> None:
    """It is empty, so that it can go; nothing where it is not, or has gone."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _enable(folder: Path) -> None:
    for name in CONTROLLERS:
        with contextlib.suppress(OSError):  # not delegated, or processes are in it
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _settings(limits: Limits) -> list[tuple[str, str]]:
    found = []
    if limits.memory_mib is not None:
        found.append(("memory.max", str(int(limits.memory_mib * 1024 * 1024))))
        found.append(("memory.oom.group", "1"))  # all of the job or nothing: half of one hangs
    if limits.cpus is not None:
        found.append(("cpu.max", f"{max(int(limits.cpus * _PERIOD_US), 1000)} {_PERIOD_US}"))
    if limits.processes is not None:
        found.append(("pids.max", str(limits.processes)))
    return found

"""The file by which an agent tells supervisors how long jobs may run without a word from the controller.

Small, since every supervisor loads it; `node/stream/lease.py` says what it is for.
"""

from __future__ import annotations

import os

from fairlead.node.process.processes import boot_id, boot_s

LEASE = "lease"
"""A file in the agent's folder; where it is missing jobs run for as long as they like."""


def ends_s(path: str) -> float | None:
    """When the lease ends, by `boot_s`; None where there is none, long past where it is of another boot."""
    try:
        with open(path, encoding="ascii") as file:
            boot, ends = file.read().split()
        return float(ends) if boot == boot_id() else 0.0
    except (OSError, ValueError):
        return None


def write(path: str, ends: float) -> None:
    """Whole or not at all."""
    part = f"{path}.part"
    with open(part, "w", encoding="ascii") as file:
        file.write(f"{boot_id()} {ends}\n")
    os.replace(part, path)


def has_ended(path: str) -> bool:
    """Whether there is one, and it is over."""
    ends = ends_s(path)
    return ends is not None and boot_s() > ends


def of_job(folder: str) -> str:
    """The lease that holds for a job, by the job's folder."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(folder))), LEASE)

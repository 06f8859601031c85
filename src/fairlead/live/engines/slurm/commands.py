"""Slurm's commands, each with a time limit: with its controller away some of them wait for minutes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fairlead.errors import InputError
from fairlead.live.engines.engine import EngineError

_ANSWER_S = 15.0
_GONE = ("CANCELLED", "COMPLETED", "TIMEOUT", "FAILED", "OUT_OF_MEMORY", "DEADLINE", "PREEMPTED", "REVOKED")
"""Final states in which Slurm itself has ended what ran."""
OVER = (*_GONE, "NODE_FAIL", "BOOT_FAIL")


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as squeue tells it."""

    job_id: int
    name: str
    state: str
    left_s: float | None
    node: str

    @property
    def is_over(self) -> bool:
        """Slurm has given its nodes to others, or will."""
        return self.state in OVER

    @property
    def was_ended(self) -> bool:
        """It is over, and Slurm has ended all of it; on a node that failed, processes may live on."""
        return self.state in _GONE


def run(line: Sequence[str], text: str | None = None, timeout_s: float = _ANSWER_S) -> str:
    """What a command prints; an `EngineError` where it fails or does not end."""
    try:
        done = subprocess.run(line, input=text, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise InputError(
            f"no {line[0]} here", hint="this machine has to be a Slurm client: install slurm-client"
        ) from None
    except subprocess.TimeoutExpired:
        raise EngineError(f"{line[0]} has not answered within {timeout_s:g} s") from None
    if done.returncode != 0:
        raise EngineError(f"{line[0]}: {done.stderr.strip()[-300:] or f'exit code {done.returncode}'}")
    return done.stdout


def submit(options: Iterable[str], script: str) -> int:
    """Submit a batch script with sbatch; gives its job number."""
    return int(run(["sbatch", "--parsable", *options], script).strip().split(";")[0])


def jobs(prefix: str) -> dict[str, JobRow]:
    """All that Slurm knows of the jobs whose names begin so, also those that ended a while ago; by name."""
    said = run(["squeue", "--me", "--noheader", "--states=all", "--format=%i|%j|%T|%L|%N"])
    rows = (line.split("|") for line in said.splitlines() if line.count("|") == 4)
    found = (JobRow(int(i.split("_")[0]), name, state, seconds(left), node) for i, name, state, left, node in rows)
    return {row.name: row for row in found if row.name.startswith(prefix)}


def cancel(names: Iterable[str]) -> None:
    """scancel, by name: whether we ever learnt its number or not."""
    run(["scancel", "--me", f"--jobname={','.join(names)}"])


def settings() -> dict[str, str]:
    """Slurm's own configuration, as scontrol shows it."""
    pairs = re.findall(r"^(\w+)\s*=\s*(.*?)\s*$", run(["scontrol", "show", "config"]), re.MULTILINE)
    return dict(pairs)


def seconds(text: str) -> float | None:
    """`1-02:03:04` and shorter, as squeue says it; None where there is no limit, or none yet."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if found is None:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)

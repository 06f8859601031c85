"""Pilot jobs: each takes a whole node of Slurm's, and runs an agent there that dials the controller.

One pilot is one node: each is rented and given back by itself. Its name is written down before it is submitted, and it
is found and cancelled by that name, so that none is lost or doubled with the controller.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fairlead.live.engines.slurm import commands

_SCRIPT = """#!/bin/sh
umask 077
{setup}
folder={folder}/{name}
mkdir -p "$folder" || exit 1
cat > "$folder/dial.json" <<'END_OF_CREDENTIALS'
{credentials}
END_OF_CREDENTIALS
leaving=
trap 'leaving=1; kill -TERM $agent 2>/dev/null' TERM INT
until [ "$leaving" ]; do
  {agent} --folder "$folder" --dial "$folder/dial.json" &
  agent=$!
  while :; do
    wait $agent
    code=$?
    kill -0 $agent 2>/dev/null || break
  done
  [ $code -eq 0 ] && break
  sleep 1
done
rm -rf "$folder"
"""
"""An agent that was killed is started again, and takes its jobs over; one that has left ends the pilot."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind: how many pilots there may be at most, and what each asks Slurm for."""

    nodes: int
    gpus: int
    model: str = "H200"
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    gres: str = "gpu"
    """The generic resource, with its type where Slurm has several: `gpu:h100`."""
    time_limit: str = ""
    """As sbatch takes it; empty: the partition's."""
    options: tuple[str, ...] = ()
    """More words for sbatch."""


@dataclass(slots=True)
class Pilot:
    """One that was submitted, or is about to be."""

    name: str
    token_hash: str
    job_id: int = 0
    """0 while we do not know."""
    is_released: bool = False
    """It is to end."""
    submitted_s: float = field(default=0.0, compare=False)
    """By a clock of this process."""

    def saved(self) -> dict[str, Any]:
        """The pilot in plain types, for the disk."""
        return {name: value for name, value in asdict(self).items() if name != "submitted_s"}


def options_of(pool: Pool, name: str) -> list[str]:
    """What a pilot asks sbatch for."""
    words = [f"--job-name={name}", "--nodes=1", "--exclusive", "--no-requeue", "--open-mode=append"]
    words += [f"--gres={pool.gres}:{pool.gpus}", "--output=/dev/null", "--ntasks=1"]
    named = ("partition", "account", "qos", "constraint")
    words += [f"--{option}={value}" for option in named if (value := getattr(pool, option))]
    words += [f"--time={pool.time_limit}"] if pool.time_limit else []
    return [*words, *pool.options]


def script(name: str, *, agent: list[str], setup: str, folder: str, credentials: Mapping[str, str]) -> str:
    """What a pilot runs. Slurm shows it to its owner and the administrators only, and so the token in it."""
    return _SCRIPT.format(
        setup=setup,
        folder=folder,
        name=shlex.quote(name),
        agent=shlex.join(agent),
        credentials=json.dumps(dict(credentials)),
    )


def new_name(site: str, place: str) -> str:
    """Of a pilot: unlike any other's."""
    return f"fairlead-{site}-{place}-{secrets.token_hex(4)}"


def submit(pool: Pool, name: str, text: str) -> int:
    """Submit a pilot job; gives the number that Slurm has for it."""
    return commands.submit(options_of(pool, name), text)

"""What Fairlead tells a job's processes, in their environment.

A value that is no number counts as absent: a training run must not fail because of it.
"""

from __future__ import annotations

from collections.abc import Mapping

ID = "FAIRLEAD_JOB_ID"
ATTEMPT = "FAIRLEAD_ATTEMPT"
GPUS = "FAIRLEAD_GPUS"
"""The UUIDs of the job's GPUs on this node, with commas between."""
NUM_GPUS = "FAIRLEAD_NUM_GPUS"
FAKE = "FAIRLEAD_FAKE"
REPORT = "FAIRLEAD_REPORT"
"""The path of the file that takes the job's reports, one JSON object on each line."""
STOP = "FAIRLEAD_STOP"
"""The path of a file that is there once the job was asked to stop."""
LAUNCH = "FAIRLEAD_LAUNCH"
"""A secret of this start: processes of the job are found by it, and a service's latency reports carry it."""
LATENCY = "FAIRLEAD_LATENCY"
"""In a service's environment: the path of the agent's socket."""


def id_of(env: Mapping[str, str]) -> int | None:
    """The job's number in the environment that Fairlead gave it; None where there is none."""
    return _number(env.get(ID))


def attempt_of(env: Mapping[str, str]) -> int | None:
    """Which start of the job this is."""
    return _number(env.get(ATTEMPT))


def gpus_of(env: Mapping[str, str]) -> int:
    """Of all nodes together; outside Fairlead those that CUDA is told to show, or else 1."""
    given = _number(env.get(NUM_GPUS))
    visible = len([word for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()])
    return max(1, visible if given is None else given)


def processes_of(env: Mapping[str, str]) -> int:
    """How many processes of the job a launcher like torchrun started on this node; 0 where there is none."""
    return _number(env.get("LOCAL_WORLD_SIZE")) or 0


def is_fake_in(env: Mapping[str, str]) -> bool:
    """Whether the GPUs are made up."""
    return env.get(FAKE) == "1"


def is_first_in(env: Mapping[str, str]) -> bool:
    """Whether this is the one process of the job that reports: local rank 0 on node 0.

    torchrun sets LOCAL_RANK, other launchers at least RANK. RANK alone won't do: torchrun may number the nodes as they
    come, and the agent reads the reports on Fairlead's node 0.
    """
    local = env.get("LOCAL_RANK", env.get("RANK", "0"))
    return (_number(env.get("NODE_RANK")) or 0) == 0 and (_number(local) or 0) == 0


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None

"""The environment of a job's processes: inherited, the user's, then ours, which nobody can override.

Loaded by every supervisor, so it needs next to nothing.
"""

from __future__ import annotations

import os

_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""What a job gets of the agent's own environment, and LC_*. Not the rest: it may hold the agent's secrets."""
_DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""So that logs grow line by line, unless the user wants it otherwise."""


def inherited() -> dict[str, str]:
    """What jobs get of this process's environment."""
    return {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith("LC_")}


def composed(inherited: dict[str, str], users: dict[str, str], ours: dict[str, str]) -> dict[str, str]:
    """Everything the command sees. Our LD_PRELOAD goes before the user's, and MPS is ours alone to speak of."""
    chosen = {**inherited, **_DEFAULTS, **users}
    env = {name: value for name, value in chosen.items() if not name.startswith("CUDA_MPS_")}
    preload = [where["LD_PRELOAD"] for where in (ours, env) if where.get("LD_PRELOAD")]
    env.update(ours)
    if preload:
        env["LD_PRELOAD"] = ":".join(preload)
    return env

"""The file that a job's reports go to: one JSON object on each line. The node's agent reads it."""

from __future__ import annotations

import json
import os
from typing import Any

from fairlead.job.place import REPORT

_warned: set[str] = set()


def append(lines: list[dict[str, Any]]) -> None:
    """Write lines to the report, if this runs under Fairlead; never raises."""
    path = os.environ.get(REPORT)
    if not path:
        return
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    try:
        # One write in append mode: lines of several threads or processes never mix.
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, text)
        finally:
            os.close(file)
    except (OSError, ValueError) as wrong:  # a full disk, a folder that is gone; ValueError: no path at all
        warn("unwritable", f"{REPORT}={path}: {wrong}; the job goes on, its progress is not seen")


def warn(about: str, message: str) -> None:
    """Once for each kind. By logging: `warnings` may be set to raise."""
    if about not in _warned:
        _warned.add(about)
        import logging

        logging.getLogger("fairlead.job").warning("fairlead: %s", message)

"""Predictions and what-ifs in a process of their own, for a controller: a simulation would hold its threads up.

Reads one question a line on stdin and answers each with one line on stdout, both JSON, until stdin ends or nobody has
asked for a while. `python -m fairlead.whatif_worker`; the controller's side is `live/forecasts.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from typing import Any

from fairlead.errors import FairleadError
from fairlead.model.snapshot import Snapshot
from fairlead.report import as_json
from fairlead.whatif import predict, whatif

_IDLE_S = 120.0
_NICE = 10
"""The controller and the jobs go first."""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """To one question: `{"ask": "predict" | "whatif", "snapshot": ...}`, with `policy`, `nodes` and `jobs`."""
    began_s = time.process_time()
    try:
        snapshot = Snapshot.from_dict(question["snapshot"])
        if question["ask"] == "predict":
            return {"answer": {**predict(snapshot).as_json(), "cpu_s": time.process_time() - began_s}}
        changes = {name: question[name] for name in ("policy", "nodes", "jobs") if question.get(name)}
        return {"answer": whatif(snapshot, **changes).as_json()}
    except FairleadError as error:
        return {"error": error.message, "hint": error.hint}
    except Exception as error:  # of a policy, say: the next question may be a better one
        return {"error": f"the simulation failed: {type(error).__name__}: {error}", "hint": None}


def main() -> None:
    """Answer until nobody asks any more."""
    with contextlib.suppress(OSError):
        os.nice(_NICE)
    while select.select([sys.stdin], [], [], _IDLE_S)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        told = as_json.plain(answer(json.loads(line)))
        sys.stdout.write(json.dumps(told, allow_nan=False, separators=(",", ":")) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

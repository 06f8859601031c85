"""How a job tells how far it has come: lines appended to a file that the node's agent reads."""

from __future__ import annotations

import math
import os
import time
from typing import Any, SupportsFloat, SupportsInt

from fairlead.job import reports, stopping
from fairlead.job.place import is_first_in
from fairlead.job.reports import warn


def epoch(
    done: int,
    *,
    of: int | None = None,
    loss: SupportsFloat | None = None,
    samples_per_s: SupportsFloat | None = None,
    batch: SupportsInt | None = None,
) -> None:
    """Report that `done` whole epochs are done, counted from 1 and over all of the job's attempts.

    Call it after each epoch, in every process or in the first: only the first one's counts. `of` is how many there will
    be; `epoch(n, of=n)` also says `finished()`. `batch` is the batch of all GPUs together, `samples_per_s` their speed.
    What makes no sense is left out with a warning, once. It costs some 20 microseconds and never raises.
    """
    stopping.note_signals()
    if not is_first_in(os.environ):
        return
    count, total = _whole("epoch", done), None if of is None else _whole("of", of)
    if count is None:
        return
    if total is not None and count > total:
        warn("past-end", f"epoch({count}, of={total}): more epochs are done than there are; not reported")
        return
    now_s = time.time()
    line: dict[str, Any] = {"epoch": count, "of": total, "at_s": now_s, "clock_s": time.monotonic()}
    line |= {"loss": _real("loss", loss), "samples_per_s": _positive("samples_per_s", samples_per_s)}
    line["batch"] = None if batch is None else _whole("batch", batch)
    lines = [{name: value for name, value in line.items() if value is not None}]
    if count == total:
        lines.append({"finished": True, "at_s": now_s})
    reports.append(lines)


def finished() -> None:
    """Say that all of the job's work is done: if it now ends with status 0 it isn't started again, even if it was just
    asked to stop."""
    if is_first_in(os.environ):
        reports.append([{"finished": True, "at_s": time.time()}])


def _whole(name: str, value: Any) -> int | None:
    real = _real(name, value)
    if real is None or real < 0 or real != int(real):
        warn(name, f"{name}={value!r}: expected a whole number from 0 on; not reported")
        return None
    return int(real)


def _positive(name: str, value: Any) -> float | None:
    real = _real(name, value)
    if real is not None and real < 0:
        warn(name, f"{name}={value!r}: expected a number from 0 on; not reported")
        return None
    return real


def _real(name: str, value: Any) -> float | None:
    """As JSON can hold it. NaN and infinity are left out without a word: a loss may well be that."""
    if value is None:
        return None
    try:
        real = float(value)  # tensors and NumPy numbers, too
    except Exception:  # whatever a tensor of several elements or a user's own type throws
        warn(name, f"{name}={value!r}: expected a number; not reported")
        return None
    return real if math.isfinite(real) else None

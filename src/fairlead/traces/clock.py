"""Where a trace's clock starts: submissions in Unix time are counted from the first of them."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

_YEAR_2000_S, _YEAR_2100_S = 946_684_800.0, 4_102_444_800.0
_LATE_S = 86400.0


def on_own_clock(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The frame with submissions from 0 where they are Unix time, and notes on what the clock does.

    No trace counts thirty years from its own start: an earliest submission between the years 2000 and 2100 is Unix
    time, in seconds or in milliseconds.
    """
    first = frame["submit_s"].min()
    if not isinstance(first, float):
        return frame, []
    for unit, per_s in (("seconds", 1.0), ("milliseconds", 1000.0)):
        if _YEAR_2000_S <= first / per_s < _YEAR_2100_S:
            start = datetime.fromtimestamp(first / per_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
            shifted = frame.with_columns((pl.col("submit_s") - first) / per_s)
            return shifted, [f"submissions are Unix {unit}: the trace starts with its first job, at {start} UTC"]
    last = frame["submit_s"].max()
    assert isinstance(last, float)
    if first > max(_LATE_S, last - first):
        return frame, [f"the first job comes {first:,.0f} s after the trace's start: makespan and cost count from 0"]
    return frame, []

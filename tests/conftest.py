"""Shared by all tests: where the public data is, and small traces."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import settings

from fairlead.traces.trace import Trace

# The same examples in every CI run, so that a change is judged by what it changes; elsewhere new ones each time.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# A shell that starts this in the background has SIGINT ignored, which every process started from here would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The public traces and measurements; tests that read them skip where they are absent."""
    if not DATA.is_dir():
        pytest.skip(f"public data not present at {DATA}")
    return DATA


def make_trace(jobs: Sequence[tuple[float, int, float]], **columns: Sequence[object]) -> Trace:
    """A trace of (submit_s, gpus, duration_s)."""
    frame = {
        "job_id": [f"j{i}" for i in range(len(jobs))],
        "submit_s": [float(j[0]) for j in jobs],
        "gpus": [j[1] for j in jobs],
        "duration_s": [float(j[2]) for j in jobs],
        **columns,
    }
    return Trace.from_columns(pl.DataFrame(frame))

"""Shared by all tests: where the public data is, and small traces."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, settings

from fairlead.traces.trace import Trace

# No test fails for being slow: that is what else the machine does. In CI (`.ci/run` says so) the same examples in every
# run, so that a change is judged by what it changes; elsewhere new ones each time.
settings.register_profile(
    "fairlead", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("fairlead")

# A shell that starts this in the background has SIGINT ignored, which every process started from here would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW = ("live", "node", "web", "job", "reproduce", "docs")
"""Folders whose tests run controllers, agents, browsers or other processes, or whole reproductions."""


_SLOW_FILES = ("test_conformance.py", "test_predictor.py")
"""All policies in all combinations, and predictors that learn: 110 of the 280 s of CPU that the rest would take."""

_LONGEST = ("reproduce", "docs", "live", "web", "sim", "node", "cli")
"""Folders in the order in which they take long: with several workers none should be left with these at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-fast` leaves out; the longest first."""
    here, rank = Path(__file__).parent, {name: n for n, name in enumerate(_LONGEST)}
    for item in items:
        path = item.path.relative_to(here)
        if path.parts[0] in _SLOW or path.name.startswith("test_live_") or path.name in _SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: rank.get(item.path.relative_to(here).parts[0], len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers: tests of a file share what they set up, so they stay together, and all of Slurm's.

    Pages of the documentation share nothing, and together they would take longer than anything else: each by itself.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file.endswith("docs/test_blocks.py"):
                return nodeid
            return file.rpartition("/")[0] if "/slurm/" in file else file

    return ByFile(config, log)


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

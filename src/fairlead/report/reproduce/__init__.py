"""The published figures of each paper, against ours.

A reproduction is a function from a folder of public data (or None) to a `Reproduction`; `PAPERS` names them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from fairlead.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fairlead.report.reproduce.claims import Reproduction
    from fairlead.sim.run import Progress

PAPERS = {
    "boa": "fairlead.report.reproduce.boa",
    "eaco": "fairlead.report.reproduce.eaco",
    "muxflow": "fairlead.report.reproduce.muxflow",
    "pal": "fairlead.report.reproduce.pal",
}


def reproduce(paper: str, data: Path | None = None, progress: Progress | None = None) -> Reproduction:
    """Run one paper's comparison."""
    if paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}", hint=did_you_mean(paper, PAPERS))
    if data is not None and not data.is_dir():
        raise InputError(f"--data {data}: no such folder", hint="leave it out to run on synthetic data")
    run = cast(
        "Callable[[Path | None, Progress | None], Reproduction]", importlib.import_module(PAPERS[paper]).reproduce
    )
    return run(data, progress)

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
    from fairlead.report.claims import Reproduction
    from fairlead.sim.run import Progress

PAPERS = {
    "boa": "fairlead.reproduce.boa",
    "eaco": "fairlead.reproduce.eaco",
    "fgd": "fairlead.reproduce.fgd",
    "muxflow": "fairlead.reproduce.muxflow",
    "pal": "fairlead.reproduce.pal",
    "together": "fairlead.reproduce.together",
}


def reproduce(paper: str, data: Path | None = None, progress: Progress | None = None) -> Reproduction:
    """Run the comparison of one paper, and give its claims and figures."""
    if paper not in PAPERS:
        raise InputError(f"unknown paper {paper!r}", hint=did_you_mean(paper, PAPERS))
    if data is not None and not data.is_dir():
        raise InputError(f"--data {data}: no such folder", hint="leave it out to run on synthetic data")
    run = cast(
        "Callable[[Path | None, Progress | None], Reproduction]", importlib.import_module(PAPERS[paper]).reproduce
    )
    return run(data, progress)

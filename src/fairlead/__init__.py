"""Fairlead: a scheduler for shared GPU clusters, and a simulator that runs the same policies.

    import fairlead

    result = fairlead.simulate("trace.csv", cluster="16x4", policy="fifo")
    print(result.summary["mean_jct_s"], result.jobs)

`import fairlead` alone loads nothing: each name is fetched when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead import job as job
    from fairlead.api import compare as compare
    from fairlead.api import simulate as simulate
    from fairlead.api import submit as submit
    from fairlead.errors import FairleadError as FairleadError
    from fairlead.errors import InputError as InputError
    from fairlead.errors import RunError as RunError
    from fairlead.sim.result import Result as Result
    from fairlead.traces import Trace as Trace
    from fairlead.traces import load as load_trace

    __version__: str

_HOMES = {
    "simulate": ("fairlead.api", "simulate"),
    "compare": ("fairlead.api", "compare"),
    "submit": ("fairlead.api", "submit"),
    "Result": ("fairlead.sim.result", "Result"),
    "Trace": ("fairlead.traces", "Trace"),
    "load_trace": ("fairlead.traces", "load"),
    "FairleadError": ("fairlead.errors", "FairleadError"),
    "InputError": ("fairlead.errors", "InputError"),
    "RunError": ("fairlead.errors", "RunError"),
}

__all__ = [
    "FairleadError",
    "InputError",
    "Result",
    "RunError",
    "Trace",
    "__version__",
    "compare",
    "job",
    "load_trace",
    "simulate",
    "submit",
]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fairlead")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name == "job":
        value = importlib.import_module("fairlead.job")
    elif name in _HOMES:
        module, attribute = _HOMES[name]
        value = getattr(importlib.import_module(module), attribute)
    else:
        raise AttributeError(f"module 'fairlead' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""`save`: a trace in our own format."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fairlead.errors import InputError
from fairlead.traces.trace import Trace

SUFFIXES = (".csv", ".parquet")


def save(trace: Trace, path: str | Path) -> None:
    """Write the jobs as csv or parquet, by the path's suffix; reading them back gives the same jobs exactly.

    Only the jobs are written: what a format knew of its profiles, and whether arrivals go on, is not part of a
    file in our format.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"a trace is saved as .csv or .parquet, found {path.suffix or 'no suffix'!r} in {path}",
            hint=f"for example {path.stem or 'trace'}.csv",
        )
    try:
        if path.suffix.lower() == ".parquet":
            trace.frame.write_parquet(path)
        else:
            # An empty text would be written as "" and cost the file its quick way of being read.
            bare = trace.frame.with_columns(pl.when(pl.col(pl.String) != "").then(pl.col(pl.String)))
            bare.write_csv(path)
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror or error}") from error

"""What a format is: the columns that give it away and a function that reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from fairlead.traces.reading import Reading
from fairlead.traces.source import Source


@dataclass(frozen=True, slots=True)
class Format:
    """One file format of traces."""

    name: str
    about: str
    """Where such files come from, in a few words."""
    needs: tuple[str, ...]
    """The columns (or JSON keys) that a file of this format has; others may be there too. Bars: one of several."""
    read: Callable[[Reading], pl.DataFrame]
    """From an opened file to the columns of a trace, plus `LINE`."""
    kinds: tuple[Literal["csv", "parquet", "json"], ...] = ("csv",)
    without: tuple[str, ...] = ()
    """Columns that tell a file apart from one of this format."""
    against: Callable[[Source], str | None] | None = None
    """What in the rows themselves speaks against this format, in words."""
    without_header: Callable[[Source], bool] | None = None
    """For a format whose files may lack a header: whether the first row looks like one of its rows."""
    id_column: str = "job_id"
    """What the file calls a job's name."""

    def lacks(self, source: Source) -> list[str]:
        """The columns that this format needs and the file doesn't have."""
        return [
            column.replace("|", " or ")
            for column in self.needs
            if not any(name in source.header for name in column.split("|"))
        ]

    def fits(self, source: Source) -> bool:
        """Whether a file can be read as this format, if its owner says that it is one."""
        if source.kind not in self.kinds:
            return False
        return not self.lacks(source) or (self.without_header is not None and self.without_header(source))

    def why_not(self, source: Source) -> str | None:
        """What speaks against taking the file for one of this format; None where nothing does."""
        if source.kind not in self.kinds:
            return f"it is {' or '.join(self.kinds)}"
        if not self.fits(source):
            return f"it also needs {', '.join(self.lacks(source))}"
        if strangers := [name for name in self.without if name in source.header]:
            return f"it has no {', '.join(strangers)}"
        return self.against(source) if self.against is not None else None

    def recognises(self, source: Source) -> bool:
        """Whether the file is of this format, by its content."""
        return self.why_not(source) is None

"""Jobs as a table that people look through: filtered, sorted, and any part of it at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.live.storage.database import Database
from fairlead.live.storage.store import LIGHT

SORTS = {
    "id": "id",
    "name": "name COLLATE NOCASE",
    "user": "user",
    "state": "state",
    "gpus": "coalesce(json_extract(request, '$.gpus'), 1)",
    "energy": "energy_j",
    "ended": "ended_at_s",
}
"""What a table can be sorted by, as SQL; ties are in order of submission."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; without anything, all."""

    states: tuple[str, ...] = ()
    user: str | None = None
    text: str = ""
    """A part of the name; or of a number, the job with that number as well."""

    def where(self) -> tuple[str, list[Any]]:
        """As SQL, with its values."""
        parts, values = ["1"], list[Any]()
        if self.states:
            parts.append(f"state IN ({', '.join('?' * len(self.states))})")
            values += self.states
        if self.user is not None:
            parts.append("user = ?")
            values.append(self.user)
        if self.text:
            escaped = self.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            number = int(self.text) if self.text.isascii() and self.text.isdigit() and len(self.text) < 18 else -1
            parts.append("(name LIKE ? ESCAPE '\\' OR id = ?)")
            values += [f"%{escaped}%", number]
        return " AND ".join(parts), values


def count(database: Database, wanted: JobFilter) -> int:
    """How many jobs match."""
    where, values = wanted.where()
    return int(database.read(f"SELECT count(*) AS jobs FROM jobs WHERE {where}", tuple(values))[0]["jobs"])


def rows(
    database: Database, wanted: JobFilter, sort: str, *, descending: bool, offset: int, limit: int
) -> list[sqlite3.Row]:
    """Some of them, by a key of `SORTS`."""
    where, values = wanted.where()
    way = "DESC" if descending else "ASC"
    order = f"{SORTS[sort]} {way} NULLS LAST, id {way}"
    sql = f"SELECT {LIGHT} FROM jobs WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
    return database.read(sql, (*values, limit, offset))


def numbers(database: Database, wanted: JobFilter) -> list[int]:
    """All of them, in order of submission."""
    where, values = wanted.where()
    return [row["id"] for row in database.read(f"SELECT id FROM jobs WHERE {where} ORDER BY id", tuple(values))]


def rows_of(database: Database, job_ids: Sequence[int]) -> list[sqlite3.Row]:
    """The rows of these jobs, in this order; those that are gone are left out."""
    sql = f"SELECT {LIGHT} FROM jobs WHERE id IN ({', '.join('?' * len(job_ids))})"
    found = {row["id"]: row for row in database.read(sql, tuple(job_ids))}
    return [found[job_id] for job_id in job_ids if job_id in found]

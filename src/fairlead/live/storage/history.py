"""What the cluster did over time: sums by the minute for three days, by the hour for three years."""

from __future__ import annotations

import math
import sqlite3
from concurrent.futures import Future
from typing import Any

from fairlead.live.storage.database import Database

MINUTE_S, HOUR_S = 60, 3600
MINUTES_KEPT_S, HOURS_KEPT_S = 3 * 86400, 3 * 365 * 86400
SUMS = (
    "covered_s", "gpu_s", "busy_gpu_s", "running_job_s", "waiting_job_s", "energy_j", "paid_gpu_s", "cost_usd",
)  # fmt: skip
"""Of GPUs and jobs the time that they were there, busy, running or waiting; means follow by dividing by `covered_s`."""
_ADDED = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)
_ADD = (
    f"INSERT INTO history (step_s, at_s, {', '.join(SUMS)}) VALUES (?, ?, {', '.join('?' * len(SUMS))})"
    f" ON CONFLICT (step_s, at_s) DO UPDATE SET {_ADDED}"
)
_ADD_TO_HOUR = f"UPDATE history SET {', '.join(f'{name} = {name} + ?' for name in SUMS)} WHERE step_s = ? AND at_s = ?"
_TOTALS = ", ".join(f"total({name}) AS {name}" for name in SUMS)


def add(database: Database, at_s: int, sums: dict[str, float]) -> Future[None]:
    """To the row of a minute, which begins at `at_s`; with a new hour those before it are rolled up."""
    values, hour_s = [sums[name] for name in SUMS], at_s // HOUR_S * HOUR_S

    def change(connection: sqlite3.Connection) -> None:
        newest = connection.execute("SELECT max(at_s) FROM history WHERE step_s = ?", (MINUTE_S,)).fetchone()[0]
        connection.execute(_ADD, (MINUTE_S, at_s, *values))
        connection.execute(_ADD_TO_HOUR, (*values, HOUR_S, hour_s))  # of one that is rolled up: the clock was set back
        if newest is not None and newest < hour_s:
            _roll_up(connection, hour_s)

    return database.write(change)


def rows(database: Database, since_s: float, until_s: float, most: int) -> tuple[int, list[dict[str, Any]]]:
    """The sums over equal steps, at most so many and one, oldest first; and how long a step is."""
    base_s = MINUTE_S if until_s - since_s <= MINUTES_KEPT_S else HOUR_S
    step_s = base_s * max(1, math.ceil((until_s - since_s) / base_s / most))
    # Hours that are not rolled up yet are there in minutes only.
    later = "at_s >= (SELECT coalesce(max(at_s), -3600) + 3600 FROM history WHERE step_s = 3600)"
    kept = "step_s = 60" if base_s == MINUTE_S else f"(step_s = 3600 OR step_s = 60 AND {later})"
    sql = (
        f"SELECT at_s / ?1 * ?1 AS start_s, {_TOTALS} FROM history WHERE {kept} AND at_s >= ?2 AND at_s <= ?3"
        " GROUP BY start_s ORDER BY start_s"
    )
    return step_s, [dict(row) for row in database.read(sql, (step_s, int(since_s), int(until_s)))]


def _roll_up(connection: sqlite3.Connection, until_s: int) -> None:
    """All whole hours before this moment that have no row yet; then what is too old goes."""
    connection.execute(
        f"INSERT OR IGNORE INTO history (step_s, at_s, {', '.join(SUMS)})"
        f" SELECT {HOUR_S}, at_s / {HOUR_S} * {HOUR_S}, {', '.join(f'sum({name})' for name in SUMS)} FROM history"
        f" WHERE step_s = {MINUTE_S} AND at_s < ? GROUP BY at_s / {HOUR_S}",
        (until_s,),
    )
    connection.execute(f"DELETE FROM history WHERE step_s = {MINUTE_S} AND at_s < ?", (until_s - MINUTES_KEPT_S,))
    connection.execute(f"DELETE FROM history WHERE step_s = {HOUR_S} AND at_s < ?", (until_s - HOURS_KEPT_S,))

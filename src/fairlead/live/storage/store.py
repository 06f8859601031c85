"""What the controller keeps: jobs, their attempts, events, tokens and a few facts, in terms of the controller."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from fairlead.live.jobs.job import COLUMNS, LiveJob
from fairlead.live.jobs.request import LIGHT_COMMAND, JobRequest
from fairlead.live.jobs.states import ACTIVE, OVER, first
from fairlead.live.storage import audit
from fairlead.live.storage.audit import Act
from fairlead.live.storage.database import Database
from fairlead.live.storage.schema import raise_number
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId

_ATTEMPT = (
    "job_id", "attempt", "epoch", "gpus", "shared", "sm_share", "is_over", "stopping", "started_at_s", "ended_at_s",
    "exit_code", "reason", "energy_j",
)  # fmt: skip
_SAVE_ATTEMPT = f"INSERT OR REPLACE INTO attempts ({', '.join(_ATTEMPT)}) VALUES ({', '.join('?' * len(_ATTEMPT))})"
LIGHT = (
    "id, user, name, submit_s, submitted_at_s, wish, has_logs, "
    f"json_set(json_remove(request, '$.env'), '$.command', json('{json.dumps(LIGHT_COMMAND)}'), '$.name', name)"
    f" AS request, {', '.join(COLUMNS)}"
)
"""All of a job's row but its command and environment; see `JobRequest.light`."""
_UPDATE = f"UPDATE jobs SET {', '.join(f'{c} = ?' for c in COLUMNS)} WHERE id = ?"
EVENTS_KEPT = 200_000
"""The oldest go when there are more."""
KEYS_KEPT = 100_000
"""So many jobs later nobody asks for the answer to a submission again."""
_PRUNE_EVERY = 1000
_KNOWN_KEPT = 10_000


@dataclass(slots=True)
class Attempt:
    """One attempt that is not over, or not known to be."""

    id: AttemptId
    gpus: Placement
    shared: bool
    sm_share: float
    stopping: str = ""
    """Why it was stopped; empty while it may stay."""
    is_over: bool = False
    started_at_s: float | None = None
    ended_at_s: float | None = None
    exit_code: int | None = None
    reason: str = ""
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class EventRow:
    """Something that happened, for people."""

    at_s: float
    """As time of day."""
    what: str
    job_id: int | None = None
    node: str = ""
    about: str = ""


class Store:
    """The controller's tables: jobs, attempts, events, facts and what users wish."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._since_prune = 0
        self._known: dict[tuple[int, int], AttemptId] = {}
        """Attempts that were asked about; they never change."""

    # ---- by users ----

    def submit(
        self,
        request: JobRequest,
        user: str,
        submit_s: float,
        at_s: float,
        key: str | None = None,
        act: Act | None = None,
    ) -> Future[tuple[int, bool]]:
        """A job's number once it is on the disk, and whether it is new: a repeated key gives the job of the first."""
        values = (user, request.shown_name, request.model_dump_json(exclude_defaults=True), submit_s, at_s)
        state = str(first(request.hold))

        def change(connection: sqlite3.Connection) -> tuple[int, bool]:
            if key is not None:
                same = "SELECT job_id FROM submissions WHERE user = ? AND key = ?"
                before = connection.execute(same, (user, key)).fetchone()
                if before is not None:
                    return int(before[0]), False
            made = connection.execute(
                "INSERT INTO jobs (user, name, request, submit_s, submitted_at_s, state) VALUES (?, ?, ?, ?, ?, ?)",
                (*values, state),
            )
            assert made.lastrowid is not None
            if key is not None:
                connection.execute("INSERT INTO submissions VALUES (?, ?, ?)", (user, key, made.lastrowid))
            audit.insert(connection, None if act is None else act.on(made.lastrowid), at_s)
            return made.lastrowid, True

        return self.database.write(change)

    def wish(self, job_id: int, wish: str, act: Act | None = None) -> Future[None]:
        """Its user wants it cancelled, held or released; a cancellation stands."""
        sql = "UPDATE jobs SET wish = ? WHERE id = ? AND wish != 'cancel'"

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(sql, (wish, job_id))
            audit.insert(connection, act, time.time())

        return self.database.write(change)

    # ---- by the controller ----

    def save(
        self,
        jobs: Iterable[LiveJob],
        attempts: Iterable[Attempt] = (),
        events: Iterable[EventRow] = (),
        facts: dict[str, Any] | None = None,
        wishes_done: Iterable[tuple[int, str]] = (),
    ) -> Future[None]:
        """All of it or nothing. Of wishes, those that were granted go; others may have come in meanwhile."""
        rows = [_storable((*job.row(), job.job.id)) for job in jobs]
        granted = [(job_id, wish) for job_id, wish in wishes_done]
        tried = [_storable(_attempt_row(attempt)) for attempt in attempts]
        happened = [_storable((e.at_s, e.what, e.job_id, e.node, e.about)) for e in events]
        known = [(name, json.dumps(value)) for name, value in (facts or {}).items()]
        self._since_prune += len(happened)
        prunes = self._since_prune >= _PRUNE_EVERY
        if prunes:
            self._since_prune = 0

        def change(connection: sqlite3.Connection) -> None:
            connection.executemany(_UPDATE, rows)
            connection.executemany("UPDATE jobs SET wish = '' WHERE id = ? AND wish = ?", granted)
            connection.executemany(_SAVE_ATTEMPT, tried)
            connection.executemany("INSERT INTO events (at_s, what, job_id, node, about) VALUES (?,?,?,?,?)", happened)
            connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", known)
            if prunes:
                newest = connection.execute("SELECT max(id) FROM events").fetchone()[0] or 0
                connection.execute("DELETE FROM events WHERE id <= ?", (newest - EVENTS_KEPT,))
                last = connection.execute("SELECT max(id) FROM jobs").fetchone()[0] or 0
                connection.execute("DELETE FROM submissions WHERE job_id <= ?", (last - KEYS_KEPT,))

        return self.database.write(change)

    def fact(self, name: str) -> Any:
        """What was saved under this name, or None."""
        found = self.database.read("SELECT value FROM facts WHERE name = ?", (name,))
        return json.loads(found[0]["value"]) if found else None

    def keep(self, name: str, value: Any) -> None:
        """Save it under this name; on the disk when this returns."""
        self.save((), facts={name: value}).result()

    def active(self) -> list[sqlite3.Row]:
        """The jobs that are not over, in the order of submission; without their commands."""
        sql = f"SELECT {LIGHT} FROM jobs WHERE state IN ({', '.join('?' * len(ACTIVE))}) ORDER BY id"
        return self.database.read(sql, ACTIVE)

    def wishes(self) -> list[tuple[int, str]]:
        """What users asked for and nobody has seen to."""
        rows = self.database.read("SELECT id, wish FROM jobs WHERE wish != '' ORDER BY id")
        return [(row["id"], row["wish"]) for row in rows]

    def job_row(self, job_id: int) -> sqlite3.Row | None:
        """The row of one job; None where there is none."""
        found = self.database.read("SELECT * FROM jobs WHERE id = ?", (job_id,))
        return found[0] if found else None

    def request(self, job_id: int) -> JobRequest:
        """What its user asked for, the whole of it."""
        row = self.job_row(job_id)
        assert row is not None  # no job is ever deleted
        return JobRequest.model_validate_json(row["request"])

    # ---- for whoever looks ----

    def page(
        self,
        *,
        states: Sequence[str] = (),
        user: str | None = None,
        after: int | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[sqlite3.Row]:
        """Jobs by number, those beyond `after`; of all states and users unless said. Without their commands."""
        where, values = ["1"], list[Any]()
        if states:
            where.append(f"state IN ({', '.join('?' * len(states))})")
            values += states
        if user is not None:
            where.append("user = ?")
            values.append(user)
        if after is not None:
            where.append("id < ?" if newest_first else "id > ?")
            values.append(after)
        order = "DESC" if newest_first else "ASC"
        sql = f"SELECT {LIGHT} FROM jobs WHERE {' AND '.join(where)} ORDER BY id {order} LIMIT ?"
        return self.database.read(sql, (*values, limit))

    def counts(self, user: str | None = None) -> dict[str, int]:
        """Jobs in each state that has any; of one user, or of all."""
        where, values = ("WHERE user = ?", (user,)) if user is not None else ("", ())
        rows = self.database.read(f"SELECT state, count(*) AS jobs FROM jobs {where} GROUP BY state", values)
        return {row["state"]: row["jobs"] for row in rows}

    def attempts_of(self, job_id: int) -> list[Attempt]:
        """All of a job's, the first first."""
        rows = self.database.read("SELECT * FROM attempts WHERE job_id = ? ORDER BY attempt", (job_id,))
        return [attempt_from(row) for row in rows]

    def last_event(self) -> int:
        """The number of the newest; 0 before the first."""
        return int(self.database.read("SELECT coalesce(max(id), 0) AS last FROM events")[0]["last"])

    def events(
        self, after: int, limit: int, *, job_id: int | None = None, user: str | None = None
    ) -> list[sqlite3.Row]:
        """Those with larger numbers than `after`, oldest first; of one job, of one user's jobs, or all."""
        where, values = ["id > ?"], list[Any]([after])
        if job_id is not None:
            where.append("job_id = ?")
            values.append(job_id)
        if user is not None:
            where.append("(SELECT user FROM jobs WHERE jobs.id = events.job_id) = ?")
            values.append(user)
        sql = f"SELECT * FROM events WHERE {' AND '.join(where)} ORDER BY id LIMIT ?"
        return self.database.read(sql, (*values, limit))

    def first_waits(self, after: int, until: int) -> list[float]:
        """How long the jobs waited that got their first GPUs in these events."""
        rows = self.database.read(
            "SELECT e.at_s - j.submitted_at_s AS wait_s FROM events e JOIN jobs j ON j.id = e.job_id"
            " WHERE e.id > ? AND e.id <= ? AND e.what = 'placed' AND NOT EXISTS"
            " (SELECT 1 FROM events b WHERE b.job_id = e.job_id AND b.id < e.id AND b.what = 'placed')",
            (after, until),
        )
        return [max(row["wait_s"], 0.0) for row in rows]

    def evictions(self, after: int, until: int) -> dict[str, int]:
        """How many jobs were evicted in these events, by the reason."""
        rows = self.database.read(
            "SELECT about, count(*) AS jobs FROM events WHERE id > ? AND id <= ?"
            " AND what = 'waiting' AND about LIKE 'evicted-%' GROUP BY about",
            (after, until),
        )
        return {row["about"].removeprefix("evicted-"): row["jobs"] for row in rows}

    def preemptions(self, after: int, until: int) -> int:
        """How many running jobs the policy sent back into the queue in these events."""
        sql = (
            "SELECT count(*) AS jobs FROM events WHERE id > ? AND id <= ? AND what = 'waiting' AND about = 'preempted'"
        )
        return int(self.database.read(sql, (after, until))[0]["jobs"])

    def missed_deadlines(self, after: int, until: int) -> int:
        """How many jobs were told to have missed theirs in these events."""
        sql = "SELECT count(*) AS jobs FROM events WHERE id > ? AND id <= ? AND what = 'deadline-missed'"
        return int(self.database.read(sql, (after, until))[0]["jobs"])

    def ended_energy_j(self) -> float:
        """Of all attempts that are over."""
        return float(self.database.read("SELECT total(energy_j) AS j FROM attempts WHERE is_over = 1")[0]["j"])

    def with_old_logs(self, before_up_s: float, most: int) -> list[int]:
        """Jobs that were over before this moment of the clock `up_s` and have logs; none that is still stopping."""
        sql = f"""SELECT id FROM jobs WHERE has_logs = 1 AND over_up_s < ? AND phase = ''
            AND state IN ({", ".join("?" * len(OVER))}) ORDER BY over_up_s LIMIT ?"""
        return [row["id"] for row in self.database.read(sql, (before_up_s, *OVER, most))]

    def logs_removed(self, job_id: int) -> Future[None]:
        """Note that the logs of a job are deleted."""
        sql = "UPDATE jobs SET has_logs = 0 WHERE id = ?"
        return self.database.write(lambda connection: connection.execute(sql, (job_id,)) and None)

    def attempt_id(self, job_id: int, attempt: int) -> AttemptId | None:
        """An attempt by its numbers; None where there is no such attempt."""
        found = self._known.get((job_id, attempt))
        if found is None:
            sql = "SELECT epoch FROM attempts WHERE job_id = ? AND attempt = ?"
            rows = self.database.read(sql, (job_id, attempt))
            if not rows:
                return None
            if len(self._known) >= _KNOWN_KEPT:
                self._known.clear()
            found = self._known[job_id, attempt] = AttemptId(job_id, attempt, rows[0]["epoch"])
        return found

    def knows(self, attempt: AttemptId) -> bool:
        """Whether an attempt is this database's, rather than one of another with the same numbers."""
        return self.attempt_id(attempt.job_id, attempt.attempt) == attempt

    def number_jobs_above(self, job_id: int) -> None:
        """Give no number up to this one to a new job."""
        self.database.write(lambda connection: raise_number(connection, "jobs", job_id)).result()

    def probe(self) -> Future[None]:
        """Write something, to see whether it can be done."""
        sql = "INSERT OR REPLACE INTO facts VALUES ('probe', ?)"
        return self.database.write(lambda connection: connection.execute(sql, (str(time.time()),)) and None)

    def open_attempts(self) -> list[Attempt]:
        """Those that are not known to be over."""
        rows = self.database.read("SELECT * FROM attempts WHERE is_over = 0 ORDER BY job_id, attempt")
        return [attempt_from(row) for row in rows]


def _attempt_row(attempt: Attempt) -> tuple[Any, ...]:
    one = attempt.id
    values = {name: getattr(attempt, name) for name in _ATTEMPT[3:]}
    values |= {"gpus": json.dumps(attempt.gpus), "shared": int(attempt.shared), "is_over": int(attempt.is_over)}
    return one.job_id, one.attempt, one.epoch, *values.values()


def attempt_from(row: sqlite3.Row) -> Attempt:
    """The attempt that a row of the database describes."""
    values = {name: row[name] for name in _ATTEMPT[3:]}
    values["gpus"] = tuple(json.loads(row["gpus"]))
    values["shared"], values["is_over"] = bool(row["shared"]), bool(row["is_over"])
    return Attempt(AttemptId(row["job_id"], row["attempt"], row["epoch"]), **values)


def _storable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What came from a file name or an error may hold halves of characters, which no database takes."""
    return tuple(
        value if not isinstance(value, str) or value.isascii() else value.encode(errors="replace").decode()
        for value in row
    )

"""The database's layout, as the steps that lead to it: step n makes version n of what version n - 1 left."""

from __future__ import annotations

import sqlite3

from fairlead.errors import InputError

_ACCESS = """
    -- Tokens that were made before stand until they are revoked.
    ALTER TABLE tokens ADD COLUMN expires_at_s REAL;

    CREATE TABLE audit (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_s REAL NOT NULL,
        user TEXT NOT NULL,
        token_id INTEGER,
        source TEXT NOT NULL,
        what TEXT NOT NULL,
        job_id INTEGER,
        about TEXT NOT NULL
    ) STRICT;
    CREATE INDEX audit_by_what ON audit (what, id);
    CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
        BEGIN SELECT raise(ABORT, 'the audit log is not changed'); END;
"""
_PAGE = """
    -- Of browsers that have signed in; both secrets as hashes.
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        hash TEXT NOT NULL UNIQUE,
        key_hash TEXT NOT NULL,
        token_id INTEGER NOT NULL,
        created_at_s REAL NOT NULL,
        expires_at_s REAL NOT NULL,
        source TEXT NOT NULL
    ) STRICT;

    -- What the cluster did, minute by minute and later hour by hour, as sums over the time that was covered.
    CREATE TABLE history (
        step_s INTEGER NOT NULL,
        at_s INTEGER NOT NULL,
        covered_s REAL NOT NULL,
        gpu_s REAL NOT NULL,
        busy_gpu_s REAL NOT NULL,
        running_job_s REAL NOT NULL,
        waiting_job_s REAL NOT NULL,
        energy_j REAL NOT NULL,
        paid_gpu_s REAL NOT NULL,
        cost_usd REAL NOT NULL,
        PRIMARY KEY (step_s, at_s)
    ) STRICT, WITHOUT ROWID;
"""
STEPS = (
    """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        name TEXT NOT NULL,
        request TEXT NOT NULL,
        submit_s REAL NOT NULL,
        submitted_at_s REAL NOT NULL,
        state TEXT NOT NULL,
        wish TEXT NOT NULL DEFAULT '',
        phase TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        detail TEXT NOT NULL DEFAULT '',
        attempt INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        due_s REAL,
        gpus TEXT NOT NULL DEFAULT '[]',
        shared INTEGER NOT NULL DEFAULT 0,
        sm_share REAL NOT NULL DEFAULT 1.0,
        service TEXT NOT NULL DEFAULT '{}',
        progress TEXT,
        energy_j REAL,
        started_at_s REAL,
        ended_at_s REAL,
        exit_code INTEGER,
        has_logs INTEGER NOT NULL DEFAULT 1
    ) STRICT;
    CREATE INDEX jobs_with_logs ON jobs (ended_at_s) WHERE has_logs = 1;
    CREATE INDEX jobs_by_state ON jobs (state, id);
    CREATE INDEX jobs_by_user ON jobs (user, id);

    -- The same request sent twice, since its answer was lost, is one job.
    CREATE TABLE submissions (user TEXT NOT NULL, key TEXT NOT NULL, job_id INTEGER NOT NULL, PRIMARY KEY (user, key))
        STRICT, WITHOUT ROWID;

    CREATE TABLE attempts (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        gpus TEXT NOT NULL,
        shared INTEGER NOT NULL,
        sm_share REAL NOT NULL,
        is_over INTEGER NOT NULL DEFAULT 0,
        stopping TEXT NOT NULL DEFAULT '',
        started_at_s REAL,
        ended_at_s REAL,
        exit_code INTEGER,
        reason TEXT NOT NULL DEFAULT '',
        energy_j REAL,
        PRIMARY KEY (job_id, attempt)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX attempts_open ON attempts (is_over) WHERE is_over = 0;

    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at_s REAL NOT NULL,
        what TEXT NOT NULL,
        job_id INTEGER,
        node TEXT NOT NULL DEFAULT '',
        about TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE INDEX events_by_job ON events (job_id, id);

    CREATE TABLE tokens (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        user TEXT NOT NULL,
        role TEXT NOT NULL,
        hash TEXT NOT NULL UNIQUE,
        note TEXT NOT NULL DEFAULT '',
        created_at_s REAL NOT NULL,
        revoked_at_s REAL
    ) STRICT;
    """,
    # When a job was over by a clock that nobody sets: the age of its logs is counted on it. Those of before begin now.
    """
    ALTER TABLE jobs ADD COLUMN over_up_s REAL;
    UPDATE jobs SET over_up_s = 0.0 WHERE state IN ('finished', 'parked', 'cancelled');
    DROP INDEX jobs_with_logs;
    CREATE INDEX jobs_with_logs ON jobs (over_up_s) WHERE has_logs = 1;
    """,
    # Attempts from before have the empty epoch, and names on the nodes without one.
    "ALTER TABLE attempts ADD COLUMN epoch TEXT NOT NULL DEFAULT '';",
    _ACCESS,
    _PAGE,
    # A job knows its last attempt by the whole of its identity.
    """
    ALTER TABLE jobs ADD COLUMN epoch TEXT NOT NULL DEFAULT '';
    UPDATE jobs SET epoch = coalesce(
        (SELECT epoch FROM attempts WHERE attempts.job_id = jobs.id AND attempts.attempt = jobs.attempt), '');
    """,
)


def raise_number(connection: sqlite3.Connection, table: str, number: int) -> None:
    """Have a table number its next row above this one, unless it would do so anyway."""
    known = connection.execute("SELECT seq FROM main.sqlite_sequence WHERE name = ?", (table,)).fetchone()
    if known is None:
        connection.execute("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
    elif known[0] < number:
        connection.execute("UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?", (number, table))


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring a database up to the present version; one that a later Fairlead made is left alone."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(STEPS):
        raise InputError(
            f"{path} is of version {version}, and this Fairlead knows {len(STEPS)} at most",
            hint="use the Fairlead that made it, or a later one",
        )
    for number in range(version, len(STEPS)):
        # executescript commits what is open, so the step brings its own transaction along.
        connection.executescript(f"BEGIN IMMEDIATE; {STEPS[number]} PRAGMA user_version = {number + 1}; COMMIT;")

"""The audit log by itself."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from fairlead.live.storage.audit import FAILED, Audit
from fairlead.live.storage.database import Database


def test_a_failed_sign_in_that_was_answered_is_seen_however_slow_the_disk_is(tmp_path: Path) -> None:
    database = Database(tmp_path / "fairlead.db")
    is_free, seen = threading.Event(), list[str]()

    def slow(_: sqlite3.Connection) -> None:
        assert is_free.wait(60)

    database.write(slow)
    audit = Audit(database)
    audit.failed("198.51.100.7", "no token")  # nobody waits for the disk here
    reader = threading.Thread(target=lambda: seen.extend(act["what"] for act in audit.rows(0, 10)))
    reader.start()
    is_free.set()
    reader.join(60)
    database.close()
    assert seen == [FAILED]

"""The database copied away and put back, by the files."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.live.home import Home
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage import backup
from fairlead.live.storage.audit import Act, Audit
from fairlead.live.storage.backup import back_up, restore
from fairlead.live.storage.database import Database
from fairlead.live.storage.schema import STEPS
from fairlead.live.storage.store import Store
from fairlead.live.storage.tokens import Role, Tokens


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def submit(home: Home, jobs: int = 1) -> list[int]:
    with closing(Database(home.database)) as database:
        store = Store(database)
        request = JobRequest(command=["train"])
        return [store.submit(request, "ann", 0.0, 0.0).result()[0] for _ in range(jobs)]


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as found:
        return [row[0] for row in found.execute("SELECT id FROM jobs ORDER BY id")]


def test_what_was_backed_up_comes_back_and_what_was_there_is_kept(home: Home, copy: Path) -> None:
    submit(home, 2)
    assert back_up(home, copy) == 2
    assert copy.stat().st_mode & 0o777 == 0o600
    submit(home, 3)
    done = restore(home, copy)
    assert (done.jobs, done.next_job_id, done.knows_before) == (2, 6, True)
    assert done.kept is not None
    assert (numbers(home.database), numbers(done.kept)) == ([1, 2], [1, 2, 3, 4, 5])
    assert submit(home) == [6], "no number is given out twice"
    assert sorted(path.name for path in copy.parent.iterdir()) == ["copy.db", "home"]


def test_a_backup_is_one_state_of_a_database_that_is_being_written(home: Home, copy: Path) -> None:
    with closing(Database(home.database)) as database:
        store, stopping = Store(database), threading.Event()

        def write() -> None:
            while not stopping.is_set():
                store.submit(JobRequest(command=["train"]), "ann", 0.0, 0.0).result()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            counts = [back_up(home, copy) for _ in range(5)]
        finally:
            stopping.set()
            writer.join()
    assert counts == sorted(counts)
    assert numbers(copy) == list(range(1, counts[-1] + 1))


def test_a_home_that_is_not_there_yet_gets_what_was_backed_up(home: Home, copy: Path, tmp_path: Path) -> None:
    submit(home, 2)
    back_up(home, copy)
    fresh = Home(tmp_path / "fresh")
    assert restore(fresh, copy).kept is None
    assert submit(fresh) == [3]


def test_a_database_that_cannot_be_read_is_kept_and_leaves_no_log_behind(home: Home, copy: Path) -> None:
    submit(home, 2)
    back_up(home, copy)
    home.database.write_bytes(b"nonsense" * 1000)
    Path(f"{home.database}-wal").write_bytes(b"of the old one")
    done = restore(home, copy)
    assert not done.knows_before
    assert done.kept is not None
    assert done.kept.read_bytes() == b"nonsense" * 1000
    assert Path(f"{done.kept}-wal").read_bytes() == b"of the old one"
    assert (numbers(home.database), submit(home)) == ([1, 2], [3])


def test_who_was_shut_out_since_the_backup_stays_so(home: Home, copy: Path) -> None:
    with closing(Database(home.database)) as database:
        tokens = Tokens(database)
        (out, gone), (stays, kept) = tokens.create("eve", Role.USER), tokens.create("ann", Role.USER)
        back_up(home, copy)
        tokens.revoke(out)
    restore(home, copy)
    with closing(Database(home.database)) as database:
        assert Tokens(database).find(gone) is None
        found = Tokens(database).find(kept)
        assert found is not None
        assert found.token_id == stays


def test_what_was_cut_short_or_audited_since_the_backup_stays_so(home: Home, copy: Path) -> None:
    with closing(Database(home.database)) as database:
        tokens, audit = Tokens(database, wall_s=lambda: 100.0), Audit(database)
        short, token = tokens.create("eve", Role.USER)
        audit.note(Act("ann", "submitted")).result()
        back_up(home, copy)
        tokens.rotate(short, keep_s=5.0, life_s=None, act=Act("ann", "token-rotated"))
    restore(home, copy)
    with closing(Database(home.database)) as database:
        assert Tokens(database, wall_s=lambda: 104.0).find(token) is not None
        assert Tokens(database, wall_s=lambda: 106.0).find(token) is None
        told = [row["what"] for row in Audit(database).rows(0, 10)]
        assert told == ["submitted", "token-rotated", "database-restored"]


def test_it_is_refused_while_a_controller_runs(home: Home, copy: Path) -> None:
    submit(home)
    back_up(home, copy)
    with home.held(), pytest.raises(InputError, match="a controller runs in"):
        restore(home, copy)
    assert restore(home, copy).jobs == 1


def test_jobs_of_others_pass_through_a_home_during_a_restore_as_before(home: Home, copy: Path) -> None:
    submit(home)
    back_up(home, copy)
    home.path.chmod(0o711)
    restore(home, copy)
    assert home.path.stat().st_mode & 0o777 == 0o711


def _not_there(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _a_text(path: Path) -> None:
    path.write_text("no database\n" * 500)


def _of_another_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY)")


def _of_a_later_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


def _damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = b"\x07" * (len(data) - len(data) // 2)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (_not_there, "no backup at"),
        (_empty, "no backup at"),
        (_a_text, "not a database"),
        (_of_another_program, "has no table attempts"),
        (_of_a_later_version, "this Fairlead knows"),
        (_damaged, "copy.db"),
    ],
)
def test_what_is_no_backup_is_refused_and_changes_nothing(
    home: Home, copy: Path, spoil: Callable[[Path], None], named: str
) -> None:
    submit(home, 200)
    back_up(home, copy)
    spoil(copy)
    with home.held():
        before = sorted(path.name for path in home.path.iterdir())
    with pytest.raises(InputError, match=named) as refused:
        restore(home, copy)
    assert str(copy) in refused.value.message
    assert refused.value.hint
    assert numbers(home.database) == list(range(1, 201))
    assert sorted(path.name for path in home.path.iterdir()) == before


def test_a_backup_replaces_an_older_one_and_no_other_file(home: Home, copy: Path) -> None:
    submit(home)
    back_up(home, copy)
    submit(home)
    assert back_up(home, copy) == 2
    precious = copy.with_name("thesis.txt")
    precious.write_text("all of it")
    for wrong in (precious, home.database, home.path, copy.parent / "absent" / "copy.db"):
        with pytest.raises(InputError):
            back_up(home, wrong)
    assert precious.read_text() == "all of it"
    with pytest.raises(InputError, match="the database itself"):
        restore(home, home.database)
    with pytest.raises(InputError, match="there is no database"):
        back_up(Home(copy.parent / "nowhere"), copy)


def test_one_that_is_cut_off_leaves_the_database_as_it_was(
    home: Home, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(home, 2)
    back_up(home, copy)
    submit(home)

    def cut_off(database: Path, kept: Path | None) -> None:
        close_off(database, kept)
        raise KeyboardInterrupt

    close_off = backup._close_off
    monkeypatch.setattr(backup, "_close_off", cut_off)
    with pytest.raises(KeyboardInterrupt):
        restore(home, copy)
    assert numbers(home.database) == [1, 2, 3]

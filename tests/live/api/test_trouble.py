"""What cannot be done now: said so, with when to try again; and all is well once it can."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.live.connection import ControllerError
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import wait_for


@pytest.fixture
def hasty(make_world: MakeWorld) -> Iterator[Served]:
    """A database that waits for locks for a moment only."""
    with served(make_world(busy_s=0.05)) as made:
        yield made


def test_a_locked_database_gives_503_and_all_is_well_when_it_is_free(hasty: Served, tmp_path: Path) -> None:
    before = hasty.submit(hold=True)
    with closing(sqlite3.connect(tmp_path / "fairlead.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for method, path, body in (
            ("POST", "/v1/jobs", {"command": ["train"]}),
            ("POST", f"/v1/jobs/{before}/cancel", None),
            ("POST", "/v1/tokens", {"user": "eve", "role": "user"}),
        ):
            found = hasty.call(method, path, body, who="adam")
            assert (found.status, found.headers["retry-after"]) == (503, "2"), path
            assert set(found.json) == {"error", "hint"}
        assert hasty.call("GET", f"/v1/jobs/{before}").json["state"] == "held"
        assert hasty.call("GET", "/v1/jobs").status == 200
        assert hasty.call("GET", "/metrics", who="olga").status == 200
        other.execute("ROLLBACK")
    assert hasty.submit(hold=True) == before + 1
    assert hasty.call("POST", f"/v1/jobs/{before}/cancel").status == 202
    wait_for(lambda: hasty.world.state(before) == "cancelled")


def test_the_loop_in_trouble_is_told_and_recovers(hasty: Served, tmp_path: Path) -> None:
    job_id = hasty.submit()
    wait_for(lambda: (job_id, 1) in hasty.world.engine.running)
    with closing(sqlite3.connect(tmp_path / "fairlead.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        hasty.world.engine.end((job_id, 1))
        wait_for(lambda: hasty.call("GET", "/health", who=None).json["status"] == "trouble")
        assert "locked" in hasty.call("GET", "/v1/summary", who="olga").json["trouble"]
        other.execute("ROLLBACK")
    wait_for(lambda: hasty.call("GET", "/health", who=None).json["status"] == "ok")
    wait_for(lambda: hasty.world.state(job_id) == "finished")


def test_a_client_waits_for_a_database_that_is_locked(hasty: Served, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "fairlead.db", isolation_level=None)) as other, hasty.client() as alice:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ControllerError, match="locked"):
            alice.submit({"command": ["train"]}, retry_s=0.0)
        found: list[int] = []
        wanted = {"command": ["train"], "hold": True}
        submitting = threading.Thread(target=lambda: found.append(alice.submit(wanted, retry_s=120.0)["id"]))
        submitting.start()
        submitting.join(0.3)
        assert found == []
        other.execute("ROLLBACK")
        submitting.join()
    assert found == [1]
    assert len(hasty.call("GET", "/v1/jobs").json["jobs"]) == 1


def test_what_asks_the_loop_says_so_when_it_does_not_answer(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.live.api.context._ANSWER_S", 0.05)
    with served(make_world(), runs=False) as site:
        job_id = site.submit()
        for path in (f"/v1/jobs/{job_id}/explain", "/v1/snapshot"):
            found = site.call("GET", path)
            assert (found.status, found.headers["retry-after"]) == (503, "2")
        site.world.step()  # whoever has stopped waiting does no harm
        assert site.world.state(job_id) == "running"
        assert site.world.controller.trouble == ""

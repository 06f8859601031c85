"""Tokens end, and are replaced; what was done with them is written down."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairlead.live.daemon import note_start
from fairlead.live.storage import audit as auditing
from fairlead.live.storage import schema
from fairlead.live.storage.audit import Act, Audit
from fairlead.live.storage.database import Database
from fairlead.live.storage.store import Store
from fairlead.live.storage.tokens import Tokens
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import wait_for

DAY_S = 86400.0


@pytest.fixture
def site(make_world: MakeWorld) -> Iterator[Served]:
    with served(make_world(), token_life_s=90 * DAY_S) as made:
        yield made


def as_token(site: Served, token: str, path: str = "/v1/summary") -> Any:
    return site.call("GET", path, who=None, headers={"Authorization": f"Bearer {token}"})


def acts(site: Served, **asked: Any) -> list[dict[str, Any]]:
    query = "&".join(f"{name}={value}" for name, value in {"limit": 1000, **asked}.items())
    found: list[dict[str, Any]] = site.call("GET", f"/v1/audit?{query}", who="adam").json["acts"]
    return found


# ---- how long they stand ----


def test_a_token_ends_and_says_so(tmp_path: Path, site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site.call("POST", "/v1/tokens", {"user": "eve", "role": "user", "life_s": 3600.0}, who="adam").json
    assert as_token(site, made["token"]).status == 200
    now_s = site.tokens._wall_s()
    monkeypatch.setattr(site.tokens, "_wall_s", lambda: now_s + 3601.0)
    found = as_token(site, made["token"])
    assert found.status == 401
    assert f"number {made['id']} of eve, expired on " in found.json["error"]
    assert "rotate" in found.json["hint"]
    assert as_token(site, site.token["alice"]).status == 200  # one that was made for ever
    assert Tokens(site.world.database, wall_s=site.tokens._wall_s).find(made["token"]) is None  # after a restart, too


@pytest.mark.parametrize(("life_s", "days"), [(None, 90.0), (0.0, None), (DAY_S, 1.0)])
def test_tokens_stand_as_long_as_configured_unless_said(site: Served, life_s: float | None, days: float | None) -> None:
    body = {"user": "eve", "role": "user", "life_s": life_s}
    made = site.call("POST", "/v1/tokens", body, who="adam").json
    (row,) = [row for row in site.call("GET", "/v1/tokens", who="adam").json["tokens"] if row["id"] == made["id"]]
    found = None if row["expires_at_s"] is None else (row["expires_at_s"] - row["created_at_s"]) / DAY_S
    assert found == (None if days is None else pytest.approx(days))


def test_tokens_of_a_database_from_before_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(f"{schema.STEPS[0]} PRAGMA user_version = 1;")
        old.execute(
            "INSERT INTO tokens (user, role, hash, created_at_s) VALUES ('ann', 'user', ?, 1.0)",
            ("2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",),  # of "secret"
        )
    database = Database(path)
    found = Tokens(database).find("secret")
    assert found is not None
    assert (found.user, found.expires_at_s) == ("ann", None)
    database.close()


# ---- rotation ----


def test_a_user_rotates_their_own_and_the_old_one_is_over(site: Served) -> None:
    made = site.call("POST", "/v1/tokens/rotate", {}, who="bob")
    assert made.status == 201
    assert as_token(site, made.json["token"]).status == 200
    assert as_token(site, site.token["bob"]).status == 401
    rows = {row["id"]: row for row in site.call("GET", "/v1/tokens", who="adam").json["tokens"]}
    assert (rows[made.json["id"]]["user"], rows[made.json["id"]]["role"]) == ("bob", "user")


def test_the_old_one_may_stand_for_a_while(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site.call("POST", "/v1/tokens/rotate", {"keep_s": 3600.0}, who="bob").json
    assert as_token(site, site.token["bob"]).status == as_token(site, made["token"]).status == 200
    now_s = site.tokens._wall_s()
    monkeypatch.setattr(site.tokens, "_wall_s", lambda: now_s + 3601.0)
    assert as_token(site, site.token["bob"]).status == 401
    assert as_token(site, made["token"]).status == 200


def test_only_an_administrator_rotates_others(site: Served) -> None:
    assert site.call("POST", "/v1/tokens/rotate", {"id": 1}, who="bob").status == 403
    assert site.call("POST", "/v1/tokens/rotate", {"id": 1}, who="olga").status == 403
    assert as_token(site, site.token["alice"]).status == 200
    made = site.call("POST", "/v1/tokens/rotate", {"id": 1}, who="adam")
    assert made.status == 201
    assert as_token(site, site.token["alice"]).status == 401
    for gone in (1, 999):
        assert site.call("POST", "/v1/tokens/rotate", {"id": gone}, who="adam").status == 404


# ---- the audit log ----


def test_who_did_what_is_written_down_with_where_it_came_from_and_without_secrets(site: Served) -> None:
    job_id = site.submit("alice", command=["train", "--password=hunter2"], env={"KEY": "hunter2"}, name="hunter2")
    for wish in ("hold", "release", "cancel"):
        assert site.call("POST", f"/v1/jobs/{job_id}/{wish}", who="olga").status == 202
        wait_for(lambda: site.world.store.wishes() == [])
    site.call("POST", "/v1/nodes/n0/drain", who="olga")
    site.call("POST", "/v1/nodes/n0:1/resume", who="olga")
    made = site.call("POST", "/v1/tokens", {"user": "eve", "role": "user"}, who="adam").json
    rotated = site.call("POST", "/v1/tokens/rotate", {"id": made["id"]}, who="adam").json
    site.call("DELETE", f"/v1/tokens/{rotated['id']}", who="adam")
    found = acts(site)
    assert [(one["user"], one["what"], one["job_id"]) for one in found] == [
        ("alice", "submitted", job_id),
        ("olga", "held", job_id),
        ("olga", "released", job_id),
        ("olga", "cancelled", job_id),
        ("olga", "drained", None),
        ("olga", "resumed", None),
        ("adam", "token-created", None),
        ("adam", "token-rotated", None),
        ("adam", "token-revoked", None),
    ]
    assert {one["source"] for one in found} == {"127.0.0.1"}
    assert all(one["token_id"] for one in found)
    assert [one["about"] for one in found if one["user"] == "olga"] == ["of alice"] * 3 + ["n0", "n0:1"]
    text = json.dumps(found)
    for secret in ("hunter2", made["token"], rotated["token"], *site.token.values()):
        assert secret not in text
    assert len(acts(site, user="olga")) == 5
    assert [one["job_id"] for one in acts(site, what="cancelled")] == [job_id]
    assert len(acts(site, after=-2)) == 2


def test_a_submission_sent_twice_is_told_once_and_one_that_is_refused_not_at_all(site: Served) -> None:
    for _ in range(2):
        sent = {"Idempotency-Key": "k"}
        assert site.call("POST", "/v1/jobs", {"command": ["a"], "hold": True}, headers=sent).status == 201
    assert site.call("POST", "/v1/jobs", {"command": []}).status == 422
    assert len(acts(site, what="submitted")) == 1


def test_failed_sign_ins_are_told_with_their_source_and_cannot_fill_the_disk(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(200):
        assert as_token(site, "fl_guessed").status == 401
    wait_for(lambda: len(acts(site, what="sign-in-failed")) == 1)
    (told,) = acts(site, what="sign-in-failed")
    assert (told["source"], told["user"]) == ("127.0.0.1", "")
    assert "fl_guessed" not in json.dumps(told)
    monkeypatch.setattr(auditing, "_EVERY_S", 0.0)  # a minute later
    as_token(site, "fl_guessed")
    wait_for(lambda: len(acts(site, what="sign-in-failed")) == 3)
    assert "199 more within a minute" in json.dumps(acts(site, what="sign-in-failed"))


def test_failed_sign_ins_from_everywhere_are_few_lines(make_world: MakeWorld) -> None:
    world = make_world()
    audit = Audit(world.database)
    for number in range(5000):
        audit.failed(f"10.0.{number // 250}.{number % 250}", "no token")
    world.database.write(lambda connection: None).result()
    assert len(audit.rows(0, 10_000)) == auditing._MOST_SOURCES


def test_an_expired_tokens_sign_in_is_told_with_whose_it_was(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    number, token = site.tokens.create("eve", "user", life_s=0.0)
    assert as_token(site, token).status == 401
    wait_for(lambda: acts(site, what="sign-in-failed"))
    (told,) = acts(site, what="sign-in-failed")
    assert (told["user"], told["token_id"], told["about"]) == ("eve", number, "its token has expired")


def test_what_is_written_down_is_not_changed_and_old_failures_push_nothing_else_out(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "_PRUNE_EVERY", 10)
    monkeypatch.setattr(auditing, "FAILURES_KEPT", 5)
    world = make_world()
    audit = Audit(world.database)
    audit.note(Act("ann", "submitted"))
    for _ in range(49):
        audit.note(Act("", auditing.FAILED, source="10.0.0.1")).result()
    found = audit.rows(0, 1000)
    assert [one["what"] for one in found] == ["submitted", *[auditing.FAILED] * 5]
    change = "UPDATE audit SET user = 'bob'"
    with pytest.raises(sqlite3.IntegrityError, match="not changed"):
        world.database.write(lambda connection: connection.execute(change)).result()


def test_a_controller_that_starts_is_told_and_so_is_another_policy(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    store, audit = Store(database), Audit(database)
    for policy in ("fifo", "fifo", "eaco"):
        note_start(store, policy, as_submitter=False)
    told = [(one["what"], one["about"]) for one in audit.rows(0, 10)]
    assert [what for what, _ in told] == ["controller-started"] * 3 + ["policy-changed"]
    assert told[-1][1] == "from fifo to eaco"
    assert "all jobs as" in told[0][1]
    database.close()

"""Who may ask what. Goes over all routes that the app has, so that a new one cannot be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from fairlead.errors import InputError
from fairlead.live.api.app import document
from fairlead.live.storage.tokens import Role, Tokens
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import World, wait_for

BODIES = {
    "/v1/jobs": {"command": ["train"]},
    "/v1/tokens": {"user": "eve", "role": "user"},
    "/v1/session": {"token": "fl_nonsense"},
    "/v1/whatif": {"policy": "nonsense"},
}
NEEDS = {
    ("POST", "/v1/nodes/{name}/drain"): Role.OPERATOR,
    ("POST", "/v1/nodes/{name}/enable"): Role.OPERATOR,
    ("POST", "/v1/nodes/tokens"): Role.ADMIN,
    ("DELETE", "/v1/nodes/{name}"): Role.OPERATOR,
    ("POST", "/v1/nodes/{name}/resume"): Role.OPERATOR,
    ("GET", "/v1/config"): Role.OPERATOR,
    ("GET", "/metrics"): Role.OPERATOR,
    ("GET", "/v1/audit"): Role.ADMIN,
    ("GET", "/v1/tokens"): Role.ADMIN,
    ("POST", "/v1/tokens"): Role.ADMIN,
    ("DELETE", "/v1/tokens/{token_id}"): Role.ADMIN,
}
PEOPLE = {"alice": Role.USER, "olga": Role.OPERATOR, "adam": Role.ADMIN}


@pytest.fixture(scope="module")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = World(tmp_path_factory.mktemp("world"))
    try:
        with served(world) as made:
            made.submit("bob", hold=True)
            yield made
    finally:
        world.close()


def routes(app: FastAPI) -> list[tuple[str, str]]:
    paths = document(app)["paths"]
    return [(method.upper(), path) for path, operations in paths.items() for method in operations]


def at(path: str) -> str:
    return path.format(job_id=1, name="n0", token_id=99) + ("?life_s=0" if path == "/v1/updates" else "")


def test_all_routes_are_in_the_document(open_site: Served) -> None:
    plain = {path for _, path in routes(open_site.app)}
    assert len(routes(open_site.app)) >= 20
    assert {r.path for r in open_site.app.routes if isinstance(r, APIRoute)} <= plain
    assert not plain & {"/docs", "/redoc", "/openapi.json"}


def test_without_a_token_nothing_answers_but_health(open_site: Served) -> None:
    for method, path in routes(open_site.app):
        found = open_site.call(method, at(path), BODIES.get(path) if method == "POST" else None, who=None)
        assert found.status == (200 if path == "/health" else 401), (method, path)
        if path != "/health":
            assert set(found.json) == {"error", "hint"}
            assert found.headers.get("www-authenticate") == (
                None if path == "/v1/session" and method == "POST" else "Bearer"
            )


def test_health_tells_nothing_but_whether_all_is_well(open_site: Served) -> None:
    found = open_site.call("GET", "/health", who=None)
    assert (found.status, found.json["status"], found.json["reasons"]) == (200, "ok", [])
    open_site.world.controller.trouble = "job 7 of bob: /home/bob is full"
    found = open_site.call("GET", "/health", who=None)
    assert (found.status, found.json["status"]) == (503, "trouble")
    assert b"bob" not in found.data
    assert b"bob" not in open_site.call("GET", "/v1/summary", who="alice").data
    open_site.world.controller.trouble = ""


@pytest.mark.parametrize(
    "sent", ["", "Bearer", "Bearer ", "Bearer nonsense", "Basic YTpi", "bearer fl_", "Bearer \u00ff", "fl_"]
)
def test_what_is_no_token_lets_nobody_in(open_site: Served, sent: str) -> None:
    assert open_site.call("GET", "/v1/summary", who=None, headers={"Authorization": sent}).status == 401


def test_a_token_that_stands_does_whatever_the_case_of_the_scheme(open_site: Served) -> None:
    sent = {"Authorization": f"bearer {open_site.token['alice']}"}
    assert open_site.call("GET", "/v1/summary", who=None, headers=sent).status == 200


@pytest.mark.parametrize("who", PEOPLE)
def test_each_role_may_do_what_it_may_and_no_more(open_site: Served, who: str) -> None:
    for method, path in routes(open_site.app):
        found = open_site.call(method, at(path), BODIES.get(path) if method == "POST" else None, who=who)
        needed = NEEDS.get((method, path), Role.USER)
        assert (found.status == 403) == (not PEOPLE[who].may(needed)), (method, path, found.status)
        if found.status == 403:
            assert set(found.json) == {"error", "hint"}


def test_others_jobs_are_as_if_they_were_not_there_on_every_route(open_site: Served) -> None:
    of_jobs = [(method, path) for method, path in routes(open_site.app) if "{job_id}" in path]
    assert len(of_jobs) >= 7
    for method, path in of_jobs:
        theirs = open_site.call(method, path.format(job_id=1), who="alice")
        absent = open_site.call(method, path.format(job_id=12345), who="alice")
        assert theirs.status == absent.status == 404, (method, path)
        assert theirs.data.replace(b"job 1", b"job 12345") == absent.data


def test_unknown_paths_and_methods_are_refused_in_the_same_form(open_site: Served) -> None:
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("GET", "/v1/jobs/1/nothing", 404),
        ("GET", "/docs", 404),
        ("PUT", "/v1/jobs", 405),
        ("DELETE", "/v1/jobs/1", 405),
        ("GET", "/v1/jobs/1/cancel", 405),
    ):
        found = open_site.call(method, path)
        assert found.status == status, (method, path)
        assert set(found.json) == {"error", "hint"}


def test_tokens_are_made_listed_used_and_revoked(make_world: MakeWorld) -> None:
    with served(make_world(), runs=False) as site:
        made = site.call("POST", "/v1/tokens", {"user": "eve", "role": "user", "note": "laptop"}, who="adam")
        assert made.status == 201
        token = made.json["token"]
        assert token.startswith("fl_")
        sent = {"Authorization": f"Bearer {token}"}
        assert site.call("GET", "/v1/summary", who=None, headers=sent).status == 200
        listed = site.call("GET", "/v1/tokens", who="adam")
        assert token.encode() not in listed.data
        (row,) = [row for row in listed.json["tokens"] if row["id"] == made.json["id"]]
        assert (row["user"], row["role"], row["note"], row["revoked_at_s"]) == ("eve", "user", "laptop", None)
        gone = site.call("DELETE", f"/v1/tokens/{made.json['id']}", who="adam")
        assert (gone.status, gone.json) == (200, {"id": made.json["id"]})
        assert site.call("GET", "/v1/summary", who=None, headers=sent).status == 401
        assert site.call("DELETE", "/v1/tokens/999", who="adam").status == 404


def test_tokens_are_on_the_disk_as_hashes_only(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world()
    token = Tokens(world.database).create("alice", "user")[1]
    world.close()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"alice" in written
    assert token.encode() not in written
    assert token.removeprefix("fl_").encode() not in written


def test_tokens_stand_over_a_restart_and_stay_revoked(make_world: MakeWorld) -> None:
    world = make_world()
    tokens = Tokens(world.database)
    (_, kept), (gone_id, gone) = tokens.create("alice", "admin"), tokens.create("bob", "user")
    assert tokens.revoke(gone_id)
    world.close()
    tokens = Tokens(make_world().database)
    who = tokens.find(kept)
    assert who is not None
    assert (who.user, who.role) == ("alice", Role.ADMIN)
    assert tokens.find(gone) is None
    assert tokens.find("") is None


@pytest.mark.parametrize("user", ["", "-x", "a b", "a/b", "x" * 65, "ä", "a\n", "a\0", "\ud800"])
def test_names_that_could_be_taken_for_something_else_are_refused(world: World, user: str) -> None:
    with pytest.raises(InputError, match="cannot be a name"):
        Tokens(world.database).create(user, "user")


def test_bad_roles_and_notes_are_refused(world: World) -> None:
    with pytest.raises(InputError, match="unknown role 'root'"):
        Tokens(world.database).create("alice", "root")
    with pytest.raises(InputError, match="note"):
        Tokens(world.database).create("alice", "user", "x" * 201)


def test_bodies_beyond_a_mebibyte_are_refused(open_site: Served) -> None:
    big = b'{"command": ["' + b"x" * (1 << 20) + b'"]}'
    assert open_site.call("POST", "/v1/jobs", raw=big).status == 413
    chunks = {"Transfer-Encoding": "chunked"}
    chunked = b"".join(b"10000\r\n" + b" " * 0x10000 + b"\r\n" for _ in range(17)) + b"0\r\n\r\n"
    found = open_site.call("POST", "/v1/jobs", raw=chunked, headers=chunks)
    assert found.status == 413
    assert set(found.json) == {"error", "hint"}


def test_the_loop_goes_on_beside_all_this(open_site: Served) -> None:
    job_id = open_site.submit("bob")
    wait_for(lambda: open_site.world.state(job_id) == "running")

"""Browsers: a session instead of a token, ended in every way that it can end, and of no use to other sites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlead.live.storage.database import Database
from fairlead.live.storage.sessions import CODE_S, MOST_EACH, Sessions
from fairlead.live.storage.tokens import Tokens
from tests.live.api.serving import Answer, Served, served
from tests.live.conftest import MakeWorld


def signed_in(site: Served, who: str = "alice", **headers: str) -> dict[str, str]:
    """The headers of a session."""
    found = site.call("POST", "/v1/session", {"token": site.token[who]}, who=None, headers=headers)
    assert found.status == 201, found.data
    return {"Cookie": found.headers["set-cookie"].partition(";")[0], "X-Fairlead-Session": found.json["key"]}


def asked(site: Served, sent: dict[str, str], path: str = "/v1/session", method: str = "GET", **more: str) -> Answer:
    return site.call(method, path, who=None, headers={**sent, **more})


def test_a_token_becomes_a_session_with_the_same_rights(site: Served) -> None:
    sent = signed_in(site, "olga")
    found = asked(site, sent)
    assert (found.status, found.json["user"], found.json["role"]) == (200, "olga", "operator")
    assert asked(site, sent, "/metrics").status == 200
    assert asked(site, sent, "/v1/tokens").status == 403
    assert site.call("POST", "/v1/nodes/n0/drain", who=None, headers=sent).status == 202


def test_the_cookie_is_for_the_browser_alone(site: Served) -> None:
    found = site.call("POST", "/v1/session", {"token": site.token["alice"]}, who=None)
    cookie = found.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert int(re.search(r"Max-Age=(\d+)", cookie)[1]) <= 12 * 3600  # type: ignore[index]
    assert site.token["alice"] not in cookie
    assert "secure" not in cookie.lower()
    host = site.server.url.removeprefix("http://")
    assert f"fairlead_session_{host.rpartition(':')[2]}=" in cookie
    behind = {"Origin": f"https://{host}"}  # a proxy speaks TLS
    found = site.call("POST", "/v1/session", {"token": site.token["alice"]}, who=None, headers=behind)
    assert "secure" in found.headers["set-cookie"].lower()
    assert found.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("missing", ["Cookie", "X-Fairlead-Session"])
def test_neither_half_of_a_session_is_enough(site: Served, missing: str) -> None:
    sent = signed_in(site)
    other = signed_in(site)
    assert asked(site, {**sent, missing: ""}).status == 401
    assert asked(site, {k: v for k, v in sent.items() if k != missing}).status == 401
    assert asked(site, {**sent, missing: other[missing]}).status == 401


def test_other_sites_can_do_nothing_with_it(site: Served) -> None:
    sent = signed_in(site)
    host = site.server.url
    assert asked(site, sent, "/v1/jobs/1/cancel", "POST", Origin="https://evil.example").status == 401
    assert asked(site, sent, **{"Sec-Fetch-Site": "cross-site"}).status == 401
    assert asked(site, sent, **{"Sec-Fetch-Site": "same-site"}).status == 401, "another port of this host"
    assert asked(site, sent, Origin=host).status == 200
    assert asked(site, sent, **{"Sec-Fetch-Site": "same-origin"}).status == 200
    body = {"token": site.token["alice"]}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert site.call("POST", "/v1/session", body, who=None, headers=headers).status == 403
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert site.call("POST", "/v1/session", who=None, raw=b"token=x", headers=form).status == 422
    preflight = asked(site, {}, "/v1/jobs", "OPTIONS", Origin="https://evil.example")
    assert "access-control-allow-origin" not in preflight.headers


def test_what_lets_nobody_in_is_refused_alike_and_written_down(site: Served) -> None:
    for body in ({"token": "fl_nonsense"}, {"code": "nonsense"}):
        found = site.call("POST", "/v1/session", body, who=None)
        assert found.status == 401
        assert "set-cookie" not in found.headers
    for wrong in ({}, {"token": "a", "code": "b"}, {"token": ""}, {"token": "x" * 201}, {"token": 7}, {"user": "a"}):
        assert site.call("POST", "/v1/session", wrong, who=None).status == 422
    acts = site.call("GET", "/v1/audit?after=-50", who="adam").json["acts"]
    assert "sign-in-failed" in [act["what"] for act in acts]


def test_a_session_ends_when_it_is_ended_and_when_its_token_does(site: Served) -> None:
    first, second = signed_in(site), signed_in(site)
    assert asked(site, first, method="DELETE").json == {"ended": 1}
    assert (asked(site, first).status, asked(site, second).status) == (401, 200)
    third = signed_in(site)
    assert asked(site, third, "/v1/sessions", "DELETE").json == {"ended": 2}
    assert (asked(site, second).status, asked(site, third).status) == (401, 401)
    fourth = signed_in(site)
    number = next(row.id for row in site.tokens.list() if row.user == "alice")
    site.call("DELETE", f"/v1/tokens/{number}", who="adam")
    assert asked(site, fourth).status == 401
    assert site.call("DELETE", "/v1/session", who="bob").status == 404, "a token is no session"
    acts = [act["what"] for act in site.call("GET", "/v1/audit?after=-50", who="adam").json["acts"]]
    assert acts.count("signed-in") == 4
    assert acts.count("signed-out") == 2


def test_a_code_signs_in_once_as_whoever_asked_for_it(site: Served) -> None:
    code = site.call("POST", "/v1/sign-in-codes", who="bob").json["code"]
    found = site.call("POST", "/v1/session", {"code": code}, who=None)
    assert (found.status, found.json["user"]) == (201, "bob")
    assert site.call("POST", "/v1/session", {"code": code}, who=None).status == 401


class Clocks:
    wall_s = 1.7e9
    up_s = 0.0

    def sessions(self, database: Database, tokens: Tokens) -> Sessions:
        return Sessions(database, tokens, life_s=3600.0, wall_s=lambda: self.wall_s, clock=lambda: self.up_s)


def test_sessions_and_codes_expire_survive_a_restart_and_are_kept_as_hashes(tmp_path: Path) -> None:
    database, clocks = Database(tmp_path / "fairlead.db"), Clocks()
    tokens = Tokens(database, wall_s=lambda: clocks.wall_s)
    who = tokens.find(tokens.create("alice", "user")[1])
    short = tokens.find(tokens.create("bob", "user", life_s=60.0)[1])
    assert who is not None
    assert short is not None
    sessions = clocks.sessions(database, tokens)
    begun, soon = sessions.begin(who, "here"), sessions.begin(short, "here")
    assert sessions.find(begun.cookie, begun.key) is not None
    again = clocks.sessions(database, tokens)
    assert again.find(begun.cookie, begun.key) is not None, "after a restart"
    assert soon.session.expires_at_s == clocks.wall_s + 60.0, "no longer than its token"
    clocks.wall_s += 61.0
    assert again.find(soon.cookie, soon.key) is None
    code = again.make_code(who)
    clocks.up_s += CODE_S + 1.0
    assert again.redeem(code) is None
    clocks.wall_s += 3600.0
    assert again.find(begun.cookie, begun.key) is None
    database.close()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(secret.encode() in written for secret in (begun.cookie, begun.key, code))


def test_there_is_no_end_of_sign_ins_but_of_sessions(tmp_path: Path) -> None:
    database = Database(tmp_path / "fairlead.db")
    tokens = Tokens(database)
    who = tokens.find(tokens.create("alice", "user")[1])
    assert who is not None
    sessions = Sessions(database, tokens)
    begun = [sessions.begin(who, "here") for _ in range(MOST_EACH + 2)]
    stand = [sessions.find(one.cookie, one.key) is not None for one in begun]
    assert stand == [False, False, *[True] * MOST_EACH]
    assert database.read("SELECT count(*) AS n FROM sessions")[0]["n"] == MOST_EACH
    codes = [sessions.make_code(who) for _ in range(101)]
    assert sessions.redeem(codes[0]) is None
    assert sessions.redeem(codes[-1]) is not None
    database.close()


def test_the_page_is_open_to_all_and_tells_nothing(site: Served) -> None:
    found = site.call("GET", "/", who=None)
    assert (found.status, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().partition(" ")[::2] for part in found.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in found.headers["content-security-policy"]
    assert found.headers["x-frame-options"] == "DENY"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    text = found.data.decode()
    assert not re.search(r"<script(?![^>]*src=)|<style|style=|onclick|https?://", text)
    script = re.search(r'type="module" src="([^"]+)"', text)
    assert script is not None
    asset = site.call("GET", script[1], who=None, headers={"Accept-Encoding": "gzip"})
    assert (asset.status, asset.headers["content-encoding"]) == (200, "gzip")
    assert "immutable" in asset.headers["cache-control"]
    assert site.call("GET", "/", who=None, headers={"If-None-Match": found.headers["etag"]}).status == 304
    for path in ("/assets/nothing.js", "/assets/../../etc/passwd", "/assets/%2e%2e/files.py"):
        assert site.call("GET", path, who=None).status == 404, path
    assert site.call("POST", "/", who=None).status == 401
    assert site.call("POST", "/", who="alice").status == 405


def test_a_session_may_be_shorter_by_configuration(make_world: MakeWorld) -> None:
    with served(make_world(), session_life_s=5.0) as site:
        cookie = site.call("POST", "/v1/session", {"token": site.token["bob"]}, who=None).headers["set-cookie"]
    assert "Max-Age=5" in cookie

"""Connections that say nothing, or say it slowly, shut nobody out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.live.api import connection_limits
from fairlead.live.api.connection_limits import ConnectionLimits, HttpConnection, client_of
from fairlead.live.engines.agent_client import AgentClient, Watcher
from fairlead.live.engines.engine import EngineError
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import wait_for
from tests.patience import PATIENCE_S

HALF = b"POST /v1/jobs HTTP/1.1\r\nHost: here\r\nContent-Le"
SLOW_BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer %s\r\nContent-Length: 90\r\n\r\n{"


@pytest.fixture
def narrow(make_world: MakeWorld) -> Iterator[Served]:
    """A server with room for twelve, eight of one address."""
    with served(make_world(), server={"connections": 12, "connections_each": 8}) as made:
        yield made


@contextlib.contextmanager
def connected(site: Served, count: int, said: bytes = b"") -> Iterator[list[socket.socket]]:
    host, _, port = site.server.url.removeprefix("http://").rpartition(":")
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            with contextlib.suppress(OSError):  # the first may have been cut off by now
                one.sendall(said)
            made.append(one)
        yield made


def waiting_for(site: Served, wait_s: float) -> bytes:
    """A request that is all there, and waits for an event."""
    first = f"GET /v1/events?after=99999&wait_s={wait_s} HTTP/1.1"
    return f"{first}\r\nHost: x\r\nAuthorization: Bearer {site.token['bob']}\r\n\r\n".encode()


def is_cut(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", HALF, b"GET"])
def test_half_open_connections_shut_nobody_out_and_hold_no_more_than_their_room(narrow: Served, said: bytes) -> None:
    with connected(narrow, 60, said) as many:
        for _ in range(5):
            assert narrow.call("GET", "/health", who=None).json["status"] == "ok"
        job_id = narrow.submit()
        wait_for(lambda: (job_id, 1) in narrow.world.engine.running)
        assert len(narrow.server.limits.inside) <= 8
        assert is_cut(many[0])  # whoever has waited the longest goes first
    wait_for(lambda: not narrow.server.limits.inside)


def test_bodies_that_never_come_shut_nobody_out_either(narrow: Served) -> None:
    with connected(narrow, 30, SLOW_BODY % narrow.token["bob"].encode()):
        assert narrow.submit() == 1
        assert len(narrow.server.limits.inside) <= 8


def test_who_is_being_answered_is_not_cut_off(narrow: Served) -> None:
    with connected(narrow, 1, waiting_for(narrow, 0.5)) as (waiting,), connected(narrow, 40, HALF):
        assert waiting.recv(12) == b"HTTP/1.1 200"


def test_an_answer_that_is_not_read_makes_room_for_others(narrow: Served) -> None:
    job_id = narrow.submit("bob")
    wait_for(lambda: (job_id, 1) in narrow.world.engine.running)
    narrow.world.engine.write((job_id, 1), b"x" * (8 << 20))
    ask = f"GET /v1/jobs/{job_id}/log?limit=1048576 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {narrow.token['bob']}"
    with connected(narrow, 8, (ask + "\r\n\r\n").encode() * 16):  # more than any buffer of the kernel's takes
        wait_for(lambda: not any(visit.is_answered for visit in narrow.server.limits.inside))
        assert narrow.call("GET", "/health", who=None).status == 200


def test_one_user_waits_in_so_many_places_only(narrow: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.live.api.events.MOST_WAITING", 3)
    with connected(narrow, 3, waiting_for(narrow, 60.0)):
        wait_for(lambda: narrow.app.state.context.waiting["bob"] == 3)
        refused = narrow.call("GET", "/v1/events?after=99999&wait_s=60", who="bob")
        assert (refused.status, refused.headers["retry-after"]) == (429, "2")
        assert narrow.call("GET", "/v1/events", who="bob").status == 200
        assert narrow.call("GET", "/v1/events?after=99999&wait_s=0.01", who="alice").status == 200
    wait_for(lambda: narrow.app.state.context.waiting["bob"] == 0)  # who has gone waits no longer


def test_where_all_are_being_answered_the_next_is_told_to_come_again(narrow: Served) -> None:
    with connected(narrow, 8, waiting_for(narrow, 60.0)):
        wait_for(lambda: sum(visit.is_answered for visit in narrow.server.limits.inside) == 8)
        with connected(narrow, 1) as (ninth,):
            assert ninth.recv(12) == b"HTTP/1.1 503"


@pytest.mark.parametrize("said", [HALF, SLOW_BODY % b"nonsense", b""])
def test_a_request_has_to_be_there_in_time(narrow: Served, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_S", 0.2)
    monkeypatch.setattr(connection_limits, "_LOOK_S", 0.05)
    with connected(narrow, 1, said) as (slow,):
        slow.settimeout(30)
        while not is_cut(slow):  # whatever was answered before, a 401 say
            pass


def test_a_head_has_an_end(narrow: Served) -> None:
    with connected(narrow, 1, b"GET /health HTTP/1.1\r\nHost: x\r\n") as (endless,):
        with contextlib.suppress(OSError):
            for _ in range(100):
                endless.sendall(b"X-More: " + b"x" * 8000 + b"\r\n")
        assert is_cut(endless)
    assert narrow.call("GET", "/health", who=None).status == 200


def test_a_large_body_in_one_piece_is_no_head(narrow: Served) -> None:
    assert narrow.submit(env={"BIG": "x" * 120_000}, hold=True) == 1


def test_another_address_has_room_while_one_is_full() -> None:
    made = ConnectionLimits(10, 6)
    made._now_s = lambda: 0.0
    ends, other = socket.socketpair()
    with ends, other:
        for _ in range(20):
            assert made.enter(ends, "10.0.0.1") is not None
        for _ in range(20):
            assert made.enter(ends, "10.0.0.2") is not None
        found = [visit.client for visit in made.inside]
        assert len(found) == 10
        assert found.count("10.0.0.1") >= 4


def test_clients_are_counted_by_address_network_or_account() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert client_of(left, "").startswith("uid ")
    with socket.socket(socket.AF_INET) as four, socket.socket(socket.AF_INET6) as six:
        assert client_of(four, ("10.1.2.3", 5)) == "10.1.2.3"
        assert client_of(six, ("2001:db8::1:2:3:4", 5, 0, 0)) == client_of(six, ("2001:db8::9", 5, 0, 0))
        assert client_of(six, ("::ffff:10.1.2.3", 5, 0, 0)) == "10.1.2.3"


def test_the_door_goes_on_when_there_are_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "_AGAIN_S", 0.0)
    tries = 0

    async def accept() -> int:
        nonlocal tries
        loop, made = asyncio.get_running_loop(), ConnectionLimits(4, 4)

        async def refuse(_: socket.socket) -> Any:
            nonlocal tries
            tries += 1
            if tries == 5:
                raise asyncio.CancelledError
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(loop, "sock_accept", refuse, raising=False)
        left, right = socket.socketpair()
        with left, right, contextlib.suppress(asyncio.CancelledError):
            made.inside[HttpConnection(left, "x", 0.0)] = None
            made._clients["x"] = 1
            await made.serve(right, lambda: pytest.fail("nobody came"), None)
        return len(made.inside)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert runner.run(accept()) == 0
    assert tries == 5


def test_a_watcher_survives_whatever_is_raised_when_it_brings_its_agent_back(tmp_path: Any) -> None:
    wrongs = [OSError(errno.EMFILE, "Too many open files"), MemoryError(), ValueError("no JSON"), EngineError("away")]
    raised = []

    def bring() -> None:
        raised.append(len(raised))
        if len(raised) <= len(wrongs):
            raise wrongs[len(raised) - 1]

    told: list[int] = []

    def news() -> None:
        told.append(1)
        raise OSError(errno.EMFILE, "Too many open files")

    client = AgentClient(tmp_path / "agent.sock")
    watcher = Watcher(client, bring, news, "node-0")
    answers: Iterator[Any] = iter([{"revision": "1"}, True, {"revision": "2"}])

    def answer(after: str) -> Any:
        found = next(answers, None)
        return found if found is not None else watcher._closing.wait()

    client.news = answer  # type: ignore[method-assign]
    watcher._thread.start()
    wait_for(lambda: len(told) == 3)  # it came, was not itself, and came again
    assert len(raised) == len(wrongs) + 2
    assert watcher._thread.is_alive()
    watcher.close()

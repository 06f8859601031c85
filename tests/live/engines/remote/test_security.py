"""Who is answered on the agents' port, and what for."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from typing import Any

import pytest

from fairlead.errors import RunError
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.stream.dialer import NotTheControllerError
from fairlead.node.stream.joining import FILE, join
from fairlead.node.stream.wire import Message, Wire, WireError
from tests.live.engines.remote.conftest import Yard, hello
from tests.patience import PATIENCE_S


def _invited(yard: Yard, name: str, first: int = 0) -> str:
    """A node that has joined, whose agent is played by the test; its token."""
    made = yard.source.invite(60.0)
    join(yard.folder / name, made["url"], made["token"], name, FakeMeter(2, "H200", first=first).gpus)
    found: str = json.loads((yard.folder / name / FILE).read_text())["token"]
    return found


async def _silence(wire: Wire) -> bool:
    """Whether the other side hangs up without a word."""
    try:
        await asyncio.wait_for(wire.receive(), PATIENCE_S)
    except WireError:
        return True
    return False


@pytest.mark.parametrize(
    "told",
    [
        {"token": "fln_wrong"},
        {"token": ""},
        {"nonce": "of another connection"},
        {"node": "b"},
        {"join": "flj_wrong"},
    ],
)
def test_without_the_right_token_nothing_is_answered(yard: Yard, told: Message) -> None:
    yard.open()
    token = _invited(yard, "a")

    async def talk(wire: Wire, greeting: Message) -> bool:
        wire.send(hello(greeting, **{"node": "a", "token": token, **told}))
        return await _silence(wire)

    assert yard.say(talk)


def test_a_token_of_one_node_cannot_speak_for_another(yard: Yard) -> None:
    yard.open()
    tokens = {name: _invited(yard, name, first) for name, first in (("a", 0), ("b", 2))}

    async def talk(wire: Wire, greeting: Message) -> bool:
        wire.send(hello(greeting, "b", tokens["a"]))
        return await _silence(wire)

    assert yard.say(talk)


def test_an_agent_says_nothing_to_somebody_with_another_certificate(yard: Yard) -> None:
    yard.open()

    async def talk(wire: Wire, greeting: Message) -> None:
        raise AssertionError("it was taken for the controller")

    with pytest.raises(NotTheControllerError):
        yard.say(talk, fingerprint="0" * 64)


def test_a_recorded_message_that_is_sent_again_ends_the_connection(yard: Yard) -> None:
    yard.open()
    token = _invited(yard, "a")

    async def talk(wire: Wire, greeting: Message) -> Any:
        wire.send(hello(greeting, "a", token))
        welcome = await wire.receive()
        wire.number(int(welcome["first"]))
        wire.send({"beat": 1.0})
        assert (await wire.receive())["lease"] == 1.0
        wire._next_out -= 1  # type: ignore[operator]
        wire.send({"beat": 1.0})
        return await _silence(wire)

    assert yard.say(talk)


def test_what_was_recorded_on_one_connection_is_refused_on_the_next(yard: Yard) -> None:
    yard.open()
    token, recorded = _invited(yard, "a"), list[Message]()

    async def first(wire: Wire, greeting: Message) -> None:
        recorded.append(hello(greeting, "a", token))
        wire.send(recorded[0])
        recorded.append(await wire.receive())

    async def second(wire: Wire, greeting: Message) -> bool:
        wire.send(recorded[0])
        return await _silence(wire)

    async def third(wire: Wire, greeting: Message) -> bool:
        wire.send(hello(greeting, "a", token))
        await wire.receive()
        wire.number(int(recorded[1]["first"]))
        wire.send({"beat": 1.0})
        return await _silence(wire)

    yard.say(first)
    assert yard.say(second)
    assert yard.say(third)


def test_a_token_for_joining_works_once(yard: Yard) -> None:
    yard.open()
    made = yard.source.invite(60.0)
    gpus = FakeMeter(1, "H200").gpus
    join(yard.folder / "a", made["url"], made["token"], "a", gpus)
    join(yard.folder / "a", made["url"], made["token"], "a", gpus)  # its answer may have been lost
    with pytest.raises(RunError, match="does not take this token"):
        join(yard.folder / "b", made["url"], made["token"], "b", FakeMeter(1, "H200", first=1).gpus)


def test_a_token_for_joining_ends(yard: Yard) -> None:
    yard.open()
    made = yard.source.invite(-1.0)
    with pytest.raises(RunError, match="does not take this token"):
        join(yard.folder / "a", made["url"], made["token"], "a", FakeMeter(1, "H200").gpus)


def test_tokens_are_kept_as_hashes_only(yard: Yard) -> None:
    yard.open()
    made = yard.source.invite(60.0)
    token = _invited(yard, "a")
    kept = json.dumps(yard.memory.kept)
    assert made["token"].split(".")[0] not in kept
    assert token not in kept


def test_plain_bytes_and_old_tls_are_not_answered(yard: Yard) -> None:
    yard.open()
    with socket.create_connection(("127.0.0.1", yard.port), 10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(10)
        assert b"fairlead" not in plain.recv(1000)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", yard.port), 10) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain)


def test_what_cannot_be_understood_ends_that_connection_only(yard: Yard) -> None:
    yard.open()
    token = _invited(yard, "a")

    async def talk(wire: Wire, greeting: Message) -> bool:
        wire.send(hello(greeting, "a", token))
        welcome = await wire.receive()
        wire.number(int(welcome["first"]))
        wire.send({"status": {"set": 7}})
        return await _silence(wire)

    assert yard.say(talk)
    assert yard.say(talk)

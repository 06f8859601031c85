"""Where agents dial in: one thread with all connections, and what each agent has told last (`RemoteLink`)."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import secrets
import socket
import ssl
import threading
import time
from asyncio import sslproto
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from fairlead.errors import FairleadError, InputError
from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.node_source import AgentAwayError, Status
from fairlead.node.identity import AttemptId
from fairlead.node.stream.delta import applied, is_quiet
from fairlead.node.stream.wire import PROTOCOL, Message, Wire, WireError

log = logging.getLogger("fairlead")
_HELLO_S, _HELLO_BYTES = 10.0, 64 << 10
"""Who has not shown by then that it may speak is cut off."""
_ANSWER_S, _START_S = 10.0, 90.0
_MOST_EVENTS = 1000
_STRANGERS = 4096
"""Connections that have not shown who they are, at a time: all agents may come at once."""
_SILENT_BEATS = 2.5
_BUFFER_BYTES = 16 << 10


class RemoteLink:
    """The agent in one place, connected or not (`AgentLink`). Its thread is the hub's."""

    def __init__(self, name: str, hub: Hub) -> None:
        self.name = name
        self.latest: Status | None = None
        self.heard_s = time.monotonic()
        """When it last spoke; at first, since when we listen."""
        self.address = ""
        self.has_left = False
        """It has said itself that nothing runs there any more."""
        self._hub = hub
        self._wire: Wire | None = None
        self._asked: dict[int, Future[Any]] = {}
        self._events: deque[Mapping[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._heard: tuple[str, int] | None = None
        """The last event that it told, and of which event log."""

    # ---- for the engine ----

    def status(self, events_after: int, event_log: str | None = None) -> Status:
        """As it was last told; agents tell by themselves."""
        latest = self.latest
        if latest is None:
            raise AgentAwayError(f"the agent of {self.name} does not answer")
        events = self._events
        while event_log == latest["event_log"] and events and events[0]["number"] <= events_after:
            events.popleft()
        return latest

    def post(self, what: str, about: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the agent do something: start, stop, forget and so on."""
        found: Mapping[str, Any] = self._ask(what, about, _START_S if what == "start" else _ANSWER_S) or {}
        return found

    def log(self, attempt: AttemptId, stream: str, offset: int, limit: int) -> bytes | None:
        """A piece of what a job wrote there; None where it never ran."""
        about = {"id": str(attempt), "stream": stream, "offset": offset, "limit": limit}
        found = self._ask("log", about, _ANSWER_S)
        return None if found is None else base64.b64decode(found)

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of there."""
        return int(self._ask("known", {}, _ANSWER_S))

    def lost(self) -> None:
        """End the connection; the agent dials again."""
        self._hub.call(self.detach, self._wire)

    def _ask(self, what: str, about: Mapping[str, Any], timeout_s: float) -> Any:
        answer: Future[Any] = Future()
        self._hub.call(self._send, answer, what, about)
        try:
            return answer.result(timeout_s)
        except FutureTimeoutError:
            raise AgentAwayError(f"the agent of {self.name} has not answered within {timeout_s:g} s") from None

    # ---- in the hub's thread ----

    def _send(self, answer: Future[Any], what: str, about: Mapping[str, Any]) -> None:
        if self._wire is None:
            answer.set_exception(AgentAwayError(f"the agent of {self.name} does not answer"))
            return
        number = self._hub.number()
        self._asked[number] = answer
        self._wire.send({"ask": number, "what": what, "about": about})

    def attach(self, wire: Wire) -> tuple[str, int] | None:
        """It speaks on this connection from now on; gives how far its events are known."""
        self.detach(self._wire)
        self._wire, self.address, self.has_left = wire, wire.peer, False
        self.heard_s = time.monotonic()
        return self._heard

    def detach(self, wire: Wire | None) -> None:
        """That connection is over; nothing where it speaks on another one by now."""
        if wire is None or wire is not self._wire:
            return
        wire.close()
        self._wire, self.latest = None, None
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            if not answer.done():
                answer.set_exception(AgentAwayError(f"the agent of {self.name} does not answer"))
        self._hub.tell(self)

    def take(self, wire: Wire, message: Message) -> None:
        """Take in a message that the agent has sent."""
        self.heard_s = time.monotonic()
        if "beat" in message:
            wire.send({"lease": message["beat"]})
        elif "status" in message:
            self._learn(message["status"])
        elif "answer" in message:
            self._settle(message)
        elif "bye" in message:
            self.has_left = True
            self._hub.tell(self)
        else:
            raise WireError(f"a message with {', '.join(message)[:80]}")

    def _learn(self, told: Mapping[str, Any]) -> None:
        latest = applied(self.latest, told)
        for event in latest["events"]:
            self._events.append(event)
            self._heard = latest["event_log"], event["number"]
        latest["events"] = self._events
        self.latest = latest
        if not is_quiet(told):
            self._hub.tell(self)

    def _settle(self, message: Message) -> None:
        answer = self._asked.pop(message["answer"], None)
        if answer is None or answer.done():
            return
        if "error" not in message:
            answer.set_result(message.get("ok"))
            return
        kinds: dict[str, type[FairleadError]] = {"input": InputError, "unknown": InputError}
        kind = kinds.get(str(message.get("kind")), EngineError)
        answer.set_exception(kind(str(message["error"]), hint=message.get("hint")))

    @property
    def is_silent(self) -> bool:
        """Whether a connection that should have brought a beat has not."""
        return self._wire is not None and time.monotonic() - self.heard_s > _SILENT_BEATS * self._hub.beat_s

    def check(self) -> None:
        """Let go of a connection on which nothing comes."""
        if self.is_silent:
            self.detach(self._wire)


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes of somebody who dials in and may."""

    link: RemoteLink | None = None
    is_new: bool = False
    """Nothing that may run there is known here."""
    refused: str = ""
    """Why not now; it will dial again."""
    answer: Mapping[str, Any] | None = None
    """To somebody who joins, who is not a node yet."""


Doorkeeper = Callable[[Mapping[str, Any], str], Admission | None]
"""From a hello and the address that it came from; None: nothing is answered. Called in threads."""


class Hub:
    """The listening end. `on_told` is called, in its thread, when an agent comes, goes, or tells what matters."""

    def __init__(
        self,
        context: ssl.SSLContext,
        address: tuple[str, int],
        doorkeeper: Doorkeeper,
        on_told: Callable[[RemoteLink], None],
        *,
        lease_s: float,
        beat_s: float,
    ) -> None:
        self.lease_s, self.beat_s = lease_s, beat_s
        self.bytes_in = self.bytes_out = 0
        """Of connections that are over."""
        self._context, self._doorkeeper, self._on_told = context, doorkeeper, on_told
        self._numbers = itertools.count(1)
        self._strangers = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._is_closing = False
        try:
            self._socket = socket.create_server(address, family=_family(address), backlog=4096)
        except OSError as error:
            where = f"{address[0]}:{address[1]}"
            hint = "give another agents.port, or 0 for any that is free"
            raise InputError(f"agents cannot be listened for on {where}: {error.strerror}", hint=hint) from None
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def start(self) -> None:
        """Let agents in from now on."""
        self._thread.start()

    def number(self) -> int:
        """Of the next request to an agent."""
        return next(self._numbers)

    def call(self, what: Callable[..., None], *values: Any) -> None:
        """Have it done in the hub's thread."""
        if not self._is_closing:
            self._loop.call_soon_threadsafe(what, *values)

    def tell(self, link: RemoteLink) -> None:
        """There is something new of an agent."""
        if self._is_closing:
            return
        try:
            self._on_told(link)
        except Exception:
            log.exception("the news of %s are lost", link.name)

    def close(self) -> None:
        """Let go of all; agents dial on."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5.0)
        self._socket.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        # By default each connection has a buffer of 256 KiB: half a GiB for 2,000 agents that say next to nothing.
        sslproto.SSLProtocol.max_size = _BUFFER_BYTES
        # Handshakes of a storm of agents are given time: each costs a millisecond of this one thread.
        serving = asyncio.start_server(
            self._serve, sock=self._socket, ssl=self._context, ssl_handshake_timeout=60.0, limit=1 << 20
        )
        server = self._loop.run_until_complete(serving)
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire, link = Wire(reader, writer), None
        try:
            link = await self._greet(wire)
            while link is not None:
                link.take(wire, await wire.receive())
        except (WireError, OSError, TimeoutError) as error:
            if link is not None:
                log.info("the agent of %s is away: %s", link.name, error)
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            log.warning("an agent said what cannot be understood: %s: %s", type(error).__name__, error)
        finally:
            if link is not None:
                link.detach(wire)
            self.bytes_in += wire.bytes_in
            self.bytes_out += wire.bytes_out
            wire.close()

    async def _greet(self, wire: Wire) -> RemoteLink | None:
        """Find out who it is. Who does not show that it may speak gets no word, and no reason."""
        if self._strangers >= _STRANGERS:
            return None
        self._strangers += 1
        try:
            nonce = secrets.token_hex(16)
            wire.send({"fairlead": PROTOCOL, "nonce": nonce})
            hello = (await asyncio.wait_for(wire.receive(_HELLO_BYTES), _HELLO_S)).get("hello")
            if not isinstance(hello, dict) or hello.get("nonce") != nonce:
                return None
            admitted = await self._loop.run_in_executor(None, self._doorkeeper, hello, wire.peer)
        finally:
            self._strangers -= 1
        if admitted is None:
            return None
        if hello.get("protocol") != PROTOCOL:
            wire.send({"refused": f"it speaks protocol {PROTOCOL}, not {hello.get('protocol')}: use one Fairlead"})
        elif admitted.answer is not None:
            wire.send({"joined": admitted.answer})
        elif admitted.link is None:
            wire.send({"refused": admitted.refused})
        else:
            first = secrets.randbits(48)
            heard = admitted.link.attach(wire)
            times = {"lease_s": self.lease_s, "beat_s": self.beat_s}
            wire.send({"first": first, "is_new": admitted.is_new, "heard": heard, **times})
            wire.number(first)
            return admitted.link
        await wire.drained()
        await asyncio.sleep(0.1)
        return None


def _family(address: tuple[str, int]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET

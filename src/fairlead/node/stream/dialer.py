"""The agent's end of the stream: it dials its controller, and goes on dialling, whatever happens there.

Agents dial, so that nodes behind a firewall, and pilots of which nobody knows where they will land, need no open port.
A controller is known by its certificate before anything is said to it. Jobs do not notice whether it is there, until
the lease ends (`lease.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.node.host import Host
from fairlead.node.http.routes import UnknownError, carry_out, stream_named
from fairlead.node.identity import AttemptId
from fairlead.node.process.processes import boot_s
from fairlead.node.stream.delta import difference
from fairlead.node.stream.interfaces import interface_of
from fairlead.node.stream.lease import Lease
from fairlead.node.stream.wire import PROTOCOL, Message, Wire, WireError, client_context, fingerprint

_CONNECT_S, _ANSWER_S = 10.0, 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
_REPORT_S = 10.0
"""Figures that change by themselves are told this often."""
_WORKERS = 8
_FENCE_S = 0.5


class NotTheControllerError(FairleadError):
    """Somebody else answers there; nothing was told to them."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an agent needs to reach its controller, as a file for its owner only."""

    controller: str
    """HOST:PORT."""
    fingerprint: str
    node: str
    token: str

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read them from the file that `node join` wrote."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise InputError(f"--dial {path}: {error.strerror}") from None
        except (ValueError, TypeError) as wrong:
            raise InputError(f"--dial {path} cannot be read: {wrong}", hint="`fairlead node join` makes it") from None

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the controller to dial."""
        return split(self.controller)


def split(text: str) -> tuple[str, int]:
    """HOST:PORT, with or without a scheme before it."""
    host, _, port = text.removeprefix("https://").removeprefix("fairlead://").rstrip("/").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"{text!r:.80} is no address of a controller", hint="for example https://head:7318")
    return host.strip("[]"), int(port)


async def dial(address: tuple[str, int], known_by: str) -> tuple[Wire, Message]:
    """A connection to the controller with that fingerprint, and its greeting."""
    reading = asyncio.open_connection(*address, ssl=client_context(), ssl_handshake_timeout=_CONNECT_S)
    reader, writer = await asyncio.wait_for(reading, _CONNECT_S)
    wire = Wire(reader, writer)
    if fingerprint(wire.certificate) != known_by:
        wire.close()
        raise NotTheControllerError(f"who answers at {address[0]}:{address[1]} is not the controller that we know")
    return wire, await asyncio.wait_for(wire.receive(), _ANSWER_S)


class Dialer:
    """One agent's stream, in a thread of its own."""

    def __init__(self, host: Host, folder: Path, credentials: Credentials) -> None:
        self._host, self._credentials = host, credentials
        self._lease = Lease(folder)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="asked")
        self._closing = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wire: Wire | None = None
        self._told: Mapping[str, Any] | None = None
        """What the controller knows of us."""
        self._telling = asyncio.Lock()
        self._said = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="dial", daemon=True)
        self._fence = threading.Thread(target=self._keep_lease, name="lease", daemon=True)

    def start(self) -> None:
        """Keep a connection to the controller from now on."""
        self._thread.start()
        self._fence.start()

    def leave(self, grace_s: float) -> None:
        """Nothing may run here any more: end all jobs, say so if somebody listens, and dial no more."""
        until_s = time.monotonic() + grace_s
        while not self._host.stop_all(max(until_s - time.monotonic(), 0.0)):
            time.sleep(0.05)
        loop, wire = self._loop, self._wire
        if loop is not None and wire is not None and loop.is_running():
            asyncio.run_coroutine_threadsafe(self._say_goodbye(wire), loop).result(_ANSWER_S)
        self._closing.set()

    # ---- inside ----

    async def _say_goodbye(self, wire: Wire) -> None:
        await self._tell(wire, restless=True)
        wire.send({"bye": True})
        await wire.drained()
        await asyncio.sleep(0.2)  # for what is under way to be sent before the process ends

    def _keep_lease(self) -> None:
        """Whoever nobody answers stops its jobs in time; what is left of them the supervisors kill."""
        while not self._closing.wait(_FENCE_S):
            if self._lease.is_ending and self._host.stop_all(self._lease.left_s) and self._lease.left_s <= 0.0:
                self._lease.drop()

    async def _run(self) -> None:
        self._loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        while not self._closing.is_set():
            began_s = time.monotonic()
            try:
                await self._session()
            except (FairleadError, OSError, ssl.SSLError, TimeoutError) as error:
                self._complain(str(error) or type(error).__name__)
            finally:
                if self._wire is not None:
                    self._wire.close()
                self._wire = None
            if time.monotonic() - began_s > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            # Agents that lost their controller together come back one by one.
            await asyncio.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(2.0 * pause_s, _LONGEST_PAUSE_S)

    def _complain(self, about: str) -> None:
        """Once for each trouble: it is tried for ever."""
        if about != self._said and not self._closing.is_set():
            self._said = about
            print(f"warning: the controller at {self._credentials.controller}: {about}", file=sys.stderr, flush=True)

    async def _session(self) -> None:
        known = self._credentials
        wire, greeting = await dial(known.address, known.fingerprint)
        self._wire, self._told = wire, None
        me = {"protocol": PROTOCOL, "node": known.node, "token": known.token, "nonce": greeting.get("nonce")}
        wire.send({"hello": {**me, "identity": self._host.identity, "interface": interface_of(wire.own_address)}})
        welcome = await asyncio.wait_for(wire.receive(), _ANSWER_S)
        if "refused" in welcome:
            raise RunError(f"it refuses us: {welcome['refused']}")
        wire.number(int(welcome["first"]))
        self._said = ""
        if welcome["is_new"]:  # whatever ran here was given up long ago
            while not await self._off(self._host.stop_all, 0.0):
                await asyncio.sleep(0.05)
        tasks = [
            asyncio.create_task(self._listen(wire, float(welcome["lease_s"]))),
            asyncio.create_task(self._keep_telling(wire, welcome.get("heard"))),
            asyncio.create_task(self._beat(wire, float(welcome["beat_s"]))),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def _off(self, call: Any, *values: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call, *values)

    async def _beat(self, wire: Wire, every_s: float) -> None:
        while True:
            wire.send({"beat": boot_s()})
            await wire.drained()
            await asyncio.sleep(every_s)

    async def _keep_telling(self, wire: Wire, heard: Any) -> None:
        self._heard: tuple[str, int] = (str(heard[0]), int(heard[1])) if heard else ("", 0)
        reported_s = 0.0
        while True:
            now_s = time.monotonic()
            is_due = now_s - reported_s >= _REPORT_S
            if is_due:
                reported_s = now_s
            await self._tell(wire, restless=is_due)
            revision = "" if self._told is None else self._told["revision"]
            await self._off(self._host.status, revision, _REPORT_S, 2**62)

    async def _tell(self, wire: Wire, *, restless: bool) -> None:
        """What has changed since it was last told."""
        async with self._telling:
            event_log, last = self._heard
            now = await self._off(self._host.status, "", 0.0, last, event_log)
            if now["events"]:
                self._heard = now["event_log"], now["events"][-1]["number"]
            told = difference(self._told, now, restless=restless)
            if not told:
                return
            self._told = {**now, "events": []} if restless or self._told is None else _kept(self._told, now)
            wire.send({"status": told})
            await wire.drained()

    async def _listen(self, wire: Wire, lease_s: float) -> None:
        asked: set[asyncio.Task[None]] = set()
        while True:
            message = await wire.receive()
            if "lease" in message:
                self._lease.renew(float(message["lease"]), lease_s)
            elif "ask" in message:
                task = asyncio.create_task(self._answer(wire, message))
                asked.add(task)
                task.add_done_callback(asked.discard)
            else:
                raise WireError(f"a message with {', '.join(message)[:80]}")

    async def _answer(self, wire: Wire, message: Message) -> None:
        number, what, about = message["ask"], str(message["what"]), message.get("about") or {}
        try:
            answer: Message = {"ok": await self._off(self._carry_out, what, about)}
        except UnknownError as error:
            answer = {"error": error.message, "kind": "unknown"}
        except FairleadError as error:
            kind = "input" if isinstance(error, InputError) else "run"
            answer = {"error": error.message, "hint": error.hint, "kind": kind}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "kind": "run"}
        await self._tell(wire, restless=False)  # what came of it is known before it is answered
        wire.send({"answer": number, **answer})
        await wire.drained()

    def _carry_out(self, what: str, about: Mapping[str, Any]) -> Any:
        match what:
            case "log":
                attempt = AttemptId.parse(str(about["id"]))
                found = self._host.read_log(attempt, stream_named(about), int(about["offset"]), int(about["limit"]))
                return None if found is None else base64.b64encode(found).decode()
            case "known":
                return self._host.highest_job_id()
            case _:
                return carry_out(self._host, what, about)


def _kept(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the controller knows after all but the restless figures were told."""
    return {**now, "events": [], "readings": before["readings"], "guard_age_s": before.get("guard_age_s", 0.0)}

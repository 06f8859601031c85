"""Nodes whose agents dial in: who has which place, who may take one, and when one is given up.

A place has a number for ever; machines come to it and go. One that is known to have gone, by its own last word or since
its lease is over (`node/stream/lease.py`), leaves the place free. The next comes in only when the controller has
accounted for all that ran there (`vacated`): so no order for the one reaches the other, and nothing runs twice.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.node_source import AgentLink, NodeSource, OnNews
from fairlead.live.engines.remote.certificate import Certificate, certificate_in
from fairlead.live.engines.remote.hub import Admission, Hub, RemoteLink
from fairlead.model.cluster import Node

log = logging.getLogger("fairlead")
_TICK_S = 0.5
_MARGIN_S, _MARGIN = 2.0, 0.1
"""Beyond the lease, before a node is given up: for what was being killed, and clocks that differ in pace."""
_CONNECT_S = 3.0


class Facts(Protocol):
    """What survives the controller: its store, mostly."""

    def fact(self, name: str) -> Any:
        """What was kept under this name, or None."""
        ...

    def keep(self, name: str, value: Any) -> None:
        """On the disk when this returns."""
        ...


@dataclass(frozen=True, slots=True)
class Door:
    """Where agents dial in, and how long they keep their word."""

    folder: Path
    """Holds the certificate."""
    host: str = "127.0.0.1"
    port: int = 0
    address: str = ""
    """What agents dial, where that is not the host."""
    lease_s: float = 120.0
    beat_s: float = 5.0


@dataclass(slots=True)
class Place:
    """One node's place: who has it, and what is known of that node."""

    node: Node
    token_hash: str = ""
    """Of who may come here."""
    identity: str = ""
    """Of the agent that has it; empty while it is free."""
    link: RemoteLink | None = None
    """None while it is free."""
    is_vacant: bool = False
    """Whether a free one may be taken."""
    interface: str = ""


class RemoteNodes(NodeSource):
    """The places of one engine; those who know how machines get there make a subclass."""

    def __init__(self, facts: Facts, door: Door, *, is_fake: bool = False) -> None:
        self._is_fake = is_fake
        self.door = door
        self.certificate: Certificate = certificate_in(door.folder)
        self._facts = facts
        self._lock = threading.RLock()
        self._places: list[Place] = []
        self._number: dict[int, int] = {}
        """Of the place of each link, by its identity."""
        self._by_token: dict[str, int] = {}
        """Places, by the hash of the token of who may come there."""
        self._on_news: OnNews = lambda node: None
        self._closing = threading.Event()
        self.hub = Hub(
            self.certificate.context(),
            (door.host, door.port),
            self.admit,
            self._told,
            lease_s=door.lease_s,
            beat_s=door.beat_s,
        )
        self._ticking = threading.Thread(target=self._tick_on, name="nodes", daemon=True)

    # ---- for the engine ----

    @property
    def is_fake(self) -> bool:
        """Whether the GPUs are made up."""
        return self._is_fake

    def nodes(self) -> Sequence[Node]:
        """The nodes of all places, in order."""
        with self._lock:
            return [place.node for place in self._places]

    def open(self, on_news: OnNews) -> None:
        """Let agents in; those that were there before are given a moment to dial in."""
        self._on_news = on_news
        with self._lock:
            self._by_token = {place.token_hash: n for n, place in enumerate(self._places) if place.token_hash}
            for number, place in enumerate(self._places):
                if place.identity:
                    self._seat(number, place)
        self.hub.start()
        self._ticking.start()
        until_s = time.monotonic() + min(_CONNECT_S, self.door.lease_s / 4.0)
        while time.monotonic() < until_s and any(one.link and one.link.latest is None for one in self._places):
            time.sleep(0.02)

    def link(self, node: int) -> AgentLink | None:
        """Who has the place; None where it is free."""
        return self._places[node].link

    def sleep(self, node: int) -> None:
        """Its agent takes no jobs until it is woken."""
        self._occupied(node).post("sleep", {})

    def wake(self, node: int) -> None:
        """Its agent takes jobs again; who is not there cannot be sent for."""
        link = self._places[node].link
        if link is not None:
            link.post("wake", {})

    def vacated(self, nodes: frozenset[int]) -> None:
        """These places may be taken."""
        for node in nodes:
            self._places[node].is_vacant = True

    def address(self, node: int) -> str:
        """The node's address as it is seen from here."""
        link = self._places[node].link
        return link.address if link is not None else ""

    def interface(self, node: int) -> str:
        """The network interface by which it reaches others."""
        return self._places[node].interface

    def close(self) -> None:
        """Let go; agents dial on."""
        self._closing.set()
        self.hub.close()
        if self._ticking.is_alive():
            self._ticking.join(5.0)

    def shutdown(self) -> None:
        """Agents of other machines are not ours to end."""

    @property
    def dialled(self) -> str:
        """HOST:PORT for agents; an address that is given may name another port, a proxy's for instance."""
        address = self.door.address or self.door.host
        return address if re.fullmatch(r".*:\d+", address) else f"{address}:{self.hub.port}"

    # ---- who may come in ----

    def admit(self, hello: Mapping[str, Any], peer: str) -> Admission | None:
        """Somebody dials: by its token it is the agent of one place, and by no other name."""
        with self._lock:
            # By hash, of which a guesser controls no part, so time tells nothing.
            number = self._by_token.get(hash_of(str(hello.get("token", ""))))
            place = None if number is None else self._places[number]
            if number is None or place is None or hello.get("node") != place.node.name:
                return None
            return self._admit(number, place, hello)

    def _admit(self, number: int, place: Place, hello: Mapping[str, Any]) -> Admission:
        identity = str(hello.get("identity", ""))
        if place.identity == identity and place.link is not None:
            return Admission(place.link)
        if place.identity:
            return Admission(refused=f"another agent has the place of {place.node.name}; its lease is not over")
        if not place.is_vacant or not identity:
            return Admission(refused=f"what ran on {place.node.name} before is still being accounted for")
        place.identity, place.is_vacant = identity, False
        place.interface = str(hello.get("interface", ""))[:32]
        self._keep(number)
        self._seat(number, place)
        return Admission(place.link, is_new=True)

    def _seat(self, number: int, place: Place) -> None:
        place.link = RemoteLink(place.node.name, self.hub)
        self._number[id(place.link)] = number

    def free(self, number: int, why: str) -> None:
        """Nothing runs there any more."""
        with self._lock:
            place = self._places[number]
            link, place.link, place.identity, place.is_vacant = place.link, None, "", False
            self._keep(number)
        if link is not None:
            self._number.pop(id(link), None)
            self.hub.call(link.lost)
            log.info("%s is gone: %s", place.node.name, why)
        self._on_news(number)

    def _keep(self, number: int | None = None) -> None:
        """A place has changed, or any may have; with the lock held."""
        self._by_token = {place.token_hash: n for n, place in enumerate(self._places) if place.token_hash}
        self._save(number)

    def _save(self, number: int | None) -> None:
        """Keep it on the disk, or all."""
        raise NotImplementedError

    def _told(self, link: RemoteLink) -> None:
        number = self._number.get(id(link))
        if number is not None:
            self._on_news(number)

    def _occupied(self, node: int) -> AgentLink:
        link = self._places[node].link
        if link is None:
            raise EngineError(f"nobody is in the place of {self._places[node].node.name}")
        return link

    # ---- as time passes ----

    def _tick_on(self) -> None:
        while not self._closing.wait(_TICK_S):
            try:
                self.tick()
            except Exception:
                log.exception("nodes cannot be looked after")

    def tick(self) -> None:
        """Now and then: who has been silent for longer than its lease is given up."""
        most_s = self.door.lease_s * (1.0 + _MARGIN) + _MARGIN_S
        for number, place in enumerate(list(self._places)):
            link = place.link
            if link is None:
                continue
            if link.is_silent:
                self.hub.call(link.check)
            if link.has_left and link.latest is None:
                self.free(number, "it said so, and that nothing runs there")
            elif link.latest is None and time.monotonic() - link.heard_s > most_s:
                self.free(number, f"nothing was heard of it for {most_s:.0f} s, and its lease is over")


def new_token() -> tuple[str, str]:
    """A node's token, and what is kept of it."""
    token = "fln_" + secrets.token_urlsafe(32)
    return token, hash_of(token)


def hash_of(token: str) -> str:
    """What is kept of a token: 256 random bits need no slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()

"""Machines that just join: an operator makes a token that works once, and `fairlead node join` uses it there.

The node gets a token of its own for that, and keeps its place over restarts of either side, until it is removed.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairlead.errors import InputError
from fairlead.live.engines.local_nodes import model_of
from fairlead.live.engines.remote.hub import Admission
from fairlead.live.engines.remote.places import Door, Facts, Place, RemoteNodes, hash_of, new_token
from fairlead.model.cluster import GPU_MODELS, GpuModel, Node
from fairlead.node.gpu.meter import info_from_json

if TYPE_CHECKING:
    from fairlead.live.engines.agent_engine import AgentEngine
    from fairlead.live.engines.registry import Site

PREFIX = "flj_"
NOBODY = "none-yet"
"""A cluster has at least one node; this one stands for it until the first has joined."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MOST_GPUS = 1024
_PLACES, _INVITATIONS = "joined-nodes", "join-tokens"


class JoinedNodes(RemoteNodes):
    """Of one controller; places and tokens are kept in its store."""

    def __init__(self, facts: Facts, door: Door, *, is_fake: bool = False) -> None:
        super().__init__(facts, door, is_fake=is_fake)
        self._invitations: dict[str, dict[str, Any]] = facts.fact(_INVITATIONS) or {}
        """Tokens that work once, by their hash: until when, and who has used it."""
        self._infos: dict[str, list[dict[str, Any]]] = {}
        for number in range(facts.fact(_PLACES) or 0):
            saved = facts.fact(f"{_PLACES}.{number}")
            self._infos[saved["name"]] = saved["gpus"]
            node = _node(saved["name"], saved["gpus"]) if saved["gpus"] else _nobody()
            self._places.append(Place(node, saved["token_hash"], saved["identity"]))
        if not self._places:
            self._places.append(Place(_nobody()))

    # ---- for the operator ----

    def invite(self, life_s: float) -> dict[str, Any]:
        """A token that lets one machine join."""
        secret = PREFIX + secrets.token_urlsafe(24)
        with self._lock:
            now_s = time.time()
            self._invitations = {k: one for k, one in self._invitations.items() if one["ends_at_s"] > now_s}
            self._invitations[hash_of(secret)] = {"ends_at_s": now_s + life_s, "identity": ""}
            self._facts.keep(_INVITATIONS, self._invitations)
        token = f"{secret}.{self.certificate.fingerprint}"
        return {"token": token, "url": f"https://{self.dialled}", "ends_at_s": now_s + life_s}

    def remove(self, name: str, *, force: bool = False) -> None:
        """Take a node out for good: its token is of no use from now on, and its place may be another's."""
        with self._lock:
            number = self.number(name)
            place = self._places[number]
            alive = [] if place.link is None or place.link.latest is None else _alive(place.link.latest)
            if alive and not force:
                hint = "drain it and wait, or give --force: they are stopped, and go on elsewhere"
                raise InputError(f"{name} runs {len(alive)} jobs", hint=hint)
            if place.link is not None and place.link.latest is None and not force:
                hint = "wait until its lease is over, or give --force if you know that nothing runs there"
                raise InputError(f"{name} does not answer, and may run jobs", hint=hint)
            place.token_hash = ""
            self._keep(number)
            link = place.link
        if link is not None and link.latest is not None:
            for one in alive:
                link.post("stop", {"id": one, "grace_s": 0.0})
            until_s = time.monotonic() + 15.0
            while (latest := link.latest) is not None and _alive(latest) and time.monotonic() < until_s:
                time.sleep(0.05)
        self.free(number, "an operator has removed it")

    def number(self, name: str) -> int:
        """Of the node with this name."""
        for number, place in enumerate(self._places):
            if place.node.name == name and (place.token_hash or place.identity):
                return number
        known = [place.node.name for place in self._places if place.token_hash]
        raise InputError(f"no node {name!r:.80} has joined", hint=f"joined: {', '.join(known) or 'none'}")

    def hidden(self) -> frozenset[int]:
        """Places that nobody has, nor may come to: people need not see them."""
        return frozenset(n for n, place in enumerate(self._places) if not place.token_hash and not place.identity)

    # ---- who may come in ----

    def admit(self, hello: Mapping[str, Any], peer: str) -> Admission | None:
        """A node that has joined, or one that wants to."""
        if "join" in hello:
            return self._join(hello)
        return super().admit(hello, peer)

    def _join(self, hello: Mapping[str, Any]) -> Admission | None:
        """With a token that was not used, or by the same agent again: its answer may have been lost."""
        with self._lock:
            invitation = self._invitations.get(hash_of(str(hello["join"])))
            identity = str(hello.get("identity", ""))
            if invitation is None or invitation["ends_at_s"] < time.time() or not identity:
                return None
            if invitation["identity"] not in ("", identity):
                return None
            name, infos = str(hello.get("node", "")), hello.get("gpus")
            problem = self._problem(name, infos, identity)
            if problem:
                return Admission(refused=problem)
            assert isinstance(infos, list)
            token, token_hash = new_token()
            place = self._place(name, infos)
            place.token_hash, place.is_vacant = token_hash, place.is_vacant or not place.identity
            self._infos[name] = infos
            invitation["identity"] = identity
            self._facts.keep(_INVITATIONS, self._invitations)
            self._keep(self._places.index(place))
        return Admission(answer={"token": token, "node": name})

    def _problem(self, name: str, infos: Any, identity: str) -> str:
        if not _NAME.fullmatch(name) or name == NOBODY:
            return f"{name!r:.80} cannot be a node's name: letters, digits, '.', '_' and '-'"
        if not isinstance(infos, list) or not 1 <= len(infos) <= _MOST_GPUS:
            return "a node needs at least one GPU"
        if any(bool(info.get("is_fake")) != self.is_fake for info in infos):
            return "its GPUs are made up" if not self.is_fake else "this cluster is of made-up GPUs only"
        taken = next((p for p in self._places if p.node.name == name and (p.token_hash or p.identity)), None)
        if taken is not None and taken.identity not in ("", identity):
            return f"there is a node {name} already; remove it first, or join by another --name"
        uuids = {info["uuid"] for info in infos}
        others = (p for p in self._places if p.node.name != name and (p.token_hash or p.identity))
        if any(uuids.intersection(other.node.uuids) for other in others):
            return "a GPU of it is another node's already"
        return ""

    def _place(self, name: str, infos: Sequence[dict[str, Any]]) -> Place:
        """Its own, one that nobody has and that is of the same size, or a new one."""
        node = _node(name, infos)
        for place in self._places:
            if place.node.name == name and place.node.gpus == node.gpus:
                place.node = node
                return place
        for place in self._places:
            is_free = not place.token_hash and not place.identity
            if is_free and (place.node.gpus == node.gpus or len(self._places) == 1):
                place.node = node
                return place
        self._places.append(Place(node, is_vacant=True))
        return self._places[-1]

    def _save(self, number: int | None) -> None:
        """Each place by itself: there may be thousands."""
        for one in range(len(self._places)) if number is None else (number,):
            place = self._places[one]
            about = {"name": place.node.name, "gpus": self._infos.get(place.node.name, [])}
            self._facts.keep(f"{_PLACES}.{one}", {**about, "token_hash": place.token_hash, "identity": place.identity})
        if self._facts.fact(_PLACES) != len(self._places):
            self._facts.keep(_PLACES, len(self._places))


def make(site: Site) -> AgentEngine:
    """The engine of `fairlead up --engine join`."""
    from fairlead.live.engines.agent_engine import AgentEngine

    is_fake = site.config.engine.fake_gpus > 0
    return AgentEngine(JoinedNodes(site.facts, site.door, is_fake=is_fake), knows=site.store.knows, terms=site.terms)


def _nobody() -> Node:
    return Node(NOBODY, 1, replace(GPU_MODELS["T4"], memory_mib=1.0), wake_s=0.0)


def _node(name: str, infos: Sequence[dict[str, Any]]) -> Node:
    known = [info_from_json(info) for info in infos]
    # Of GPUs that differ the smallest counts: what fits there fits all.
    model: GpuModel = min((model_of(info) for info in known), key=lambda one: one.memory_mib)
    return Node(name, len(known), model, wake_s=0.0, uuids=tuple(info.uuid for info in known))


def _alive(status: Mapping[str, Any]) -> list[str]:
    return [one["id"] for one in status["attempts"] if one["state"] not in ("ended", "lost")]

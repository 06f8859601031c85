"""A world with its API on a loopback port."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI

from fairlead.live.api.app import make_app
from fairlead.live.api.server import Server
from fairlead.live.client import Client
from fairlead.live.storage.tokens import Tokens
from tests.live.scripted import World
from tests.patience import PATIENCE_S


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Served:
    """A world, its app and server, and a token for each of some people."""

    world: World
    app: FastAPI
    server: Server
    tokens: Tokens
    token: dict[str, str] = field(default_factory=dict)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: str | None = "alice",
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if who is not None:
            sent.setdefault("Authorization", f"Bearer {self.token[who]}")
        data = json.dumps(body).encode() if body is not None else raw
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        host, _, port = self.server.url.removeprefix("http://").rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        try:
            connection.request(method, path, data, sent)
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def submit(self, who: str = "alice", **asked: Any) -> int:
        found = self.call("POST", "/v1/jobs", {"command": ["train"], **asked}, who=who)
        assert found.status == 201, found.data
        job_id: int = found.json["id"]
        return job_id

    def client(self, who: str = "alice") -> Client:
        return Client(self.server.url, self.token[who])


@contextmanager
def served(
    world: World, *, runs: bool = True, server: dict[str, Any] | None = None, **options: Any
) -> Iterator[Served]:
    """With tokens for the users alice and bob, the operator olga and the administrator adam."""
    tokens = Tokens(world.database)
    app = make_app(world.controller, world.store, tokens, config_view={"poll_s": [5.0, "default"]}, **options)
    listening = Server(app, **(server or {}))
    made = Served(world, app, listening, tokens)
    for user, role in (("alice", "user"), ("bob", "user"), ("olga", "operator"), ("adam", "admin")):
        made.token[user] = tokens.create(user, role)[1]
    listening.start()
    try:
        if runs:
            with world.running():
                yield made
        else:
            yield made
    finally:
        listening.stop()
        app.state.context.close()

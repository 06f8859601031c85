"""Around every request: how long it took, and how much of a body is read."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.live.api.answers import Refusal, problem
from fairlead.live.api.metrics import Metrics
from fairlead.live.api.stream import STREAM

MOST_BODY = 1024 * 1024
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Timed:
    """Tells the metrics of each request, by the route that it took and never by its path, of which there is no end."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and tell the metrics how long it took."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, code = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            if route != STREAM:  # a page that is open is not a request that takes long
                self._metrics.requests.labels(route, method, code).observe(time.perf_counter() - began_s)


class Bounded:
    """Refuses bodies of more than a mebibyte, whether they say so beforehand or not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and refuse a body that is too large."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or len(value) > 18 or int(value) > MOST_BODY):
                await problem(_too_long())(scope, receive, send)
                return
        read = 0

        async def counting() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > MOST_BODY:
                raise _too_long()
            return message

        await self._app(scope, counting, send)


def _too_long() -> Refusal:
    return Refusal(413, f"the body is longer than {MOST_BODY:,} bytes")

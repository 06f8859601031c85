"""The page: its files, and the headers with which a browser is to treat them."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from fairlead.live.api.answers import Refusal
from fairlead.web.files import StaticFile, static_files

CSP = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "worker-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types fairlead",
))  # fmt: skip
"""Our own files only, no inline script or style, nobody's frame, and no way from text to markup."""
HEADERS = {
    "Content-Security-Policy": CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class _Named:
    """Stands for a route where metrics ask for one: assets are one route, whatever their names."""

    path: str


def routes() -> list[BaseRoute]:
    """Those of the page. Not in the OpenAPI document: they are no interface."""
    return [Route("/", _page, methods=["GET"]), Route("/assets/{name:path}", _page, methods=["GET"])]


async def _page(request: Request) -> Response:
    path = request.url.path
    request.scope["route"] = _Named("/" if path == "/" else "/assets")
    found = static_files().get(path)
    if found is None:
        raise Refusal(404, "there is no such file", "load the page again: it may be of another version")
    return _answer(request, found, "no-cache" if path == "/" else _FOR_EVER)


def _answer(request: Request, found: StaticFile, caching: str) -> Response:
    headers = {**HEADERS, "Cache-Control": caching, "ETag": found.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.gzipped, media_type=found.media_type, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)

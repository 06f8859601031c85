"""The static files in memory, as they are sent: compressed once, under a path that names their contents."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served; licences and the like are not."""
_ASSETS = "{assets}"
"""Stands in the index for the folder of everything else."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page as it is served, plain and compressed."""

    body: bytes
    gzipped: bytes
    media_type: str
    etag: str


def text(name: str) -> str:
    """A file by its path below `static`, for whoever puts it into a document of its own."""
    return (STATIC / name).read_text(encoding="utf-8")


@cache
def static_files() -> Mapping[str, StaticFile]:
    """All of them by URL path. The assets' folder is named by what is in it, so that it may be cached for ever."""
    found = {path.relative_to(STATIC).as_posix(): path for path in sorted(STATIC.rglob("*")) if path.suffix in _TYPES}
    bodies = {name: path.read_bytes() for name, path in found.items()}
    whole = hashlib.sha256(b"".join(name.encode() + b"\0" + body for name, body in bodies.items())).hexdigest()
    folder = f"/assets/{whole[:16]}"
    index = bodies.pop(INDEX).replace(_ASSETS.encode(), folder.encode())
    made = {f"{folder}/{name}": _file(name, body) for name, body in bodies.items()}
    return {"/": _file(INDEX, index), **made}


def _file(name: str, body: bytes) -> StaticFile:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return StaticFile(body, gzip.compress(body, 9, mtime=0), _TYPES[Path(name).suffix], etag)

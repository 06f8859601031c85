"""What can be asked of a node agent over HTTP, in JSON.

    GET  /status?after=REVISION&wait_s=20&events_after=N    waits until something differs from that revision
    GET  /log?job_id=17&attempt=2&stream=stdout&offset=0&limit=65536    the bytes as they are
    POST /start  an order (order.py)
    POST /stop   {"job_id": 17, "attempt": 2, "grace_s": 30}
    POST /forget {"job_id": 17, "attempt": 2}, /remove {"job_id": 17}, /sleep {}, /wake {}

What is refused now and may work later is answered with 409, what never will with 400, the log of an attempt that was
never started with 404, all with an `error` to read.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import traceback
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fairlead.errors import FairleadError, InputError
from fairlead.node.host import Host, Stream
from fairlead.node.order import Order

_MOST_BODY = 16 << 20
_MOST_WAIT_S = 60.0
_IDLE_S = 120.0
"""A connection on which nothing is asked for so long is closed."""


class _UnknownError(InputError):
    """There is no such thing here."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    host: Host
    token: str | None = None
    """None: whoever can open the socket may ask."""

    def do_GET(self) -> None:
        """What stands, and what was written."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """What is to be done."""
        self._answer(self._post)

    def _answer(self, serve: Callable[[], dict[str, Any] | bytes]) -> None:
        try:
            if self._is_permitted():
                self._send(200, serve())
            else:
                self.close_connection = True  # whatever else it sent is not read
                self._send(401, {"error": "this node wants a token, and not the one that was given"})
        except FairleadError as error:
            code = 404 if isinstance(error, _UnknownError) else 400 if isinstance(error, InputError) else 409
            self._send(code, {"error": error.message, "hint": error.hint})
        except Exception as error:
            traceback.print_exc()
            self._send(500, {"error": f"{type(error).__name__}: {error}"})

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > _MOST_BODY:
            self.close_connection = True
            raise InputError(f"a request of {length} bytes; at most {_MOST_BODY} are read")
        return self.rfile.read(int(length))

    def _is_permitted(self) -> bool:
        if self.token is None:
            return True
        given = self.headers.get("Authorization") or ""
        return hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode())

    def _get(self) -> dict[str, Any] | bytes:
        where = urlsplit(self.path)
        asked = dict(parse_qsl(where.query))
        if where.path == "/status":
            wait_s = min(max(_number(asked, "wait_s", 0.0), 0.0), _MOST_WAIT_S)
            return self.host.status(asked.get("after", ""), wait_s, int(_number(asked, "events_after", 0)))
        if where.path == "/log":
            stream: Stream = "stderr" if asked.get("stream") == "stderr" else "stdout"
            job_id, attempt, limit = (_whole(asked, name) for name in ("job_id", "attempt", "limit"))
            offset = _whole(asked, "offset", least=-(2**62))  # below 0: from the end
            found = self.host.read_log(job_id, attempt, stream, offset, limit)
            if found is None:
                raise _UnknownError(f"job {job_id}, attempt {attempt} was never started here")
            return found
        raise InputError(f"nothing is at {where.path}")

    def _post(self) -> dict[str, Any]:
        try:
            asked = json.loads(self._body() or b"{}")
        except ValueError as wrong:
            raise InputError(f"a request that is no JSON: {wrong}") from None
        if not isinstance(asked, dict):
            raise InputError("expected a JSON object")
        match self.path:
            case "/start":
                self.host.start(Order.from_dict(asked))
            case "/stop":
                self.host.stop(_whole(asked, "job_id"), _whole(asked, "attempt"), _number(asked, "grace_s"))
            case "/forget":
                self.host.forget(_whole(asked, "job_id"), _whole(asked, "attempt"))
            case "/remove":
                self.host.remove(_whole(asked, "job_id"))
            case "/sleep":
                self.host.sleep()
            case "/wake":
                self.host.wake()
            case other:
                raise InputError(f"nothing is at {other}")
        return {}

    def _send(self, code: int, found: dict[str, Any] | bytes) -> None:
        is_raw = isinstance(found, bytes)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        with contextlib.suppress(OSError):  # whoever asked has gone
            self.send_response(code)
            self.send_header("Content-Type", "application/octet-stream" if is_raw else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing: requests come many times a second."""


def _number(asked: Mapping[str, Any], name: str, default: float | None = None) -> float:
    try:
        return float(asked.get(name, default))
    except (TypeError, ValueError):
        raise InputError(f"{name} is {asked.get(name)!r}, expected a number") from None


def _whole(asked: Mapping[str, Any], name: str, least: int = 0) -> int:
    found = _number(asked, name)
    if found != found // 1 or found < least:
        raise InputError(f"{name} is {asked.get(name)!r}, expected a whole number from {least} on")
    return int(found)

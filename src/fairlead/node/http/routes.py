"""What can be asked of a node agent over HTTP, in JSON.

    GET  /status?after=REVISION&wait_s=20&event_log=L&events_after=N    waits until something differs from that revision
    GET  /log?id=17.2.9f3c01ab&stream=stdout&offset=0&limit=65536    the bytes as they are
    GET  /known  {"highest_job_id": 17}
    POST /start  an order (order.py)
    POST /stop   {"id": "17.2.9f3c01ab", "grace_s": 30, "nodes": [0, 1]}; without a grace, the job's own
    POST /forget {"id": "17.2.9f3c01ab"}, /remove {"job_id": 17}, /sleep {}, /wake {}
    POST /enable {"gpu": "GPU-..."}  {"was_disabled": true}
    POST /locate-log {"id": "17.2.9f3c01ab", "stream": "all", "since_s": 1.7e9}  {"path": "/...", "offset": 4711}

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
from fairlead.node.http.connections import Connections
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order

_MOST_BODY = 16 << 20
_MOST_WAIT_S = 60.0
_IDLE_S = 30.0
"""A connection on which nothing is asked for so long is closed."""


class UnknownError(InputError):
    """There is no such thing here."""


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    host: Host
    token: str | None = None
    """None: whoever can open the socket may ask."""
    connections: Connections

    def do_GET(self) -> None:
        """What stands, and what was written."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """What is to be done."""
        self._answer(self._post)

    def _answer(self, serve: Callable[[], dict[str, Any] | bytes]) -> None:
        try:
            if self._is_permitted():
                with self.connections.known(self.connection):
                    self._send(200, serve())
            else:
                self.close_connection = True  # whatever else it sent is not read
                self._send(401, {"error": "this node wants a token, and not the one that was given"})
        except FairleadError as error:
            code = 404 if isinstance(error, UnknownError) else 400 if isinstance(error, InputError) else 409
            self._send(code, {"error": error.message, "hint": error.hint})
        except OSError as error:  # a full disk, most often: no fault of ours, and it may be over when it is tried again
            about = f"{error.filename}: " if error.filename else ""
            self._send(409, {"error": f"this node cannot do it now: {about}{error.strerror or error}"})
        except Exception as error:
            traceback.print_exc()
            self._send(500, {"error": f"{type(error).__name__}: {error}"})

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length") or "0"
        is_number = length.isascii() and length.isdigit() and len(length) <= len(str(_MOST_BODY))
        if not is_number or int(length) > _MOST_BODY:
            self.close_connection = True
            raise InputError(f"a request of {length[:40]} bytes; at most {_MOST_BODY} are read")
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
            events_after = _whole(asked, "events_after", default=0)
            return self.host.status(asked.get("after", ""), wait_s, events_after, asked.get("event_log"))
        if where.path == "/log":
            stream, attempt, limit = stream_named(asked), _attempt(asked), _whole(asked, "limit")
            offset = _whole(asked, "offset", least=-(2**62))  # below 0: from the end
            found = self.host.read_log(attempt, stream, offset, limit)
            if found is None:
                raise UnknownError(f"{attempt.in_words} was never started here")
            return found
        if where.path == "/known":
            return {"highest_job_id": self.host.highest_job_id()}
        raise InputError(f"nothing is at {where.path}")

    def _post(self) -> dict[str, Any]:
        try:
            asked = json.loads(self._body() or b"{}")
        except (ValueError, RecursionError) as wrong:
            raise InputError(f"a request that is no JSON: {wrong}") from None
        if not isinstance(asked, dict):
            raise InputError("expected a JSON object")
        return carry_out(self.host, self.path.removeprefix("/"), asked)

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


def carry_out(host: Host, what: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What a controller asks to be done, however it asks."""
    match what:
        case "start":
            return host.start(Order.from_dict(about))
        case "stop":
            grace_s = None if about.get("grace_s") is None else _number(about, "grace_s")
            host.stop(_attempt(about), grace_s, _nodes(about))
        case "forget":
            host.forget(_attempt(about))
        case "remove":
            host.remove(_whole(about, "job_id"))
        case "sleep":
            host.sleep()
        case "wake":
            host.wake()
        case "locate-log":
            return host.locate_log(_attempt(about), stream_named(about), _number(about, "since_s"))
        case "enable":
            return {"was_disabled": host.enable(str(about.get("gpu", "")))}
        case other:
            raise InputError(f"nothing is at /{other}")
    return {}


def stream_named(asked: Mapping[str, Any]) -> Stream:
    """The stream of output that is asked for; stdout unless another is named."""
    match asked.get("stream"):
        case "all":
            return "all"
        case "stderr":
            return "stderr"
    return "stdout"


def _attempt(asked: Mapping[str, Any]) -> AttemptId:
    return AttemptId.parse(str(asked.get("id", "")))


def _number(asked: Mapping[str, Any], name: str, default: float | None = None) -> float:
    try:
        return float(asked.get(name, default))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {asked.get(name)!r:.40}, expected a number") from None


def _nodes(asked: Mapping[str, Any]) -> list[int]:
    found = asked.get("nodes", [])
    if not isinstance(found, list) or not all(isinstance(node, int) for node in found):
        raise InputError(f"nodes is {found!r:.40}, expected a list of numbers")
    return found


def _whole(asked: Mapping[str, Any], name: str, least: int = 0, default: float | None = None) -> int:
    found = _number(asked, name, default)
    if found != found // 1 or found < least:
        raise InputError(f"{name} is {asked.get(name)!r}, expected a whole number from {least} on")
    return int(found)

"""One HTTP connection to a controller: addresses, tokens, JSON, and refusals as errors in the server's own words."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from fairlead.errors import FairleadError, InputError

TOKEN = "FAIRLEAD_TOKEN"
PORT = 7317
"""Where a controller answers unless told otherwise."""
_GONE = (http.client.HTTPException, OSError, UnicodeError)


class ControllerUnreachableError(FairleadError):
    """No controller answers at this address."""


class ControllerError(FairleadError):
    """It answered, and could not: it will be well again, or its log says why."""


class AccessError(FairleadError):
    """No token, or not enough of one; exit status 2."""

    exit_code = 2


class NotFoundError(InputError):
    """No such job, node or token; or not one that this caller may see."""


class Connection:
    """To `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`, with a token. For one thread at a time."""

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        if not (token.isascii() and token.isprintable()):
            raise AccessError("the token has characters that are in no token", hint=f"look at {TOKEN}, or at its file")
        self.url, self.token, self.timeout_s = url, token, timeout_s
        self._connection = _connection(url, timeout_s)
        self.has_answered = False
        """Whether there has ever been an answer: who has answered once is waited for when it is away."""

    def close(self) -> None:
        """Let it go; the next call connects anew."""
        self._connection.close()

    def json(
        self,
        method: str,
        path: str,
        asked: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> dict[str, Any]:
        """Ask, and read the JSON object that is the answer."""
        data = None if body is None else json.dumps(body).encode()
        _, found = self.call(method, _with(path, asked), data, headers or {}, again)
        try:
            answer: dict[str, Any] = json.loads(found)
        except ValueError:
            raise _stranger(f"{self.url} answered with what is no JSON") from None
        return answer

    def get_bytes(self, path: str, asked: Mapping[str, Any]) -> tuple[http.client.HTTPMessage, bytes]:
        """Ask for what is no JSON; with the headers of the answer."""
        return self.call("GET", _with(path, asked), None, {}, True)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        again: bool,
        refusals: tuple[int, ...] = (),
    ) -> tuple[http.client.HTTPMessage, bytes]:
        """One request. A connection that the other side had closed meanwhile is made anew, once.

        A status in `refusals` is an answer like others.
        """
        sent = {"Authorization": f"Bearer {self.token}", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        is_fresh = self._connection.sock is None
        try:
            self._connection.request(method, path, body, sent)
            answer = self._connection.getresponse()
            data = answer.read()
        except _GONE as error:
            self.close()
            if again and not is_fresh:
                return self.call(method, path, body, headers, again, refusals)
            raise self._unreachable(error) from None
        self.has_answered = True
        if answer.status >= 400 and answer.status not in refusals:
            raise _refusal(answer.status, data, self.url)
        return answer.headers, data

    def reach(self) -> None:
        """Connect now, and say so where nobody is there."""
        try:
            self._connection.connect()
        except _GONE as error:
            self.close()
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> ControllerUnreachableError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        hint = "start one with: fairlead up --fake-gpus 8"
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "if the certificate is one of your own, name it: SSL_CERT_FILE=cert.pem"
        return ControllerUnreachableError(f"no controller answers at {self.url}: {why}", hint=hint)


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    if url.startswith("unix:"):
        return _UnixConnection(url.removeprefix("unix:"), timeout_s)
    hint = f"like http://127.0.0.1:{PORT}, https://gpus.example.org:{PORT} or unix:/run/fairlead.sock"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"{url!r} is no address of a controller: {error}", hint=hint) from None
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query:
        raise InputError(f"{url!r} is no address of a controller", hint=hint)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the file of the controller's socket."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(self.timeout)
        try:
            made.connect(self._path)
        except BaseException:
            made.close()
            raise
        self.sock = made


def _with(path: str, asked: Mapping[str, Any] | None) -> str:
    given = {name: value for name, value in (asked or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _stranger(message: str) -> ControllerError:
    return ControllerError(message, hint="is it a controller, and not another server?")


def _refusal(status: int, data: bytes, url: str) -> FairleadError:
    """The server's own words, as the kind of error that they are."""
    try:
        said = json.loads(data)
        message, hint = str(said["error"]), said["hint"]
    except (ValueError, KeyError, TypeError):
        return _stranger(f"{url} answered with status {status}")
    if status == 401:
        return AccessError(message, hint=f"set {TOKEN} to a token that stands; an administrator can make one")
    if status == 403:
        return AccessError(message, hint=hint)
    if status == 404:
        return NotFoundError(message, hint=hint)
    if status < 500:
        return InputError(message, hint=hint)
    return ControllerError(message, hint=hint)

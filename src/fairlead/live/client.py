"""The controller from elsewhere: what the command line and scripts call. Standard library only, so it loads at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from fairlead.errors import FairleadError, InputError

URL, TOKEN, HOME = "FAIRLEAD_URL", "FAIRLEAD_TOKEN", "FAIRLEAD_HOME"
TIMEOUT_S = 30.0
RETRY_S = 30.0
"""How long a submission whose fate is unknown is tried again."""
_LOOK_S = 0.5
"""Between two looks at a log that grows."""
_PIECE = 256 * 1024
_OVER = ("finished", "parked", "cancelled")
_GONE = (http.client.HTTPException, OSError, UnicodeError)


class ControllerUnreachableError(FairleadError):
    """Nobody answers there."""


class ControllerError(FairleadError):
    """It answered, and could not: it will be well again, or its log says why."""


class AccessError(FairleadError):
    """No token, or not enough of one; exit status 2."""

    exit_code = 2


class NotFoundError(InputError):
    """No such job, node or token; or not one that this caller may see."""


class Client:
    """One controller, at `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`. For one thread at a time."""

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        if not (token.isascii() and token.isprintable()):
            raise AccessError("the token has characters that are in no token", hint=f"look at {TOKEN}, or at its file")
        self.url = url
        self._token = token
        self._timeout_s = timeout_s
        self._connection = _connection(url, timeout_s)
        self._has_answered = False
        """Whether there has ever been an answer: who has answered once is waited for when it is away."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the connection go; the next call makes another."""
        self._connection.close()

    # ---- jobs ----

    def submit(self, request: Mapping[str, Any], *, key: str | None = None, retry_s: float = RETRY_S) -> dict[str, Any]:
        """Its number, when it is on the disk.

        A controller that goes away in the middle of it is asked again, with the same key, when it is back: the job is
        there once, whether or not it had been stored before. One that was never there is told of at once.
        """
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(24)}
        until_s, wait_s = time.monotonic() + retry_s, 0.1
        if not self._has_answered:
            self._reach()
        while True:
            try:
                found: dict[str, Any] = self._json("POST", "/v1/jobs", body=dict(request), headers=headers)
                return found
            except (ControllerUnreachableError, ControllerError):
                if time.monotonic() + wait_s > until_s:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 2.0)

    def jobs(
        self,
        *,
        states: str | None = None,
        user: str | None = None,
        order: str = "newest",
        most: int | None = None,
        page: int = 500,
    ) -> Iterator[dict[str, Any]]:
        """All of them, or the first few, a page at a time. `states` has commas between."""
        after, left = None, most
        while left is None or left > 0:
            limit = page if left is None else min(page, left)
            asked = {"state": states, "user": user, "order": order, "after": after, "limit": limit}
            found = self._json("GET", "/v1/jobs", asked)
            yield from found["jobs"]
            after = found["next"]
            left = None if left is None else left - len(found["jobs"])
            if after is None:
                return

    def job(self, job_id: int) -> dict[str, Any]:
        """One, with its attempts."""
        return self._dict("GET", f"/v1/jobs/{int(job_id)}")

    def cancel(self, job_id: int) -> dict[str, Any]:
        """End it."""
        return self._dict("POST", f"/v1/jobs/{int(job_id)}/cancel")

    def hold(self, job_id: int) -> dict[str, Any]:
        """Keep it from running until it is released."""
        return self._dict("POST", f"/v1/jobs/{int(job_id)}/hold")

    def release(self, job_id: int) -> dict[str, Any]:
        """Let it wait for GPUs again."""
        return self._dict("POST", f"/v1/jobs/{int(job_id)}/release")

    def explain(self, job_id: int) -> dict[str, Any]:
        """Why it is where it is."""
        return self._dict("GET", f"/v1/jobs/{int(job_id)}/explain")

    def log(
        self,
        job_id: int,
        *,
        stream: str = "stdout",
        attempt: int | None = None,
        offset: int = 0,
        follow: bool = False,
    ) -> Iterator[bytes]:
        """What it wrote, in pieces. `follow` goes on until it is over; without an attempt, over all that follow."""
        pinned, at = attempt is not None, attempt
        while True:
            asked = {"stream": stream, "attempt": at, "offset": offset, "limit": _PIECE}
            headers, data = self._get_bytes(f"/v1/jobs/{int(job_id)}/log", asked)
            offset = int(headers["X-Fairlead-Next-Offset"])
            at = int(headers["X-Fairlead-Attempt"]) or None
            if data:
                yield data
            elif not follow:
                return
            is_over = headers["X-Fairlead-Over"] == "1"
            if is_over and not follow:
                return
            if is_over:
                # Looked at only now, when all of this attempt has been read.
                job = self.job(job_id)
                if pinned or (job["state"] in _OVER and job["attempt"] == (at or 0)):
                    return
                if job["attempt"] > (at or 0):
                    at, offset = (at or 0) + 1, 0
                    continue
            if follow and not data:
                time.sleep(_LOOK_S)

    def events(
        self, *, job_id: int | None = None, after: int = 0, follow: bool = False, wait_s: float = 20.0
    ) -> Iterator[dict[str, Any]]:
        """What happened since the event numbered `after`; `follow` waits for more, for ever."""
        path = "/v1/events" if job_id is None else f"/v1/jobs/{int(job_id)}/events"
        while True:
            asked: dict[str, Any] = {"after": after, "limit": 1000}
            if follow and job_id is None:
                asked["wait_s"] = min(wait_s, self._timeout_s / 2)
            found = self._json("GET", path, asked)
            yield from found["events"]
            after = found["next"]
            if not found["events"]:
                if not follow:
                    return
                if job_id is not None:
                    time.sleep(_LOOK_S)

    # ---- the cluster ----

    def nodes(self) -> dict[str, Any]:
        """The nodes, their GPUs and who is on them."""
        return self._dict("GET", "/v1/nodes")

    def drain(self, name: str) -> dict[str, Any]:
        """A node or a GPU takes no new jobs."""
        return self._dict("POST", f"/v1/nodes/{quote(name, safe='')}/drain")

    def resume(self, name: str) -> dict[str, Any]:
        """It takes them again."""
        return self._dict("POST", f"/v1/nodes/{quote(name, safe='')}/resume")

    def summary(self) -> dict[str, Any]:
        """The cluster in a few numbers."""
        return self._dict("GET", "/v1/summary")

    def snapshot(self) -> dict[str, Any]:
        """All that a simulation needs to run on from here."""
        return self._dict("GET", "/v1/snapshot")

    def config(self) -> dict[str, Any]:
        """The configuration in force."""
        return self._dict("GET", "/v1/config")

    def health(self) -> dict[str, Any]:
        """Whether it does its work."""
        return self._dict("GET", "/health")

    def metrics(self) -> str:
        """For Prometheus."""
        return self._get_bytes("/metrics", {})[1].decode()

    # ---- tokens ----

    def tokens(self) -> list[dict[str, Any]]:
        """All, without the tokens themselves."""
        found: list[dict[str, Any]] = self._json("GET", "/v1/tokens")["tokens"]
        return found

    def make_token(self, user: str, role: str, note: str = "") -> dict[str, Any]:
        """A new one, shown this once."""
        self.close()  # over a new connection, so that it need never be sent twice
        wanted = {"user": user, "role": role, "note": note}
        found: dict[str, Any] = self._json("POST", "/v1/tokens", body=wanted, again=False)
        return found

    def revoke_token(self, token_id: int) -> dict[str, Any]:
        """It lets nobody in any more."""
        return self._dict("DELETE", f"/v1/tokens/{int(token_id)}")

    # ---- how ----

    def _dict(self, method: str, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self._json(method, path)
        return found

    def _json(
        self,
        method: str,
        path: str,
        asked: Mapping[str, Any] | None = None,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        _, found = self._call(method, _with(path, asked), data, headers or {}, again)
        try:
            return json.loads(found)
        except ValueError:
            raise _stranger(f"{self.url} answered with what is no JSON") from None

    def _get_bytes(self, path: str, asked: Mapping[str, Any]) -> tuple[http.client.HTTPMessage, bytes]:
        return self._call("GET", _with(path, asked), None, {}, True)

    def _call(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], again: bool
    ) -> tuple[http.client.HTTPMessage, bytes]:
        """One request. A connection that the other side had closed meanwhile is made anew, once."""
        sent = {"Authorization": f"Bearer {self._token}", **headers}
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
                return self._call(method, path, body, headers, again)
            raise self._unreachable(error) from None
        self._has_answered = True
        if answer.status >= 400:
            raise _refusal(answer.status, data, self.url)
        return answer.headers, data

    def _reach(self) -> None:
        """Whether anybody is there at all."""
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


def default_client() -> Client:
    """The controller that FAIRLEAD_URL and FAIRLEAD_TOKEN name, else the one whose state folder this is."""
    home = Path(os.environ.get(HOME) or Path.home() / ".fairlead")
    url = os.environ.get(URL) or _first_line(home / "url")
    if url is None:
        raise ControllerUnreachableError(
            f"no controller answers at {home}: {URL} is not set, and {home / 'url'} is not there",
            hint="start one with: fairlead up --fake-gpus 8",
        )
    token = os.environ.get(TOKEN) or _first_line(home / "token")
    if token is None:
        raise AccessError(
            f"no token: {TOKEN} is not set, and {home / 'token'} is not there", hint="ask whoever runs the controller"
        )
    return Client(url, token)


def _first_line(path: Path) -> str | None:
    with contextlib.suppress(OSError, UnicodeError):
        return path.read_text().strip() or None
    return None


def _connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    if url.startswith("unix:"):
        return _UnixConnection(url.removeprefix("unix:"), timeout_s)
    hint = "like http://127.0.0.1:8700, https://gpus.example.org:8700 or unix:/run/fairlead.sock"
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
        """To the socket's file."""
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

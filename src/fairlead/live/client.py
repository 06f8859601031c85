"""The controller from elsewhere: what the command line and scripts call. Standard library only, so it loads at once."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fairlead.live.connection import TOKEN, AccessError, Connection, ControllerError, ControllerUnreachableError

URL, HOME = "FAIRLEAD_URL", "FAIRLEAD_HOME"
TIMEOUT_S = 30.0
RETRY_S = 30.0
"""How long a submission whose fate is unknown is tried again."""
_LOOK_S = 0.5
"""Between two looks at a log that grows."""
_PIECE = 256 * 1024
_OVER = ("finished", "parked", "cancelled")


class Client:
    """One controller, at `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`. For one thread at a time."""

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self._http = Connection(url, token, timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the connection go; the next call makes another."""
        self._http.close()

    # ---- jobs ----

    def submit(self, request: Mapping[str, Any], *, key: str | None = None, retry_s: float = RETRY_S) -> dict[str, Any]:
        """Its number, when it is on the disk.

        A controller that goes away in the middle of it is asked again, with the same key, when it is back: the job is
        there once, whether or not it had been stored before. One that was never there is told of at once.
        """
        headers = {"Idempotency-Key": key or secrets.token_urlsafe(24)}
        until_s, wait_s = time.monotonic() + retry_s, 0.1
        if not self._http.has_answered:
            self._http.reach()
        while True:
            try:
                return self._http.json("POST", "/v1/jobs", body=dict(request), headers=headers)
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
            found = self._http.json("GET", "/v1/jobs", asked)
            yield from found["jobs"]
            after = found["next"]
            left = None if left is None else left - len(found["jobs"])
            if after is None:
                return

    def job(self, job_id: int) -> dict[str, Any]:
        """One job with all about it, and its attempts."""
        return self._http.json("GET", f"/v1/jobs/{int(job_id)}")

    def cancel(self, job_id: int) -> dict[str, Any]:
        """End a job for good, wherever it stands."""
        return self._http.json("POST", f"/v1/jobs/{int(job_id)}/cancel")

    def hold(self, job_id: int) -> dict[str, Any]:
        """Keep it from running until it is released."""
        return self._http.json("POST", f"/v1/jobs/{int(job_id)}/hold")

    def release(self, job_id: int) -> dict[str, Any]:
        """Let it wait for GPUs again."""
        return self._http.json("POST", f"/v1/jobs/{int(job_id)}/release")

    def explain(self, job_id: int) -> dict[str, Any]:
        """Why it is where it is."""
        return self._http.json("GET", f"/v1/jobs/{int(job_id)}/explain")

    def log(
        self,
        job_id: int,
        *,
        stream: str = "all",
        attempt: int | None = None,
        offset: int = 0,
        follow: bool = False,
        since_s: float | None = None,
    ) -> Iterator[bytes]:
        """What it wrote, in pieces: to `stdout`, to `stderr`, or to both in the order of time.

        `follow` goes on until it is over; without an attempt, over all that follow. `since_s` begins at a time of day.
        """
        pinned, at = attempt is not None, attempt
        while True:
            asked = {"stream": stream, "attempt": at, "offset": offset, "limit": _PIECE, "since_s": since_s}
            headers, data = self._http.get_bytes(f"/v1/jobs/{int(job_id)}/log", asked)
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
                asked["wait_s"] = min(wait_s, self._http.timeout_s / 2)
            found = self._http.json("GET", path, asked)
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
        return self._http.json("GET", "/v1/nodes")

    def drain(self, name: str) -> dict[str, Any]:
        """A node or a GPU takes no new jobs."""
        return self._http.json("POST", f"/v1/nodes/{quote(name, safe='')}/drain")

    def resume(self, name: str) -> dict[str, Any]:
        """A node or a GPU takes jobs again."""
        return self._http.json("POST", f"/v1/nodes/{quote(name, safe='')}/resume")

    def enable(self, name: str) -> dict[str, Any]:
        """Put those GPUs of a node, or that GPU, back into the pool which their guards have disabled."""
        return self._http.json("POST", f"/v1/nodes/{quote(name, safe='')}/enable")

    def node_token(self, life_s: float) -> dict[str, Any]:
        """A token that lets one machine join."""
        return self._new_token("/v1/nodes/tokens", {"life_s": life_s})

    def remove_node(self, name: str, *, force: bool = False) -> dict[str, Any]:
        """Take a node that has joined out for good."""
        return self._http.json("DELETE", f"/v1/nodes/{quote(name, safe='')}?force={str(force).lower()}")

    def summary(self) -> dict[str, Any]:
        """The cluster in a few numbers."""
        return self._http.json("GET", "/v1/summary")

    def snapshot(self) -> dict[str, Any]:
        """All that a simulation needs to run on from here."""
        return self._http.json("GET", "/v1/snapshot")

    def config(self) -> dict[str, Any]:
        """The configuration in force, with where each value comes from."""
        return self._http.json("GET", "/v1/config")

    def health(self) -> dict[str, Any]:
        """Whether it does its work, and if not why."""
        _, data = self._http.call("GET", "/health", None, {}, True, refusals=(503,))
        found: dict[str, Any] = json.loads(data)
        return found

    def metrics(self) -> str:
        """What Prometheus would scrape, as text."""
        return self._http.get_bytes("/metrics", {})[1].decode()

    # ---- tokens ----

    def tokens(self) -> list[dict[str, Any]]:
        """All, without the tokens themselves."""
        found: list[dict[str, Any]] = self._http.json("GET", "/v1/tokens")["tokens"]
        return found

    def make_token(self, user: str, role: str, note: str = "", life_s: float | None = None) -> dict[str, Any]:
        """A new one, shown this once. It stands for `life_s`; None: as configured, 0: until it is revoked."""
        return self._new_token("/v1/tokens", {"user": user, "role": role, "note": note, "life_s": life_s})

    def rotate_token(self, token_id: int | None = None, keep_s: float = 0.0) -> dict[str, Any]:
        """Another one in the place of that one, or of the one that asks; the old one stands for `keep_s` more."""
        return self._new_token("/v1/tokens/rotate", {"id": token_id, "keep_s": keep_s})

    def _new_token(self, path: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        self.close()  # over a new connection, so that it need never be sent twice
        return self._http.json("POST", path, body=wanted, again=False)

    def sign_in_code(self) -> str:
        """Begins one session of the page as this caller, within minutes."""
        self.close()
        code: str = self._http.json("POST", "/v1/sign-in-codes", again=False)["code"]
        return code

    def revoke_token(self, token_id: int) -> dict[str, Any]:
        """It lets nobody in any more."""
        return self._http.json("DELETE", f"/v1/tokens/{int(token_id)}")

    def audit(
        self,
        *,
        after: int | None = None,
        last: int = 100,
        user: str | None = None,
        what: str | None = None,
        job_id: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Who did what: the last so many, or all that follow number `after`."""
        asked: dict[str, Any] = {"user": user, "what": what, "job_id": job_id, "limit": 1000}
        at = -last if after is None else after
        while True:
            found = self._http.json("GET", "/v1/audit", {**asked, "after": at})
            yield from found["acts"]
            if after is None or not found["acts"]:
                return
            at = found["next"]

    @property
    def token(self) -> str:
        """The token that it asks with."""
        return self._http.token


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

"""HTTP by hand, so that what is seen is what is sent; and a look at every answer for what is not the asker's."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from typing import Any


class AwayError(Exception):
    """Nobody answered, or not to the end."""


class Web:
    """One controller. Each call has a connection of its own."""

    def __init__(self, port: int, token: str = "", forbidden: tuple[str, ...] = ()) -> None:
        self.port = port
        self._token = token
        self._forbidden = [text.encode() for text in forbidden]
        self.leaks: list[str] = []
        """Where a forbidden text was seen."""

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout_s: float = 30.0
    ) -> tuple[int, bytes]:
        """Status and answer."""
        sent = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            head, found = str(answer.headers).encode(), answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise AwayError(str(error)) from None
        finally:
            connection.close()
        self.leaks += [f"{method} {path}: {t.decode()}" for t in self._forbidden if t in found or t in head]
        return answer.status, found

    def json(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The answer to what must succeed; one that did not is as good as away."""
        status, found = self.ask(method, path, body, headers)
        if status >= 400:
            raise AwayError(f"{method} {path}: {status} {found[:300]!r}")
        return json.loads(found)

    def answers(self) -> bool:
        """Whether there is a controller, well or not."""
        with contextlib.suppress(AwayError):
            return self.ask("GET", "/health", timeout_s=10.0)[0] in (200, 503)
        return False

    def insist(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, hang_s: float = 600.0
    ) -> tuple[int, bytes]:
        """Until it answers with something else than that it cannot now."""
        end_s = time.monotonic() + hang_s
        while True:
            with contextlib.suppress(AwayError):
                status, found = self.ask(method, path, body, headers)
                if status < 500 and status != 429:
                    return status, found
            if time.monotonic() > end_s:
                raise AwayError(f"{method} {path}: nothing for {hang_s:g} s")
            time.sleep(0.05)

    def jobs(self) -> list[dict[str, Any]]:
        """All that the token may see."""
        found, after = [], None
        while True:
            page = self.json("GET", f"/v1/jobs?limit=500{'' if after is None else f'&after={after}'}")
            found += page["jobs"]
            after = page["next"]
            if after is None:
                return found


class Gate:
    """Open for many at a time, or closed for one who waits until they are through."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._is_closed = False

    @contextlib.contextmanager
    def through(self) -> Any:
        """Go through it; waits while it is closed."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def closed(self) -> Any:
        """Nobody is in it."""
        with self._condition:
            self._is_closed = True
            self._condition.wait_for(lambda: self._inside == 0)
        try:
            yield
        finally:
            with self._condition:
                self._is_closed = False
                self._condition.notify_all()

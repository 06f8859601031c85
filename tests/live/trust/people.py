"""Users who submit, look, cancel and hold, who remember what they were promised; and others who mean harm."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.live.trust.site import GPUS_EACH, NODES, Site, User
from tests.live.trust.web import AwayError, Gate, Web

_MOST_OPEN = 7
"""Jobs of a user that are not over, so that the cluster is busy and the end is near."""
_KINDS = ("train",) * 8 + ("plain", "plain", "fails", "forker", "noisy", "snoop")
_OVER = ("finished", "parked", "cancelled")


@dataclass
class Promise:
    """A job that was acknowledged, and what may become of it."""

    key: str
    user: User
    kind: str
    epochs: int
    code: int
    has_parts: bool
    """It may span nodes: then one part may have ended while another was lost, and all are run again."""
    job_id: int = 0
    acked_s: float = 0.0
    may_cancel: bool = False
    may_fail: bool = False
    """Somebody killed it, or it cannot run."""
    may_be_forgotten: bool = False
    """A backup from before its submission was restored."""
    may_be_redone: bool = False


@dataclass
class Book:
    """All promises, of all users."""

    promises: dict[str, Promise] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """What went wrong in the telling: `kind: words`."""
    deeds: Counter[str] = field(default_factory=Counter)
    """What users did, by kind."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, user: User) -> list[Promise]:
        """Those of one user."""
        with self.lock:
            return [one for one in self.promises.values() if one.user is user]


class Person(threading.Thread):
    """One user's client: as long as it may, it submits, looks round and meddles with its own jobs."""

    def __init__(self, site: Site, user: User, token: str, book: Book, gate: Gate, seed: int) -> None:
        super().__init__(name=user.name)
        self.site, self.user, self.book, self.gate = site, user, book, gate
        others = tuple(one.secret for one in site.users if one is not user)
        self.web = Web(site.port, token, others)
        self.rng = random.Random(seed)
        self.leaving = threading.Event()
        self._open = 0
        self._made = 0

    def run(self) -> None:
        """Until it is time to leave; what it began, it finishes."""
        try:
            while not self.leaving.is_set():
                if self._open < _MOST_OPEN:
                    self.submit(self._draw())
                with contextlib.suppress(AwayError):  # of these a lost answer leaves it open whether it was done
                    self._look()
                    self._meddle()
                self.leaving.wait(self.rng.uniform(0.05, 0.6))
        except BaseException as error:
            self.book.broken.append(f"harness: {self.user.name}: {type(error).__name__}: {error}")
            raise

    def submit(self, asked: dict[str, Any]) -> Promise:
        """Until it is acknowledged: one key, so one job."""
        kind = asked.pop("kind_of_program")
        with self.gate.through():
            self._made += 1
            key = f"{self.user.name}-{self._made:04d}-{kind}"
            epochs, code = (1, 7) if kind == "fails" else (self.rng.randint(1, 6), 0)
            epoch_s = self.rng.uniform(0.02, 0.6)
            words = [self.site.python, str(self.site.program), kind, key, str(epochs), f"{epoch_s:.3f}", str(code)]
            env = {
                "PYTHONPATH": str(self.site.program.parent), "TRUST_FOLDER": str(self.user.folder),
                "TRUST_SECRET": self.user.secret, "TRUST_HOME": str(self.site.home.path),
            }  # fmt: skip
            body = {"command": words, "name": key, "cwd": "/", "env": env, "retries": 0 if code else 12, **asked}
            status, found = self.web.insist("POST", "/v1/jobs", body, {"Idempotency-Key": key})
            has_parts = max(asked.get("gpus", 1), asked.get("max_gpus", 1)) > 1
            made = Promise(key, self.user, kind, epochs, code, has_parts)
            if status >= 400:
                self.book.broken.append(f"refused: {key}: {status} {found[:300]!r}")
                return made
            made.job_id, made.acked_s = int(json.loads(found)["id"]), time.monotonic()
            with self.book.lock:
                self.book.promises[key] = made
            self.book.deeds["submitted"] += 1
            return made

    def _draw(self) -> dict[str, Any]:
        kind = self.rng.choice(_KINDS)
        asked: dict[str, Any] = {"kind_of_program": kind, "profile": self.rng.choice(("generic", "resnet50", "bert"))}
        if kind == "train":
            most = NODES * GPUS_EACH - (2 if self.site.policy == "muxflow" else 0)  # services keep theirs
            asked["gpus"] = self.rng.choice((1, 1, 1, 2, 2, 3, most))
            if self.rng.random() < 0.3:
                asked |= {"gpus": 1, "min_gpus": 1, "max_gpus": self.rng.choice((2, 4))}
            if self.rng.random() < 0.2:
                asked["hold"] = True
        asked["estimate_s"] = 2.0
        return asked

    def _look(self) -> None:
        """Whatever one may ask for, and of jobs of others too."""
        mine = {job["id"]: job for job in self.web.jobs()}
        self._open = sum(job["state"] not in _OVER for job in mine.values())
        for job in mine.values():
            if job["state"] == "held" and self.rng.random() < 0.5:
                self.web.ask("POST", f"/v1/jobs/{job['id']}/release")
        highest = max(mine, default=1) + 3
        for path in ("/v1/snapshot", "/v1/nodes", "/v1/summary", "/v1/events?after=0&limit=1000"):
            if self.rng.random() < 0.3:
                self.web.ask("GET", path)
        for path in ("", "/log", "/log?stream=stderr", "/events", "/explain"):
            number = self.rng.randint(1, highest)
            status, found = self.web.ask("GET", f"/v1/jobs/{number}{path}")
            self.book.deeds["looked"] += 1
            if status == 200 and path in ("/log", "/log?stream=stderr"):
                self._check_log(number, found)

    def _check_log(self, number: int, found: bytes) -> None:
        """Lines of that very job, and of no other; a piece of a log may begin and end within a line."""
        key = next((one.key for one in self.book.of(self.user) if one.job_id == number), None)
        for line in found.splitlines() if key else ():
            first, _, rest = line.partition(b" ")
            if rest.startswith(self.user.secret.encode()) and first.decode(errors="replace") != key:
                self.book.broken.append(f"mixed-output: job {number} of {key} shows {line[:80]!r}")

    def _meddle(self) -> None:
        chance, mine = self.rng.random(), self.book.of(self.user)
        if not mine or chance > 0.25:
            return
        one = self.rng.choice(mine[-20:])
        if chance < 0.08:
            one.may_cancel = True  # before: if the answer is lost, it may be cancelled or not
            self.web.ask("POST", f"/v1/jobs/{one.job_id}/cancel")
        else:
            one.may_be_redone = True
            self.web.ask("POST", f"/v1/jobs/{one.job_id}/hold")
        self.book.deeds["meddled"] += 1


class Villain(threading.Thread):
    """Means harm: with a token of its own, with none, and with connections that say nothing."""

    def __init__(self, site: Site, token: str, book: Book, seed: int) -> None:
        super().__init__(name="villain")
        self.site, self.book, self.rng = site, book, random.Random(seed)
        self.web = Web(site.port, token, tuple(one.secret for one in site.users[:-1]))
        """The last of the users has gone to the bad; nothing of the others may be seen."""
        self.nobody = Web(site.port, "fl_" + "x" * 40, tuple(one.secret for one in site.users))
        self.leaving = threading.Event()

    def run(self) -> None:
        """Harm after harm."""
        acts = [self._oversize, self._half_open, self._forge, self._meddle, self._garble, self._escape]
        while not self.leaving.is_set():
            act = self.rng.choice(acts)
            with contextlib.suppress(AwayError, OSError):
                act()
            self.book.deeds[f"hostile {act.__name__.strip('_')}"] += 1
            self.leaving.wait(self.rng.uniform(0.05, 0.5))

    def _oversize(self) -> None:
        words = ["x" * self.rng.choice((200_000, 3_000_000))]
        status, _ = self.web.ask("POST", "/v1/jobs", {"command": words})
        self._must(status >= 400, f"a command of {len(words[0])} bytes was taken: {status}")

    def _half_open(self) -> None:
        """Connections that begin a request and do not go on."""
        with contextlib.ExitStack() as held:
            for _ in range(self.rng.randint(5, 60)):
                one = held.enter_context(socket.create_connection(("127.0.0.1", self.site.port), 1.0))
                one.sendall(self.rng.choice((b"", b"G", b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 999\r\n\r\n{")))
            self.leaving.wait(self.rng.uniform(0.0, 1.0))

    def _forge(self) -> None:
        for path, body in (("/v1/tokens", {"user": "root", "role": "admin"}), ("/v1/nodes/node-0/drain", None)):
            for web in (self.web, self.nobody):
                status, _ = web.ask("POST", path, body)
                self._must(status in (401, 403, 404, 422, 429, 503), f"POST {path} by a user: {status}")

    def _meddle(self) -> None:
        """With jobs of others."""
        others = [one for user in self.site.users[:-1] for one in self.book.of(user)]
        if not others:
            return
        one, what = self.rng.choice(others), self.rng.choice(("cancel", "hold", "release"))
        for web in (self.web, self.nobody):
            status, _ = web.ask("POST", f"/v1/jobs/{one.job_id}/{what}")
            self._must(status >= 400, f"{what} of {one.key}, job {one.job_id}, by somebody else: {status}")

    def _garble(self) -> None:
        for path in ("/v1/jobs/99999999999999999999999", "/v1/jobs?after=%00", "/v1/jobs?limit=1e99", "/%2e%2e/token"):
            status, _ = self.web.ask("GET", path)
            self._must(status != 500, f"GET {path}: {status}")
        status, _ = self.web.ask("POST", "/v1/jobs", b'{"command": ["a"], "gpus": 1' + b"[" * 5000)
        self._must(status != 500, f"a body that is no JSON: {status}")

    def _escape(self) -> None:
        for name in ("\x1b[2Jgone", "a\u202eb", "\ud800"):
            status, found = self.web.ask("POST", "/v1/jobs", {"command": ["true"], "name": name, "hold": True})
            if status < 400:  # then it is a job like any other, and cannot be told from the user's own
                with contextlib.suppress(AwayError):
                    self.web.insist("POST", f"/v1/jobs/{int(json.loads(found)['id'])}/cancel", hang_s=60.0)

    def _must(self, holds: bool, words: str) -> None:
        if not holds:
            self.book.broken.append(f"hostile: {words}")

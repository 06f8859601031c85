"""One story: a cluster under one policy, faults until so many SIGKILLs are done, calm, and the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.live.trust.faults import Faults
from tests.live.trust.people import Book, Person, Promise, Villain
from tests.live.trust.site import GPUS_EACH, HANG_S, NODES, Site, is_locked, journal
from tests.live.trust.web import AwayError, Gate, Web

_OVER = ("finished", "parked", "cancelled")
KINDS = ("lost", "doubled", "wrongly-finished", "wrongly-ended", "stuck", "leak")


@dataclass
class Verdict:
    """What a story came to."""

    policy: str
    seed: int
    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    starts: int = 0
    redone: int = 0
    forgotten: int = 0
    wall_s: float = 0.0
    skipped: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    """In logs: nothing is broken by them, but somebody should look."""


def tell(
    policy: str,
    seed: int,
    kills: int,
    *,
    first: Sequence[str] = (),
    say: Callable[[str], None] = lambda words: None,
    keep: Path | None = None,
) -> Verdict:
    """The whole of it. Faults that are named come `first`; `keep` gets the logs of one that went wrong."""
    story = Story(policy, seed)
    try:
        story.rage(kills, first, say)
        story.calm(say)
        story.judge()
    except Exception as error:
        story.verdict.violations.append(f"stuck: {type(error).__name__}: {error}")
    finally:
        story.sum_up()
        if keep is not None and (story.verdict.violations or story.verdict.tracebacks):
            story.keep(keep)
        story.close()
    return story.verdict


class Story:
    """All parts of one."""

    def __init__(self, policy: str, seed: int) -> None:
        self._began_s = time.monotonic()
        self.verdict = Verdict(policy, seed)
        self.site = Site(policy, seed)
        self.book, self.gate, self._rng = Book(), Gate(), random.Random(seed)
        try:
            self.site.be_up()
            self.admin = Web(self.site.port, self.site.home.token.read_text().strip())
            tokens = [self._token(user.name) for user in self.site.users]
        except BaseException:
            self.site.close()
            raise
        self.people = [
            Person(self.site, user, token, self.book, self.gate, seed * 100 + n)
            for n, (user, token) in enumerate(zip(self.site.users, tokens, strict=True))
        ]
        self.villain = Villain(self.site, tokens[-1], self.book, seed * 100 + 50)
        self.faults = Faults(self.site, self.book, self.gate, self.people, seed * 100 + 60)

    def _token(self, user: str) -> str:
        found = json.loads(self.admin.insist("POST", "/v1/tokens", {"user": user, "role": "user"})[1])
        return str(found["token"])

    def rage(self, kills: int, first: Sequence[str], say: Callable[[str], None]) -> None:
        """Faults, while users go about their business."""
        coming = list(first)
        if self.verdict.policy == "muxflow":
            for person in self.people[:2]:
                person.submit({"kind_of_program": "serve", "kind": "service", "slo_s": 0.5})
        for thread in (*self.people, self.villain):
            thread.start()
        said = 0
        try:
            while coming or self.faults.kills < kills:
                self.faults.strike(coming.pop() if coming else None)
                if self.faults.kills - said >= 25:
                    said = self.faults.kills
                    took_s = time.monotonic() - self._began_s
                    say(f"{self.verdict.policy}: {said} SIGKILLs, {len(self.book.promises)} jobs, {took_s:.0f} s")
        finally:
            self._end_of_threads()

    def _end_of_threads(self) -> None:
        for pid in self.site.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.site.unhang()
        self.site.be_up()
        for thread in (*self.people, self.villain):
            thread.leaving.set()
        for thread in (*self.people, self.villain):
            if thread.ident is not None:
                thread.join(HANG_S)
                if thread.is_alive():
                    self.verdict.violations.append(f"stuck: {thread.name} has no answer")

    # ---- calm ----

    def calm(self, say: Callable[[str], None]) -> None:
        """Nothing happens any more: everything comes to its end by itself, and then the whole cluster is free."""
        self._rest()
        for one in self._services():
            self.admin.insist("POST", f"/v1/jobs/{one.job_id}/cancel")
            one.may_cancel = True
        self._rest()
        last = self.people[0].submit({"kind_of_program": "plain", "gpus": NODES * GPUS_EACH})
        self._rest()
        self._last = last
        say(f"{self.verdict.policy}: calm after {time.monotonic() - self._began_s:.0f} s")

    def _rest(self) -> None:
        """Wait until all are over, but for services, which run; time-outs bound only what does not move at all."""
        seen: object = None
        moved_s = time.monotonic()
        while True:
            with contextlib.suppress(AwayError):
                jobs = self.admin.jobs()
                for job in jobs:
                    if job["state"] == "held":
                        self.admin.ask("POST", f"/v1/jobs/{job['id']}/release")
                left = [job for job in jobs if not self._is_at_rest(job)]
                if not left:
                    return
                now = [(job["id"], job["state"], job["phase"], job["attempt"], job["epochs_done"]) for job in left]
                if now != seen or any(job["state"] == "backing-off" for job in left):
                    seen, moved_s = now, time.monotonic()
                if time.monotonic() - moved_s > HANG_S / 2:
                    what = [(j["id"], j["name"], j["state"], j["phase"], j["reason"]) for j in left[:5]]
                    raise TimeoutError(f"{len(left)} jobs do not move: {what}; {self.site.web.ask('GET', '/health')}")
            time.sleep(0.3)

    def _is_at_rest(self, job: dict[str, Any]) -> bool:
        if job["kind"] == "service" and job["state"] == "running":
            return not job["phase"] or job["phase"] == "running"
        return job["state"] in _OVER and not job["phase"]

    def _services(self) -> list[Promise]:
        return [one for one in self.book.promises.values() if one.kind == "serve" and not one.may_be_forgotten]

    # ---- the verdict ----

    def judge(self) -> None:
        """What was promised, what Fairlead says, and what the jobs themselves have written."""
        jobs: dict[str, list[dict[str, Any]]] = {}
        for job in self.admin.jobs():
            jobs.setdefault(job["name"], []).append(job)
        for one in self.book.promises.values():
            self._judge_one(one, jobs.get(one.key, []))
        if jobs[self._last.key][0]["state"] != "finished":
            self._say("stuck", f"{self._last.key}, on all GPUs: {jobs[self._last.key][0]['state']}")
        for person in self.people:
            for leak in person.web.leaks:
                self._say("leak", f"{person.user.name} saw it: {leak}")
        for leak in (*self.villain.web.leaks, *self.villain.nobody.leaks):
            self._say("leak", f"the villain saw it: {leak}")

    def _judge_one(self, one: Promise, found: list[dict[str, Any]]) -> None:
        told = journal(one.user.folder / f"{one.key}.journal")
        words = [line["what"] for line in told]
        self.verdict.jobs += 1
        self.verdict.starts += words.count("start")
        for path in one.user.folder.glob(f"{one.key}.*.lock"):
            if is_locked(path):
                self._say("doubled", f"{one.key}: processes of it are left: {path.name}")
        if "doubled" in words:
            self._say("doubled", f"{one.key}: two at once: {told}")
        for line in told:
            if line["what"] == "leak" and self.site.has_accounts:
                self._say("leak", f"{one.key} could read {line['path']}: {line['found']}")
        if _is_redone(told):
            self.verdict.redone += 1
            if not (one.may_be_redone or one.has_parts) and one.kind == "train":
                self._say("doubled", f"{one.key} was run again after its end: {words}")
        if len(found) > 1:
            self._say("doubled", f"{one.key} is there {len(found)} times: {[job['id'] for job in found]}")
        if not found:
            self.verdict.forgotten += one.may_be_forgotten
            if not one.may_be_forgotten:
                self._say("lost", f"{one.key}, job {one.job_id}")
            return
        self._judge_state(one, found[0], words)

    def _judge_state(self, one: Promise, job: dict[str, Any], words: list[object]) -> None:
        state = job["state"]
        self.verdict.states[state] += 1
        about = f"{one.key}, job {job['id']}: {state}, {job['reason']}, exit code {job['exit_code']}; it wrote {words}"
        if state == "finished" and ("end" not in words or one.code):
            self._say("wrongly-finished", about)
        elif (state == "cancelled" and not one.may_cancel) or (state == "parked" and not (one.may_fail or one.code)):
            self._say("wrongly-ended", about)

    def _say(self, kind: str, words: str) -> None:
        self.verdict.violations.append(f"{kind}: {words}")

    # ---- afterwards ----

    def keep(self, folder: Path) -> None:
        """What helps to find out."""
        to = folder / f"{self.verdict.policy}-{self.verdict.seed}"
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.site.home.path, to / "home", ignore=_no_sockets, dirs_exist_ok=True)
        shutil.copytree(self.site.folder / "truth", to / "truth", dirs_exist_ok=True)

    def sum_up(self) -> None:
        """The figures."""
        done = self.verdict
        done.violations += self.book.broken
        done.kills, done.faults, done.deeds = self.faults.kills, self.faults.told, self.book.deeds
        done.skipped = self.site.skipped
        done.wall_s = time.monotonic() - self._began_s
        for log in (self.site.home.log, *self.site.home.nodes.glob("node-*/*.log")):
            with contextlib.suppress(OSError):
                done.tracebacks += _tracebacks(log)

    def close(self) -> None:
        """Nothing is left behind."""
        self.site.close()


def _is_redone(told: list[dict[str, Any]]) -> bool:
    """Whether it was started again though it had come to its end, and had not been asked to stop."""
    ends = [line["attempt"] for line in told if line["what"] == "end" and not line.get("stopping")]
    return any(line["what"] == "start" and line["attempt"] > min(ends) for line in told) if ends else False


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(folder) / name).is_file() and not (Path(folder) / name).is_dir()]


def _tracebacks(log: Path) -> list[str]:
    """The last line of each, once."""
    found, lines = set(), log.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Traceback"):
            rest = (one for one in lines[number + 1 :] if one and not one.startswith(" "))
            found.add(f"{log.name}: {next(rest, '?')}"[:300])
    return sorted(found)

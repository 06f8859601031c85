"""What is done to the cluster, one thing at a time, at random."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.live.trust.people import Book, Person, Promise
from tests.live.trust.site import Site, is_locked, journal
from tests.live.trust.web import AwayError, Gate

WEIGHTS = {
    "kill_controller": 40, "kill_agent": 24, "kill_all": 6, "stop_agent": 4, "stop_and_kill_agent": 2,
    "stop_controller": 3, "down_and_up": 2, "down_kill_jobs": 2, "signal_job": 8, "back_up": 3, "restore": 2,
    "full_disk": 4, "hung_mount": 3, "clock_step": 4,
}  # fmt: skip
_DAY_S = 86400.0
_SHIFTS_S = (-3600.0, -40 * _DAY_S, 0.0, 30.0, 3600.0, 40 * _DAY_S)
_BACKUPS_KEPT = 3


@dataclass(frozen=True, slots=True)
class Backup:
    """A file, and when it was made."""

    path: Path
    began_s: float


class Faults:
    """`kills` counts SIGKILLs of controllers and agents, `told` everything by its kind."""

    def __init__(self, site: Site, book: Book, gate: Gate, people: list[Person], seed: int) -> None:
        self.site, self.book, self.gate, self.people = site, book, gate, people
        self.rng = random.Random(seed)
        self.kills = 0
        self.told: Counter[str] = Counter()
        self._backups: list[Backup] = []

    def strike(self, wanted: str | None = None) -> None:
        """The one that is wanted, else any, as seldom or often as they are."""
        names = [name for name in WEIGHTS if name not in self.site.skipped]
        name = wanted or self.rng.choices(names, [WEIGHTS[one] for one in names])[0]
        if name in names:
            act: Callable[[], None] = getattr(self, name)
            act()
            self.told[name] += 1

    # ---- SIGKILL ----

    def kill_controller(self) -> None:
        """When it answers, or while it finds its feet."""
        if self.rng.random() < 0.5:
            self.site.be_up()
        self._moment(0.4)
        self.kills += self.site.kill_controller()
        self.site.fork()

    def kill_agent(self) -> None:
        """One of them; sometimes at a time when its controller is away as well."""
        self._moment(0.3)
        if agents := self.site.agents():
            self._kill(self.rng.choice(agents))

    def kill_all(self) -> None:
        """As when the machine runs out of memory."""
        self._moment(0.3)
        self.kills += self.site.kill_controller()
        for pid in self.site.agents():
            self._kill(pid)
        self.site.fork()

    # ---- stops ----

    def stop_agent(self) -> None:
        """It answers nobody for a while."""
        self._freeze(self.rng.choice(self.site.agents() or [0]), 4.0)

    def stop_and_kill_agent(self) -> None:
        """It never answers again."""
        pid = self.rng.choice(self.site.agents() or [0])
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGSTOP)
                self._moment(3.0)
        if pid:
            self._kill(pid)

    def stop_controller(self) -> None:
        """Clients wait."""
        self._freeze(self.site.controller() or 0, 2.0)

    def down_and_up(self) -> None:
        """As operators do it."""
        self.site.be_up()
        self._command("down")
        self._up()

    def down_kill_jobs(self) -> None:
        """All jobs are told to leave, and are gone when it says so."""
        self.site.be_up()
        self._moment(0.5)
        self._may_redo()
        done = self.site.fairlead("down", "--kill-jobs", "--grace", self.rng.choice(("0s", "1s", "10s")))
        if done.returncode == 0:
            for one in self._running():
                self.book.broken.append(f"left: down --kill-jobs said 0, and {one.key} runs")
        self._up()

    # ---- jobs ----

    def signal_job(self) -> None:
        """Somebody else's signal to the main process of a job, or a kernel's that is out of memory."""
        running = self._running()
        if not running:
            return
        one = self.rng.choice(running)
        number = self.rng.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGKILL))
        if number == signal.SIGKILL and one.may_fail:
            return  # once is enough: with each the next try comes later
        pids = [line["pid"] for line in journal(one.user.folder / f"{one.key}.journal") if line["what"] == "start"]
        pid = int(str(pids[-1])) if pids else 0
        with contextlib.suppress(OSError):
            if pid and one.key.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                one.may_fail |= number == signal.SIGKILL
                one.may_be_redone = True
                os.kill(pid, number)
                self.told[f"signal_job {signal.Signals(number).name}"] += 1

    # ---- backups ----

    def back_up(self) -> None:
        """While the controller runs, or not."""
        path = self.site.folder / f"backup-{len(self._backups)}-{time.monotonic_ns()}.db"
        began_s = time.monotonic()
        done = self.site.fairlead("backup", str(path))
        if done.returncode == 0:
            self._backups = [*self._backups, Backup(path, began_s)][-_BACKUPS_KEPT:]
        else:
            self.book.broken.append(f"backup: {done.stderr[-300:]}")

    def restore(self) -> None:
        """One of the last backups. Whoever submitted since may be forgotten, and is asked for nothing meanwhile."""
        if not self._backups:
            self.back_up()
        if not self._backups:
            return
        chosen = self.rng.choice(self._backups)
        self.site.be_up()
        with self.gate.closed():
            if self.rng.random() < 0.5:
                self._command("down")
            else:
                self.kills += self.site.kill_controller()
            with self.book.lock:
                for one in self.book.promises.values():
                    one.may_be_forgotten |= one.acked_s >= chosen.began_s
            self._may_redo()
            self._command("restore", str(chosen.path))
            self.site.fork()
            self.site.be_up()

    # ---- surroundings ----

    def full_disk(self) -> None:
        """Not a byte can be written to the home folder; sometimes its controller or an agent is killed meanwhile."""
        with self.site.full_disk():
            self._moment(1.5)
            chance = self.rng.random()
            if chance < 0.3:
                self.kills += self.site.kill_controller()
                self.site.fork()
            elif chance < 0.5 and (agents := self.site.agents()):
                self._kill(self.rng.choice(agents))
            self._moment(1.0)
        self._may_redo()  # what jobs report is lost, their end too

    def hung_mount(self) -> None:
        """A job whose folder does not answer; it is cancelled meanwhile, or fails."""
        folder = self.site.hang()
        if folder is None:
            return
        person = self.rng.choice(self.people)
        self.site.be_up()
        with contextlib.suppress(AwayError):
            one = person.submit({"kind_of_program": "plain", "cwd": str(folder), "retries": 0})
            one.may_fail = one.may_cancel = True
            self._moment(3.0)
            if self.rng.random() < 0.5:
                person.web.insist("POST", f"/v1/jobs/{one.job_id}/cancel", hang_s=30.0)
        self.site.unhang()

    def clock_step(self) -> None:
        """Somebody sets the time of day, and maybe back."""
        self.site.set_clock(self.rng.choice(_SHIFTS_S))
        if self.rng.random() < 0.5:
            self._moment(1.0)
            self.site.set_clock(0.0)

    # ---- how ----

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def _freeze(self, pid: int, most_s: float) -> None:
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._moment(most_s)
                os.kill(pid, signal.SIGCONT)

    def _may_redo(self) -> None:
        """Whoever has come to its end may not have been able to say so."""
        with self.book.lock:
            for one in self.book.promises.values():
                one.may_be_redone = True

    def _running(self) -> list[Promise]:
        with self.book.lock:
            promises = list(self.book.promises.values())
        return [one for one in promises if is_locked(one.user.folder / f"{one.key}.0.lock")]

    def _up(self) -> None:
        if self.rng.random() < 0.3:
            self._command("up", "--detach")
        else:
            self.site.fork()

    def _command(self, *words: str) -> None:
        done = self.site.fairlead(*words)
        if done.returncode != 0:
            self.book.broken.append(f"command: fairlead {' '.join(words)}: {done.returncode}: {done.stderr[-500:]}")

    def _moment(self, most_s: float) -> None:
        time.sleep(self.rng.uniform(0.0, most_s))

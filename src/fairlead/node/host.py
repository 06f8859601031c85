"""This machine as a controller sees it: attempts ordered and told of, readings, events, sleep.

The agent knows jobs and GPUs; here they become the controller's attempts, which are remembered until it forgets them.
Calls may come from any thread and may be repeated.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import threading
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from fairlead.errors import InputError, RunError
from fairlead.node.agent import Agent, AgentConfig
from fairlead.node.asleep import Sleep
from fairlead.node.attempts import Attempt, AttemptBook, Farewell
from fairlead.node.energy import Energy
from fairlead.node.journal import Event
from fairlead.node.meter import Meter, info_as_json
from fairlead.node.order import Order, name_of
from fairlead.node.processes import process
from fairlead.node.readings import reading
from fairlead.node.records import read_json, write_json

Stream = Literal["stdout", "stderr"]
_MOST_EVENTS = 1000
_MOST_BYTES = 1 << 20
_LOOK_S = 0.9
_SAVE_S = 30.0


class Host:
    """The agent and the book of its attempts. `settings` is what it was started with, told to whoever asks."""

    def __init__(
        self,
        folder: Path,
        meter: Meter,
        *,
        library: Path | None = None,
        config: AgentConfig | None = None,
        wake_s: float = 0.0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.address: str | None = None
        """Where it is reached over TCP, if it is."""
        self._folder, self._meter, self._settings = folder, meter, settings or {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._numbers = itertools.count(_first_number(folder / "events.json"))
        self._instance, self._changes = secrets.token_hex(4), 0
        self._attempts: dict[str, Attempt] = {}
        self._looked_s = self._saved_s = time.monotonic()
        self._sleep = Sleep(folder / "sleep.json", meter, wake_s)
        self._was_awake = self._sleep.is_awake
        self._book = AttemptBook(folder)
        self._agent = Agent(folder, meter, library=library, config=config, on_event=self._happened)
        self._changed = self._agent.lock  # one for both, so that what is done and what is told of it never mix
        with self._changed:
            self._take_over()

    # ---- what a controller asks ----

    def start(self, order: Order) -> None:
        """Run it, unless this attempt was ever started here; refused while asleep."""
        with self._changed:
            was_started, attempt = self._agent.was_started(order.name), self._attempts.get(order.name)
            if (was_started and attempt is None) or self._book.is_barred(order.name):
                return  # it was forgotten, or was to leave before it came
            if not was_started and not self._sleep.is_awake:
                raise RunError(f"job {order.job_id}: this node sleeps", hint="wake it first")
            is_beside = any(self._agent.seat(uuid).keeper.has_service for uuid in order.gpus)
            spec = order.spec(self._book.reports, beside_service=is_beside)
            if attempt is None:
                attempt = self._attempts[order.name] = self._book.create(order)
            try:
                self._agent.start_once(spec)
            except InputError:
                self._forget(order.name)  # it can never be started
                raise
            self._refresh(attempt)
            self._tell_changed()

    def stop(self, job_id: int, attempt: int, grace_s: float) -> None:
        """Ask it to leave; nothing where it is over. One that is unknown will never start, however late its order."""
        if not 0.0 <= grace_s < float("inf"):
            raise InputError(f"a grace of {grace_s} s; expected 0 or more")
        with self._changed:
            name = name_of(job_id, attempt)
            found = self._attempts.get(name)
            if not self._agent.was_started(name):
                self._book.bar(name)
                self._forget(name)
                return
            if found is None or not self._agent.holds(name):
                return
            if found.farewell is None:
                found.farewell = Farewell(time.time(), grace_s)
                self._book.save(found)
            self._agent.stop(found.name, grace_s)
            self._refresh(found)
            self._tell_changed()

    def forget(self, job_id: int, attempt: int) -> None:
        """It is over and written down elsewhere. Its logs stay."""
        with self._changed:
            name = name_of(job_id, attempt)
            found = self._attempts.get(name)
            if found is not None and found.was_started and not found.is_over:
                raise RunError(f"job {job_id}, attempt {attempt} is not over; only what is over can be forgotten")
            self._forget(name)
            self._tell_changed()

    def remove(self, job_id: int) -> None:
        """Delete all that is left of a job: its logs."""
        with self._changed:
            launcher = self._agent.launcher
            for name, number in launcher.names():
                if name.partition(".")[0] == str(job_id):
                    launcher.remove(name, number)
                    self._forget(name)
            self._book.unbar(job_id)

    def read_log(self, job_id: int, attempt: int, stream: Stream, offset: int, limit: int) -> bytes | None:
        """A piece of what it wrote, of all its restarts; a negative offset is from the end. None: never started."""
        name, launcher = name_of(job_id, attempt), self._agent.launcher
        left, out = min(max(limit, 0), _MOST_BYTES), b""
        launches = launcher.attempts(name)
        if not launches:
            return None
        if offset < 0:  # so many bytes before the end
            sizes = (launcher.log(name, number, stream).stat().st_size for number in launches)
            with contextlib.suppress(OSError):
                offset += sum(sizes)
            offset = max(offset, 0)
        for number in launches:
            with contextlib.suppress(OSError), launcher.log(name, number, stream).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(min(offset, size))
                piece = file.read(left)
                offset, left, out = max(offset - size, 0), left - len(piece), out + piece
        return out

    def sleep(self) -> None:
        """Take no jobs until woken."""
        with self._changed:
            if not self._agent.is_idle:
                raise RunError("this node has jobs and cannot sleep")
            self._sleep.sleep()
            self._tell_changed()

    def wake(self) -> None:
        """Be ready for jobs, as soon as that can be."""
        with self._changed:
            self._sleep.wake()
            self._tell_changed()

    def status(self, after: str = "", wait_s: float = 0.0, events_after: int = 0) -> dict[str, Any]:
        """The whole truth, when something has changed since `after`, a `revision` told before, or so long later."""
        until_s = time.monotonic() + wait_s
        with self._changed:
            while (left_s := until_s - time.monotonic()) > 0.0:
                self._notice_waking()
                if after != self._revision:
                    break
                waking_s = self._sleep.left_s
                self._changed.wait(left_s if waking_s is None else min(left_s, waking_s + 0.01))
            self._notice_waking()
            return self._status(events_after)

    # ---- its life ----

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop; `wake_up` makes it notice at once. Jobs go on."""
        self._agent.run(stopping, self._after_period)

    def wake_up(self) -> None:
        """End the wait between two periods."""
        self._agent.wake()

    def close(self) -> None:
        """Let go of everything but the jobs."""
        with self._changed:
            self._save_energy()
        self._agent.close()

    # ---- inside ----

    @property
    def _revision(self) -> str:
        return f"{self._instance}-{self._changes}"

    def _take_over(self) -> None:
        """What the agent before us had: the jobs it was telling to go are told again."""
        self._attempts |= self._book.load()
        spent = read_json(str(self._folder / "energy.json")) or {}
        for name, attempt in self._attempts.items():
            self._refresh(attempt)
            if name in spent:
                attempt.spent = Energy(**spent[name])
            if attempt.farewell is not None and self._agent.holds(name):
                if attempt.farewell.evicted:
                    self._agent.evict(name, attempt.farewell.evicted)
                else:
                    self._agent.stop(name, attempt.farewell.grace_s)

    def _happened(self, event: Event) -> None:
        """The agent has done or seen something; it holds the lock."""
        number = next(self._numbers)
        if number % _MOST_EVENTS == 0:
            _reserve(self._folder / "events.json", number)
        name, _, _ = event.job_id.partition(".")
        self._events.append({
            "number": number, "at_s": time.time(), "what": event.what, "gpu": event.gpu or None,
            "job_id": int(name) if name.isdigit() else None, "about": event.about,
        })  # fmt: skip
        found = self._attempts.get(event.job_id)
        if found is not None and event.what == "evicting" and found.farewell is None:
            found.farewell = Farewell(time.time(), evicted=event.about)
            self._book.save(found)
        if found is not None and event.what == "ended":
            for key in [key for key in self._agent.energy if key[0] == event.job_id]:
                found.spent += self._agent.energy.pop(key)
            self._save_energy()
        self._changes += 1  # whoever waits is notified by the agent

    def _tell_changed(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def _after_period(self) -> None:
        now_s = time.monotonic()
        with self._changed:
            self._notice_waking()
            if now_s - self._looked_s >= _LOOK_S:
                self._looked_s = now_s
                news = [one.name for one in self._attempts.values() if not one.is_over and one.report.look()]
                if news:
                    self._tell_changed()
            if now_s - self._saved_s >= _SAVE_S:
                self._saved_s = now_s
                self._save_energy()

    def _notice_waking(self) -> None:
        if self._was_awake != self._sleep.is_awake:
            self._was_awake = not self._was_awake
            self._tell_changed()

    def _forget(self, name: str) -> None:
        self._attempts.pop(name, None)
        self._book.forget(name)

    def _refresh(self, attempt: Attempt) -> None:
        attempt.look(self._agent.launcher, self._agent.holds(attempt.name))

    def _save_energy(self) -> None:
        """What was used while no agent runs is nobody's; what was used before is not lost."""
        known = {one.name: asdict(self._energy(one)) for one in self._attempts.values() if one.was_started}
        if known:
            write_json(str(self._folder / "energy.json"), known)

    def _energy(self, attempt: Attempt) -> Energy:
        return attempt.spent + self._agent.energy_so_far(attempt.name)

    def _status(self, events_after: int) -> dict[str, Any]:
        for attempt in self._attempts.values():
            if not attempt.is_over and not self._agent.holds(attempt.name):
                self._refresh(attempt)
        told = [one for one in self._attempts.values() if one.was_started]
        me = process(os.getpid())
        return {
            "revision": self._revision,
            "hostname": socket.gethostname(),
            "address": self.address,
            "pid": os.getpid(),
            "start_ticks": -1 if me is None else me.start_ticks,
            "settings": self._settings,
            "is_fake": self._meter.is_fake,
            "is_awake": self._sleep.is_awake,
            "gpus": [info_as_json(seat.keeper.info) for seat in self._agent.seats],
            "attempts": [one.status(self._agent.energy_so_far(one.name)) for one in told],
            "readings": [reading(seat) for seat in self._agent.seats],
            "events": [event for event in self._events if event["number"] > events_after],
        }


def _first_number(path: Path) -> int:
    """Where this life's events begin. Numbers are set aside a thousand at a time, so that they rise over restarts."""
    first = int((read_json(str(path)) or {}).get("next", 0)) + 1
    first += -first % _MOST_EVENTS
    _reserve(path, first)
    return first + 1


def _reserve(path: Path, number: int) -> None:
    write_json(str(path), {"next": number + _MOST_EVENTS})

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
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from fairlead.errors import InputError, RunError
from fairlead.node.agent import Agent
from fairlead.node.agent_config import AgentConfig
from fairlead.node.attempts import Attempt, AttemptBook, Bar
from fairlead.node.event_log import Event
from fairlead.node.gpu.energy import Energy
from fairlead.node.gpu.meter import Meter, info_as_json
from fairlead.node.gpu.readings import reading
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.json_files import read_json, write_json
from fairlead.node.order import Order
from fairlead.node.process.merged_log import offset_since, read_launches
from fairlead.node.process.ports import free_port
from fairlead.node.process.processes import boot_s, process
from fairlead.node.running_jobs import RunningJob
from fairlead.node.sleep_state import Sleep
from fairlead.node.stopping import StopRequest

Stream = Literal["all", "stdout", "stderr"]
"""All: both, in the order in which they were written."""
_MOST_EVENTS = 1000
_MOST_BYTES = 1 << 20
_LOOK_S = 0.9
_SAVE_S = 30.0


class Host:
    """The agent and the book of its attempts."""

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
        """`settings` is what it was started with, told to whoever asks."""
        self.address: str | None = None
        """Where it is reached over TCP, if it is."""
        self._folder, self._meter, self._settings = folder, meter, settings or {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        self._events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self._event_log, first = _open_event_log(folder / "events.json")
        self._numbers = itertools.count(first)
        self._instance, self._changes = secrets.token_hex(4), 0
        self._attempts: dict[AttemptId, Attempt] = {}
        self._looked_s = self._saved_s = time.monotonic()
        self._sleep = Sleep(folder / "sleep.json", meter, wake_s)
        self._was_awake = self._sleep.is_awake
        self._book = AttemptBook(folder)
        self._bars = self._book.bars()
        self._agent = Agent(folder, meter, library=library, config=config, on_event=self._happened)
        self._changed = self._agent.lock  # one for both, so that what is done and what is told of it never mix
        with self._changed:
            self._take_over()

    # ---- what a controller asks ----

    def start(self, order: Order) -> dict[str, Any]:
        """Run it, unless this attempt was ever started here; refused while asleep.

        Gives the port at which its parts meet. One that was forgotten is told of again: a database that was restored
        from a backup does not know how it ended. What takes long is done without the lock, so that others can be
        stopped, and this one too.
        """
        with self._changed:
            was_started, attempt = self._agent.was_started(order.id), self._attempts.get(order.id)
            if self._book.is_barred(order.id):
                self._bar(Bar(order.id, order.nodes))  # told again, too
                return {"master_port": order.master_port}
            if not was_started and not self._sleep.is_awake:
                raise RunError(f"{order.id.in_words}: this node sleeps", hint="wake it first")
            was_forgotten = was_started and attempt is None
            if attempt is None:
                attempt = self._remember(order, was_started)
            # In the same breath, so that whoever stops it now finds that it is about to start.
            running_job = None if was_forgotten else self._expect(attempt.order)
        if running_job is not None:
            self._launch(running_job)
        with self._changed:
            self._refresh(attempt)
            self._tell_changed()
            return {"master_port": attempt.order.master_port}

    def stop(self, attempt: AttemptId, grace_s: float | None = None, nodes: Sequence[int] = ()) -> None:
        """Have it end, with its own grace unless another is given; nothing where it is over.

        One that is unknown, or forgotten, will never start, however late its order; that is told until it is forgotten,
        with the nodes that the attempt is said to have.
        """
        if grace_s is not None and not 0.0 <= grace_s < float("inf"):
            raise InputError(f"a grace of {grace_s} s; expected 0 or more")
        with self._changed:
            found, is_held = self._attempts.get(attempt), self._agent.holds(attempt)
            if not is_held and (found is None or not self._agent.was_started(attempt)):
                self._bar(Bar(attempt, tuple(nodes)))
            if not is_held:
                return
            if found is not None and found.stop_request is None:
                found.stop_request = StopRequest(time.time(), grace_s, boot_s=boot_s())
                self._save(found)
            self._agent.stop(attempt, grace_s)
            if found is not None:
                self._refresh(found)
            self._tell_changed()

    def stop_all(self, grace_s: float) -> bool:
        """Have everything end; whether nothing runs any more. It may be repeated with a shorter grace."""
        with self._changed:
            alive = [one.id for one in self._attempts.values() if not one.is_over or self._agent.holds(one.id)]
        for one in alive:
            self.stop(one, grace_s)
        with self._changed:
            for attempt in self._attempts.values():
                if not attempt.is_over:
                    self._refresh(attempt)
            return all(one.is_over and not self._agent.holds(one.id) for one in self._attempts.values())

    @property
    def identity(self) -> str:
        """Of its folder: another one where what it knew of attempts is lost."""
        return self._event_log

    def forget(self, attempt: AttemptId) -> None:
        """It is over and written down elsewhere. Its logs stay."""
        with self._changed:
            found = self._attempts.get(attempt)
            if self._agent.holds(attempt) or (found is not None and found.was_started and not found.is_over):
                raise RunError(f"{attempt.in_words} is not over; only what is over can be forgotten")
            self._attempts.pop(attempt, None)
            self._book.forget(attempt)
            self._book.forget_bar(attempt)
            self._bars.pop(attempt, None)
            self._tell_changed()

    def remove(self, job_id: int) -> None:
        """Delete all that is left of a job: its logs."""
        launcher = self._agent.launcher
        # The last first: the launches of an attempt are counted up to the first that is not there.
        for launch in reversed([one for one in launcher.launches() if one.attempt.job_id == job_id]):
            launcher.remove(launch)
            with self._changed:
                self._remove(launch.attempt)
        with self._changed:
            self._book.unbar(job_id)
            self._bars = {attempt: bar for attempt, bar in self._bars.items() if attempt.job_id != job_id}

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of here; 0 where there is nothing."""
        launched = max((launch.attempt.job_id for launch in self._agent.launcher.launches()), default=0)
        return max(self._book.highest_job_id(), launched)

    def read_log(self, attempt: AttemptId, stream: Stream, offset: int, limit: int) -> bytes | None:
        """A piece of what it wrote, of all its restarts; a negative offset is from the end. None: never started."""
        folders = self._folders(attempt)
        return read_launches(folders, stream, offset, min(max(limit, 0), _MOST_BYTES)) if folders else None

    def locate_log(self, attempt: AttemptId, stream: Stream, since_s: float) -> dict[str, Any]:
        """The folder with the output of its last start, and where what it wrote from a moment on begins.

        Nothing of one that was never started here.
        """
        folders = self._folders(attempt)
        if not folders:
            return {"path": None, "offset": 0}
        return {"path": str(folders[-1]), "offset": offset_since(folders, stream, since_s)}

    def _folders(self, attempt: AttemptId) -> list[Path]:
        launcher = self._agent.launcher
        return [launcher.log(launch, "stdout").parent for launch in launcher.launches_of(attempt)]

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

    def enable(self, uuid: str) -> bool:
        """Put a GPU that its guard has disabled back into the pool; False where it was not disabled."""
        return self._agent.enable(uuid)

    def status(
        self, after: str = "", wait_s: float = 0.0, events_after: int = 0, event_log: str | None = None
    ) -> dict[str, Any]:
        """The whole truth, when something has changed since `after`, a `revision` told before, or so long later.

        Events are those after a number of the event log named; of any other one, all that are kept.
        """
        until_s = time.monotonic() + wait_s
        with self._changed:
            while (left_s := until_s - time.monotonic()) > 0.0:
                self._notice_waking()
                if after != self._revision:
                    break
                waking_s = self._sleep.left_s
                self._changed.wait(left_s if waking_s is None else min(left_s, waking_s + 0.01))
            self._notice_waking()
            return self._status(events_after if event_log in (None, self._event_log) else 0)

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
        """What the agent before us had: the jobs it was stopping are stopped again."""
        self._attempts |= self._book.load(self._agent.launcher)
        spent = read_json(str(self._folder / "energy.json")) or {}
        for attempt in self._attempts.values():
            self._refresh(attempt)
            if str(attempt.id) in spent:
                attempt.spent = Energy(**spent[str(attempt.id)])
            if attempt.stop_request is not None and self._agent.holds(attempt.id):
                left_s = attempt.stop_request.left_s(attempt.order.grace_s)
                if attempt.stop_request.evicted:
                    self._agent.evict(attempt.id, attempt.stop_request.evicted, left_s)
                else:
                    self._agent.stop(attempt.id, left_s)

    def _happened(self, event: Event) -> None:
        """The agent has done or seen something; it holds the lock."""
        number = next(self._numbers)
        if number % _MOST_EVENTS == 0:
            with contextlib.suppress(OSError):
                _reserve(self._folder / "events.json", self._event_log, number)
        attempt = event.attempt
        self._events.append({
            "number": number, "at_s": time.time(), "what": event.what, "gpu": event.gpu or None,
            "attempt": None if attempt is None else str(attempt), "about": event.about,
        })  # fmt: skip
        found = None if attempt is None else self._attempts.get(attempt)
        if found is not None and event.what == "evicting" and found.stop_request is None:
            found.stop_request = StopRequest(time.time(), evicted=event.about, boot_s=boot_s())
            self._save(found)
        if found is not None and event.what == "ended":
            for launch in [one for one in self._agent.energy if one.attempt == attempt]:
                found.spent += self._agent.energy.pop(launch)
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
                news = [one for one in self._attempts.values() if not one.is_over and one.report.look()]
                starting = [one for one in self._attempts.values() if one.is_starting]
                for one in starting:
                    self._refresh(one)
                if news or any(not one.is_starting for one in starting):
                    self._tell_changed()
            if now_s - self._saved_s >= _SAVE_S:
                self._saved_s = now_s
                self._save_energy()

    def _notice_waking(self) -> None:
        if self._was_awake != self._sleep.is_awake:
            self._was_awake = not self._was_awake
            self._tell_changed()

    def _bar(self, bar: Bar) -> None:
        if bar.id not in self._bars:
            self._book.bar(bar)
            self._bars[bar.id] = bar
            self._tell_changed()
        self._attempts.pop(bar.id, None)
        self._book.forget(bar.id)

    def _remember(self, order: Order, was_started: bool) -> Attempt:
        """One that is new, or that was forgotten: then it is told of again, with how it ended."""
        launcher = self._agent.launcher
        if was_started:
            order = launcher.order(LaunchId(order.id)) or order  # as it came the first time
        elif not order.master_port:
            taken = {one.order.master_port for one in self._attempts.values() if not one.is_over}
            order = replace(order, master_port=free_port(taken))
        attempt = self._attempts[order.id] = self._book.create(order)
        if was_started:
            told_s = launcher.stop_requested_at_s(launcher.launches_of(order.id)[-1])
            if told_s is not None:
                attempt.stop_request = StopRequest(told_s)
                self._save(attempt)
        return attempt

    def _expect(self, order: Order) -> RunningJob | None:
        """It is here from now on; None where it was started before."""
        try:
            return self._agent.expect(order)
        except InputError:
            self._remove(order.id)  # it can never be started
            raise

    def _launch(self, running_job: RunningJob) -> None:
        try:
            self._agent.launch(running_job)
        except InputError:
            with self._changed:
                self._remove(running_job.id)
            raise

    def _remove(self, attempt: AttemptId) -> None:
        self._attempts.pop(attempt, None)
        self._book.remove(attempt)

    def _refresh(self, attempt: Attempt) -> None:
        attempt.look(self._agent.launcher, self._agent.holds(attempt.id))

    def _save(self, attempt: Attempt) -> None:
        """For an agent after us; on a full disk jobs are stopped all the same, so that there is room again."""
        with contextlib.suppress(OSError):
            self._book.save(attempt)

    def _save_energy(self) -> None:
        """What was used while no agent runs is nobody's; what was used before is not lost, unless the disk is full."""
        known = {str(one.id): asdict(self._energy(one)) for one in self._attempts.values() if one.was_started}
        if known:
            with contextlib.suppress(OSError):
                write_json(str(self._folder / "energy.json"), known)

    def _energy(self, attempt: Attempt) -> Energy:
        return attempt.spent + self._agent.energy_so_far(attempt.id)

    def _status(self, events_after: int) -> dict[str, Any]:
        for attempt in self._attempts.values():
            if not attempt.is_over and not self._agent.holds(attempt.id):
                self._refresh(attempt)
        # One that is being started is told of too: its GPUs are nobody else's, whatever becomes of it.
        told = [one for one in self._attempts.values() if one.was_started or self._agent.holds(one.id)]
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
            "guard_age_s": self._agent.guard_age_s,
            "gpus": [info_as_json(node_gpu.guarded.info) for node_gpu in self._agent.node_gpus],
            "attempts": [
                one.status(self._agent.energy_so_far(one.id), self._agent.counted_at_s(one.id)) for one in told
            ],
            "barred": [bar.to_dict() for bar in self._bars.values()],
            "readings": [reading(node_gpu) for node_gpu in self._agent.node_gpus],
            "event_log": self._event_log,
            "events": [event for event in self._events if event["number"] > events_after],
        }


def identity_of(folder: Path) -> str:
    """What the agent of a folder is known by, also before it was ever started."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    return _open_event_log(folder / "events.json")[0]


def _open_event_log(path: Path) -> tuple[str, int]:
    """The name of the event log, and where this life's events begin in it.

    Numbers are set aside a thousand at a time, so that they rise over restarts. Where the file is gone they begin
    anew, and so it is another event log.
    """
    saved = read_json(str(path)) or {}
    event_log = str(saved.get("event_log") or secrets.token_hex(8))
    first = int(saved.get("next", 0)) + 1
    first += -first % _MOST_EVENTS
    _reserve(path, event_log, first)
    return event_log, first + 1


def _reserve(path: Path, event_log: str, number: int) -> None:
    write_json(str(path), {"event_log": event_log, "next": number + _MOST_EVENTS})

"""Starts jobs on this machine, and finds them again.

Every launch has a folder, and a supervisor (supervisor.py) that outlives us and writes down how it ended. Nothing is
kept in memory: what a `Launcher` knows it reads from the folders, so one that starts after a crash knows as much as
the one that crashed. A call may be repeated; the same launch never runs twice.

A start takes about 0.1 s, most of it Python and four fsyncs, and a supervisor holds 10 MiB, half of it shared (measured
on two busy cores, Python 3.11). Under systemd the agent needs `KillMode=process`, or stopping it stops the jobs too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead import errors
from fairlead.errors import InputError, RunError
from fairlead.job.place import LAUNCH
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.json_files import create_json, read_json, write_json
from fairlead.node.order import Order
from fairlead.node.process import cgroups, environment
from fairlead.node.process.launch import LaunchRules, LaunchState, LaunchStatus, Limits
from fairlead.node.process.leftovers import kill_cgroup
from fairlead.node.process.processes import Process, boot_id, descendants, environment_of, is_running, processes, send
from fairlead.node.process.supervisor import EXECUTED, EXIT, JOB, LOCK, RUNNING

_STOP = "stop.json"
_START_S = 60.0
_TRIES = 3
_KILL_S = 10.0
_SUPERVISOR = (
    "import sys; sys.path.insert(0, sys.argv[2]); from fairlead.node.process.supervisor import main; main(sys.argv[1])"
)


class Launcher:
    """The jobs of one folder, which must be on a local disk."""

    def __init__(
        self,
        folder: Path,
        *,
        inherited: Mapping[str, str] | None = None,
        cgroup_parent: Path | None = None,
        rules: LaunchRules | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self._rules = rules or LaunchRules()
        self._inherited = environment.inherited() if inherited is None else dict(inherited)
        self._cgroup_parent = cgroup_parent
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def start(
        self, launch: LaunchId, order: Order, env: Mapping[str, str] | None = None, wait_s: float = _START_S
    ) -> LaunchStatus:
        """Run it, unless this launch was started before; either way, how it stands. `env` is ours, over the user's.

        A command that cannot be started has ended, with 126 or 127 and a reason. One that is not executed after
        `wait_s`, since its folder does not answer for instance, is starting: its supervisor sees to it. Where a launch
        is known already, what was asked for first counts. An error means that this machine can start nothing; trying
        again is safe.
        """
        folder = self._folder(launch)
        folder.mkdir(exist_ok=True, mode=0o700)
        if not (folder / JOB).exists():
            create_json(str(folder / JOB), self._record(order, env or {}, folder))
        tries = 0
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < _START_S:
            status = self.status(launch)
            if status.state is LaunchState.STARTING and (status.pid is None or waited_s < wait_s):
                time.sleep(0.01)  # without a process: somebody else's supervisor, which may be killed before it begins
            elif status.state is not LaunchState.PREPARED:
                return status
            elif tries == _TRIES:
                break
            else:
                tries += 1
                self._supervise(folder)
        who = launch.attempt.in_words
        raise RunError(f"{who}: its supervisor does not come up", hint=f"see {folder / 'supervisor.log'}")

    def status(self, launch: LaunchId) -> LaunchStatus:
        """How a launch stands now."""
        folder = self._folder(launch)
        job = read_json(str(folder / JOB))
        if job is None:
            raise InputError(f"{launch.attempt.in_words} was never started here ({self.folder})")
        # In this order: a supervisor holds its lock from before running.json until after exit.json, so where the lock
        # is free after running.json was seen, exit.json will never change again.
        running = read_json(str(folder / RUNNING)) or {}
        is_held = _is_held(folder / LOCK)
        ended = read_json(str(folder / EXIT))
        state = _state(bool(running), (folder / EXECUTED).exists(), is_held, ended)
        record = {**running, **(ended or {})}
        return LaunchStatus(
            id=launch,
            state=state,
            folder=folder,
            exit_code=record.get("exit_code"),
            signal=record.get("signal"),
            reason=_lost_reason(running) if state is LaunchState.LOST else record.get("reason"),
            detail=record.get("detail", ""),
            pid=record.get("pid"),
            started_at_s=record.get("started_at_s"),
            ended_at_s=record.get("ended_at_s"),
            ran_s=record.get("ran_s"),
            ended_boot_s=record.get("ended_boot_s") if running.get("boot_id") == boot_id() else None,
            was_stopped=(folder / _STOP).exists(),
            supervisor_signals=tuple(record.get("supervisor_signals", ())),
            is_swept=bool(record.get("is_swept")),
            notes=(*job["notes"], *record.get("notes", ())),
        )

    def order(self, launch: LaunchId) -> Order | None:
        """What was ordered; None where it was never started, or cannot be read."""
        with contextlib.suppress(InputError, KeyError):
            return Order.from_dict((read_json(str(self._folder(launch) / JOB)) or {})["order"])
        return None

    def launches(self) -> list[LaunchId]:
        """All that there are folders of, by job, attempt and number. Quick: no folder is looked into."""
        found = []
        for name in os.listdir(self.folder):
            with contextlib.suppress(InputError):
                found.append(LaunchId.parse(name))
        return sorted(found)

    def launches_of(self, attempt: AttemptId) -> list[LaunchId]:
        """Those of one attempt, numbered without a gap. Others' folders, of which many may be kept, are not touched."""
        found: list[LaunchId] = []
        while (self._folder(one := LaunchId(attempt, len(found))) / JOB).exists():
            found.append(one)
        return found

    def secret(self, launch: LaunchId) -> str:
        """What its processes have in their environment, and nobody else knows."""
        return str((read_json(str(self._folder(launch) / JOB)) or {}).get("token", ""))

    def processes(self, launch: LaunchId) -> tuple[Process, ...]:
        """Its live processes, wherever they have gone; without its supervisor."""
        return self.processes_of([launch])[launch]

    def processes_of(self, launches: Sequence[LaunchId]) -> dict[LaunchId, tuple[Process, ...]]:
        """The same of several, by one look at the machine."""
        alive = [one for one in processes() if not one.has_ended]
        tokens = {one.pid: environment_of(one.pid).get(LAUNCH) for one in alive}
        return {launch: self._among(alive, tokens, launch) for launch in launches}

    def _among(
        self, alive: Sequence[Process], tokens: Mapping[int, str | None], launch: LaunchId
    ) -> tuple[Process, ...]:
        folder = self._folder(launch)
        job, running = read_json(str(folder / JOB)), read_json(str(folder / RUNNING))
        if job is None or running is None or running["boot_id"] != boot_id():
            return ()
        supervisor = (running["supervisor_pid"], running["supervisor_start_ticks"])
        main = (running["pid"], running["start_ticks"])
        roots = [one.pid for one in alive if (one.pid, one.start_ticks) in (supervisor, main)]
        below = {one.pid for one in descendants(roots, alive)}
        below |= cgroups.members(Path(job["cgroup"])) if job["cgroup"] else set()
        return tuple(
            one
            for one in alive
            if (one.pid, one.start_ticks) != supervisor
            and (one.pid in below or one.pid in roots or tokens[one.pid] == job["token"])
        )

    def signal(self, launch: LaunchId, number: signal.Signals) -> bool:
        """To the main process and its group, as a terminal would; False where it has ended."""
        main = self._main(launch)
        if main is None:
            return False
        try:
            os.killpg(main, number)
        except OSError:
            return False
        return True

    def request_stop(self, launch: LaunchId, stop_file: Path | None = None) -> bool:
        """SIGTERM, and the file that says the same; False where there is nobody to tell any more.

        Written down first, and only while the main process runs: an end that comes after was not by itself. Sent once,
        whoever repeats the call: to a job that listens the second SIGTERM is the end of its grace.
        """
        is_main = self._main(launch) is not None
        if not is_main and self.status(launch).state is not LaunchState.LOST:
            return False
        path = self._folder(launch) / _STOP
        if (read_json(str(path)) or {}).get("is_sent"):
            return True
        _note_stop(path, is_sent=False)
        if stop_file is not None:
            with contextlib.suppress(OSError):
                stop_file.touch(mode=0o644)
        if is_main:
            told = [self.signal(launch, signal.SIGTERM)]
        else:
            told = [send(one.pid, one.start_ticks, signal.SIGTERM) for one in self.processes(launch)]
        _note_stop(path, is_sent=True)
        return any(told)

    def stop_requested_at_s(self, launch: LaunchId) -> float | None:
        """When it was first stopped, as time of day; None where it was not."""
        try:
            return (self._folder(launch) / _STOP).stat().st_mtime
        except FileNotFoundError:
            return None

    def kill(self, launch: LaunchId) -> None:
        """SIGKILL to every process of it, again until none is left; that it was us is written down first."""
        folder = self._folder(launch)
        job = read_json(str(folder / JOB)) or {}
        if self._main(launch) is not None and not (folder / _STOP).exists():
            _note_stop(folder / _STOP, is_sent=True)
        until = time.monotonic() + _KILL_S
        while (left := self.processes(launch)) and time.monotonic() < until:
            kill_cgroup(job.get("cgroup"))
            for one in left:
                send(one.pid, one.start_ticks, signal.SIGKILL)
            time.sleep(0.02)

    def stop(self, launch: LaunchId, grace_s: float = 30.0) -> LaunchStatus:
        """SIGTERM, wait, SIGKILL, wait. Where MPS is in play, its client must be taken off the GPU before SIGKILL."""
        self.request_stop(launch)
        status = self.wait(launch, grace_s)
        if not self.is_over(status):
            self.kill(launch)
            status = self.wait(launch, _KILL_S)
        return status

    def wait(self, launch: LaunchId, timeout_s: float) -> LaunchStatus:
        """Until it is over, or so long."""
        until = time.monotonic() + timeout_s
        while True:
            status = self.status(launch)
            left_s = until - time.monotonic()
            if left_s <= 0.0 or self.is_over(status):
                return status
            self._sleep(status, left_s)

    def remove(self, launch: LaunchId) -> None:
        """Forget a launch that is over, logs included. It could then be started again: only for what is settled."""
        status = self.status(launch)
        if not self.is_over(status):
            raise RunError(f"{launch.attempt.in_words} is {status.state}; only one that is over can be removed")
        self.settle(launch)
        shutil.rmtree(status.folder)

    def settle(self, launch: LaunchId) -> None:
        """It is over: let go of what the machine still holds for it, where its supervisor could not."""
        job = read_json(str(self._folder(launch) / JOB)) or {}
        if job.get("cgroup"):
            cgroups.remove(Path(job["cgroup"]))

    def is_over(self, status: LaunchStatus) -> bool:
        """Whether no process of it is left. Where its supervisor did not live to see that, we look ourselves."""
        if status.state is LaunchState.LOST:
            return not self.processes(status.id)
        if status.state is LaunchState.ENDED and not status.is_swept:
            left = self.processes(status.id)
            for one in left:
                send(one.pid, one.start_ticks, signal.SIGKILL)
            return not left
        return status.state in (LaunchState.ENDED, LaunchState.PREPARED)

    def log(self, launch: LaunchId, stream: str) -> Path:
        """Where it writes its `stdout` or `stderr`."""
        return self._folder(launch) / f"{stream}.log"

    def open_watch(self, launch: LaunchId) -> int | None:
        """A descriptor that becomes readable when its supervisor ends; None where there is none. For you to close."""
        running = read_json(str(self._folder(launch) / RUNNING))
        if running is None or running["boot_id"] != boot_id():
            return None
        try:
            descriptor = os.pidfd_open(running["supervisor_pid"])
        except OSError:
            return None
        if is_running(running["supervisor_pid"], running["supervisor_start_ticks"]):
            return descriptor
        os.close(descriptor)
        return None

    def _sleep(self, status: LaunchStatus, most_s: float) -> None:
        """Until the supervisor ends, which costs nothing meanwhile; a short while where there is none."""
        descriptor = self.open_watch(status.id)
        if descriptor is None:
            time.sleep(min(0.02, most_s))
            return
        try:
            select.select([descriptor], [], [], most_s)
        finally:
            os.close(descriptor)

    def _main(self, launch: LaunchId) -> int | None:
        """Its main process, while that runs; later the number may be somebody else's."""
        running = read_json(str(self._folder(launch) / RUNNING))
        if running is None or running["boot_id"] != boot_id():
            return None
        return int(running["pid"]) if is_running(running["pid"], running["start_ticks"]) else None

    def _folder(self, launch: LaunchId) -> Path:
        return self.folder / str(launch)

    def _record(self, order: Order, env: Mapping[str, str], folder: Path) -> dict[str, Any]:
        made: Path | None = None
        limits = self._rules.limits
        notes: list[str] = []
        token = secrets.token_hex(16)
        if self._cgroup_parent is not None:
            # Other agents of this machine may have a job of the same name.
            made, notes = cgroups.make(self._cgroup_parent, f"fairlead-{folder.name}-{token[:8]}", limits)
        elif limits != Limits():
            notes = ["no limits of memory, CPU and processes: there is no cgroup to put the job in"]
        return {
            "order": order.to_dict(),
            "inherited": self._inherited,
            "env": {**order.environment(), **env, LAUNCH: token},
            "token": token,
            "cgroup": None if made is None else str(made),
            "notes": notes,
            "output_bytes": int(self._rules.output_mib * (1 << 20)),
            "reserve_bytes": int(self._rules.reserve_mib * (1 << 20)),
            "start_s": self._rules.start_s,
        }

    def _supervise(self, folder: Path) -> None:
        package_root = str(Path(errors.__file__).resolve().parents[1])
        line = [sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(folder), package_root]
        with (folder / "supervisor.log").open("ab") as log:
            starting = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        try:
            starting.wait(_START_S)
        except subprocess.TimeoutExpired:
            raise RunError(f"{folder}: its supervisor did not come up within {_START_S:g} s") from None


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _note_stop(path: Path, *, is_sent: bool) -> None:
    """That it is us who end it. A full disk keeps nobody alive: often it still takes the name of an empty file."""
    with contextlib.suppress(OSError):
        try:
            write_json(str(path), {"is_sent": is_sent})
        except OSError:
            path.touch(mode=0o600)


def _lost_reason(running: Mapping[str, Any]) -> str:
    return "supervisor-lost" if running.get("boot_id") == boot_id() else "machine-restarted"


def _state(has_run: bool, is_executed: bool, is_held: bool, ended: dict[str, Any] | None) -> LaunchState:
    if ended is not None:
        return LaunchState.ENDING if is_held and not ended.get("is_swept") else LaunchState.ENDED
    if has_run and not is_held:
        return LaunchState.LOST
    if has_run and is_executed:
        return LaunchState.RUNNING
    return LaunchState.STARTING if is_held else LaunchState.PREPARED

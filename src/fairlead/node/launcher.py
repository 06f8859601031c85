"""Starts jobs on this machine, and finds them again.

Every attempt has a folder, and a supervisor (supervise.py) that outlives us and writes down how it ended. Nothing is
kept in memory: what a `Launcher` knows it reads from the folders, so one that starts after a crash knows as much as
the one that crashed. A call may be repeated; the same job and attempt never runs twice.

A start takes about 0.1 s, most of it Python and four fsyncs, and a supervisor holds 10 MiB, half of it shared (measured
on two busy cores, Python 3.11). Under systemd the agent needs `KillMode=process`, or stopping it stops the jobs too.
"""

from __future__ import annotations

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
from urllib.parse import quote, unquote

from fairlead.errors import InputError, RunError
from fairlead.node import cgroup
from fairlead.node.launch import JobState, JobStatus, Launch, inherited_environment
from fairlead.node.processes import Process, boot_id, descendants, environment, is_running, processes, send
from fairlead.node.records import create_json, read_json, write_json
from fairlead.node.supervise import EXIT, JOB, LOCK, RUNNING

TOKEN = "FAIRLEAD_LAUNCH"
"""In the environment of every process of a job, so that all are found even when their parents are gone."""
_STOP = "stop.json"
_START_S = 60.0
_TRIES = 3
_KILL_S = 10.0
_LONGEST_NAME = 200
_SUPERVISOR = (
    "import sys; sys.path.insert(0, sys.argv[2]); from fairlead.node import supervise as s; s.main(sys.argv[1])"
)


class Launcher:
    """The jobs of one folder, which must be on a local disk."""

    def __init__(
        self, folder: Path, *, inherited: Mapping[str, str] | None = None, cgroup_parent: Path | None = None
    ) -> None:
        self.folder = folder.absolute()
        self._inherited = inherited_environment() if inherited is None else dict(inherited)
        self._cgroup_parent = cgroup_parent
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def start(self, launch: Launch) -> JobStatus:
        """Run it, unless this attempt was started before; either way, how it stands.

        A command that cannot be started has ended, with 126 or 127 and a reason. Where an attempt is known already,
        what was asked for first counts. An error means that this machine can start nothing; trying again is safe.
        """
        folder = self._folder(launch.job_id, launch.attempt)
        folder.mkdir(exist_ok=True, mode=0o700)
        if not (folder / JOB).exists():
            create_json(str(folder / JOB), self._record(launch, folder))
        tries = 0
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            status = self.status(launch.job_id, launch.attempt)
            if status.state is JobState.STARTING:
                time.sleep(0.01)  # somebody else's supervisor, which may yet be killed before it has begun
            elif status.state is not JobState.PREPARED:
                return status
            elif tries == _TRIES:
                break
            else:
                tries += 1
                self._supervise(folder)
        raise RunError(f"job {launch.job_id}: its supervisor does not come up", hint=f"see {folder / 'supervisor.log'}")

    def status(self, job_id: str, attempt: int) -> JobStatus:
        """How an attempt stands now."""
        folder = self._folder(job_id, attempt)
        job = read_json(str(folder / JOB))
        if job is None:
            raise InputError(f"job {job_id}, attempt {attempt} was never started here ({self.folder})")
        # In this order: a supervisor holds its lock from before running.json until after exit.json, so where the lock
        # is free after running.json was seen, exit.json will never change again.
        running = read_json(str(folder / RUNNING)) or {}
        is_held = _is_held(folder / LOCK)
        ended = read_json(str(folder / EXIT))
        state = _state(bool(running), is_held, ended)
        record = {**running, **(ended or {})}
        return JobStatus(
            job_id=job_id,
            attempt=attempt,
            state=state,
            folder=folder,
            gpus=tuple(job["gpus"]),
            exit_code=record.get("exit_code"),
            signal=record.get("signal"),
            reason="supervisor-lost" if state is JobState.LOST else record.get("reason"),
            detail=record.get("detail", ""),
            pid=record.get("pid"),
            started_at_s=record.get("started_at_s"),
            ended_at_s=record.get("ended_at_s"),
            stop_requested=(folder / _STOP).exists(),
            notes=(*job["notes"], *record.get("notes", ())),
        )

    def jobs(self) -> tuple[JobStatus, ...]:
        """All attempts of this folder, by name."""
        return tuple(self.status(*key) for key in self.names())

    def names(self) -> list[tuple[str, int]]:
        """The jobs and attempts of all of them."""
        found = []
        for folder in self.folder.iterdir():
            name, at, attempt = folder.name.rpartition("@")
            if at and attempt.isdigit() and (folder / JOB).exists():
                found.append((unquote(name), int(attempt)))
        return sorted(found)

    def attempts(self, job_id: str) -> list[int]:
        """Of one job."""
        head = f"{quote(job_id, safe='')}@"
        tails = [name.removeprefix(head) for name in os.listdir(self.folder) if name.startswith(head)]
        return sorted(int(tail) for tail in tails if tail.isdigit() and (self.folder / f"{head}{tail}" / JOB).exists())

    def adopt(self) -> tuple[JobStatus, ...]:
        """After a restart: all attempts, with what ended ones left behind stopped. Lost ones are left to the caller."""
        found = self.jobs()
        for status in found:
            if status.state is JobState.ENDED and not (read_json(str(status.folder / EXIT)) or {}).get("is_swept"):
                self.kill(status.job_id, status.attempt)
        return found

    def processes(self, job_id: str, attempt: int) -> tuple[Process, ...]:
        """The live processes of an attempt, wherever they have gone; without its supervisor."""
        return self.processes_of([(job_id, attempt)])[job_id, attempt]

    def processes_of(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[Process, ...]]:
        """The same of several, by one look at the machine."""
        alive = [one for one in processes() if not one.has_ended]
        tokens = {one.pid: environment(one.pid).get(TOKEN) for one in alive}
        return {key: self._among(alive, tokens, *key) for key in keys}

    def _among(
        self, alive: Sequence[Process], tokens: Mapping[int, str | None], job_id: str, attempt: int
    ) -> tuple[Process, ...]:
        folder = self._folder(job_id, attempt)
        job, running = read_json(str(folder / JOB)), read_json(str(folder / RUNNING))
        if job is None or running is None or running["boot_id"] != boot_id():
            return ()
        supervisor = (running["supervisor_pid"], running["supervisor_start_ticks"])
        main = (running["pid"], running["start_ticks"])
        roots = [one.pid for one in alive if (one.pid, one.start_ticks) in (supervisor, main)]
        below = {one.pid for one in descendants(roots, alive)}
        return tuple(
            one
            for one in alive
            if (one.pid, one.start_ticks) != supervisor
            and (one.pid in below or one.pid in roots or tokens[one.pid] == job["token"])
        )

    def signal(self, job_id: str, attempt: int, number: signal.Signals) -> bool:
        """To the main process and its group, as a terminal would; False where it has ended."""
        running = read_json(str(self._folder(job_id, attempt) / RUNNING))
        if running is None or running["boot_id"] != boot_id():
            return False
        if not is_running(running["pid"], running["start_ticks"]):
            return False  # by now the number may be somebody else's
        try:
            os.killpg(running["pid"], number)
        except OSError:
            return False
        return True

    def request_stop(self, job_id: str, attempt: int) -> bool:
        """SIGTERM, written down first; False where there is nobody to tell any more."""
        folder = self._folder(job_id, attempt)
        if not (folder / _STOP).exists():
            write_json(str(folder / _STOP), {"at_s": time.time()})
        if self.signal(job_id, attempt, signal.SIGTERM):
            return True
        if self.status(job_id, attempt).state is not JobState.LOST:
            return False
        told = [send(one.pid, one.start_ticks, signal.SIGTERM) for one in self.processes(job_id, attempt)]
        return any(told)

    def kill(self, job_id: str, attempt: int) -> None:
        """SIGKILL to every process of it, again until none is left."""
        job = read_json(str(self._folder(job_id, attempt) / JOB)) or {}
        until = time.monotonic() + _KILL_S
        while (left := self.processes(job_id, attempt)) and time.monotonic() < until:
            if job.get("cgroup"):
                cgroup.kill(Path(job["cgroup"]))
            for one in left:
                send(one.pid, one.start_ticks, signal.SIGKILL)
            time.sleep(0.02)

    def stop(self, job_id: str, attempt: int, grace_s: float = 30.0) -> JobStatus:
        """SIGTERM, wait, SIGKILL, wait. Where MPS is in play, its client must be taken off the GPU before SIGKILL."""
        self.request_stop(job_id, attempt)
        status = self.wait(job_id, attempt, grace_s)
        if not self._is_over(status):
            self.kill(job_id, attempt)
            status = self.wait(job_id, attempt, _KILL_S)
        return status

    def wait(self, job_id: str, attempt: int, timeout_s: float) -> JobStatus:
        """Until it is over, or so long."""
        until = time.monotonic() + timeout_s
        while True:
            status = self.status(job_id, attempt)
            left_s = until - time.monotonic()
            if left_s <= 0.0 or self._is_over(status):
                return status
            self._sleep(status, left_s)

    def remove(self, job_id: str, attempt: int) -> None:
        """Forget an attempt that is over, logs included. It could then be started again: only for what is settled."""
        status = self.status(job_id, attempt)
        if not self._is_over(status):
            raise RunError(f"job {job_id}, attempt {attempt} is {status.state}; only one that is over can be removed")
        shutil.rmtree(status.folder)

    def _is_over(self, status: JobStatus) -> bool:
        if status.state is JobState.LOST:
            return not self.processes(status.job_id, status.attempt)
        return status.state in (JobState.ENDED, JobState.PREPARED)

    def log(self, job_id: str, attempt: int, stream: str) -> Path:
        """Where it writes its `stdout` or `stderr`."""
        return self._folder(job_id, attempt) / f"{stream}.log"

    def open_watch(self, job_id: str, attempt: int) -> int | None:
        """A descriptor that becomes readable when its supervisor ends; None where there is none. For you to close."""
        running = read_json(str(self._folder(job_id, attempt) / RUNNING))
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

    def _sleep(self, status: JobStatus, most_s: float) -> None:
        """Until the supervisor ends, which costs nothing meanwhile; a short while where there is none."""
        descriptor = self.open_watch(status.job_id, status.attempt)
        if descriptor is None:
            time.sleep(min(0.02, most_s))
            return
        try:
            select.select([descriptor], [], [], most_s)
        finally:
            os.close(descriptor)

    def _folder(self, job_id: str, attempt: int) -> Path:
        name = f"{quote(job_id, safe='')}@{attempt}"
        if len(name) > _LONGEST_NAME:
            raise InputError(f"the job's name {job_id[:40]!r}... has more than {_LONGEST_NAME} characters")
        return self.folder / name

    def _record(self, launch: Launch, folder: Path) -> dict[str, Any]:
        made: Path | None = None
        notes: list[str] = []
        if self._cgroup_parent is not None:
            made, notes = cgroup.make(self._cgroup_parent, folder.name, launch.limits)
        elif launch.limits.memory_mib is not None or launch.limits.cpus is not None:
            notes = ["no limits of memory and CPU: there is no cgroup to put the job in"]
        token = secrets.token_hex(8)
        return {
            "job_id": launch.job_id,
            "attempt": launch.attempt,
            "argv": list(launch.argv),
            "cwd": str(launch.cwd),
            "env": {**launch.environment(self._inherited), TOKEN: token},
            "token": token,
            "gpus": list(launch.gpus),
            "user": launch.user,
            "cgroup": None if made is None else str(made),
            "notes": notes,
        }

    def _supervise(self, folder: Path) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
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


def _state(has_run: bool, is_held: bool, ended: dict[str, Any] | None) -> JobState:
    if ended is not None:
        return JobState.ENDING if is_held and not ended.get("is_swept") else JobState.ENDED
    if has_run:
        return JobState.RUNNING if is_held else JobState.LOST
    return JobState.STARTING if is_held else JobState.PREPARED

"""The parent of one job: starts it, waits, and writes down how it ended, whatever becomes of the agent.

One supervisor per job, so it loads as little as it can: see `Launcher` for how it is started. The folder holds

    job.json       what to run; whoever makes this file first decides
    lock           locked by the supervisor as long as it lives
    running.json   who runs it, written before the first instruction of the command
    exit.json      how it ended
    stdout.log, stderr.log   appended to, without a limit

The laws: the command is not executed unless running.json is on disk, and never where running.json is there already. So
what has no running.json may be started again, and nothing runs twice. The folder must be on a local disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import time
from typing import Any, NoReturn

from fairlead.node.processes import boot_id, descendants, process, processes, send
from fairlead.node.records import read_json, write_json

JOB, LOCK, RUNNING, EXIT = "job.json", "lock", "running.json", "exit.json"
CANNOT_EXECUTE, NOT_FOUND = 126, 127
STRAGGLER_GRACE_S = 5.0
"""What a finished job's left-over processes get between SIGTERM and SIGKILL."""
_LOCK_S = 0.5
"""Somebody who asks whether the lock is held has it for microseconds."""
_WRITE_S = 600.0
"""How long a full disk is waited for before the exit code is given up."""
_UNKILLABLE_S = 30.0
_PR_SET_CHILD_SUBREAPER = 36


class _RefusedError(Exception):
    """The command cannot be started; carries the exit code and the reason."""

    def __init__(self, code: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.record = {"exit_code": code, "reason": reason, "detail": detail}


def main(folder: str) -> NoReturn:
    """Leave the launcher's family, then supervise. The launcher waits until it is clear how the start went."""
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os._exit(0 if os.read(told, 1) else 1)
    os.close(told)
    os.setsid()
    try:
        supervise(folder, tell)
    except BaseException:
        import traceback

        traceback.print_exc()  # into supervisor.log; without exit.json the job counts as lost
    os._exit(0)


def supervise(folder: str, tell: int) -> None:
    """The life of a supervisor."""
    held = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    running, ended = os.path.join(folder, RUNNING), os.path.join(folder, EXIT)
    if not _lock(held, running) or os.path.exists(running) or os.path.exists(ended):
        return  # another one has it, or had it
    job = read_json(os.path.join(folder, JOB))
    if job is None:
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)  # these are for the job; we stay to see it end
    _become_subreaper()
    started_at_s = time.time()
    try:
        pid = _start(folder, job, started_at_s)
    except _RefusedError as refused:
        record = {**refused.record, "started_at_s": started_at_s, "ended_at_s": time.time(), "is_swept": True}
        _write_whatever_happens(ended, record)
        _say(tell)
        return
    _say(tell)
    record = {**_outcome(_wait_for(pid)), "started_at_s": started_at_s, "ended_at_s": time.time()}
    _write_whatever_happens(ended, {**record, "is_swept": False})
    left = sweep()
    _write_whatever_happens(ended, {**record, "is_swept": True, "unkillable": left})
    if job.get("cgroup"):
        with contextlib.suppress(OSError):
            os.rmdir(job["cgroup"])


def _say(tell: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits any more; the job goes on
        os.write(tell, b"1")
    os.close(tell)


def _lock(held: int, running: str) -> bool:
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if os.path.exists(running) or time.monotonic() > until:
                return False
            time.sleep(0.005)


def _become_subreaper() -> None:
    """Orphans of the job become our children and are not lost, even those that made a session of their own."""
    with contextlib.suppress(Exception):  # without it, only the job's own group is found again
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _start(folder: str, job: dict[str, Any], started_at_s: float) -> int:
    """Fork, write down who it is, and only then let it execute the command."""
    may_go, go = os.pipe()
    failed, fail = os.pipe()  # closed by a successful exec
    try:
        pid = os.fork()
    except OSError as error:
        raise _RefusedError(CANNOT_EXECUTE, "cannot-fork", str(error)) from None
    if pid == 0:
        os.close(go)
        os.close(failed)
        _child(folder, job, may_go, fail)
    os.close(may_go)
    os.close(fail)
    notes = _join_cgroup(job, pid)
    me = os.getpid()
    running = {
        "pid": pid,
        "start_ticks": _ticks(pid),
        "supervisor_pid": me,
        "supervisor_start_ticks": _ticks(me),
        "boot_id": boot_id(),
        "started_at_s": started_at_s,
        "notes": notes,
    }
    try:
        write_json(os.path.join(folder, RUNNING), running)
    except OSError as error:
        os.close(go)  # the child ends without having done anything
        os.waitpid(pid, 0)
        raise _RefusedError(CANNOT_EXECUTE, "cannot-write", str(error)) from None
    os.write(go, b"1")
    os.close(go)
    with open(failed, "rb") as answer:
        said = answer.read()
    if said:
        os.waitpid(pid, 0)
        raise _RefusedError(**json.loads(said))
    return pid


def _child(folder: str, job: dict[str, Any], may_go: int, fail: int) -> NoReturn:
    """In the job's process, up to its command."""
    refused = _RefusedError(CANNOT_EXECUTE, "cannot-start", "")
    try:
        os.setsid()
        if os.read(may_go, 1) != b"1":
            os._exit(CANNOT_EXECUTE)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        _execute(folder, job)
    except _RefusedError as why:
        refused = why
    except BaseException as error:
        refused = _RefusedError(CANNOT_EXECUTE, "cannot-start", f"{type(error).__name__}: {error}")
    record = refused.record
    said = {"code": record["exit_code"], "reason": record["reason"], "detail": record["detail"]}
    os.write(fail, json.dumps(said).encode())
    os._exit(CANNOT_EXECUTE)


def _execute(folder: str, job: dict[str, Any]) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDONLY)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    logs = []
    try:
        logs = [os.open(os.path.join(folder, name), append, 0o640) for name in ("stdout.log", "stderr.log")]
    except OSError as error:
        raise _RefusedError(CANNOT_EXECUTE, "log-not-writable", str(error)) from None
    env: dict[str, str] = dict(job["env"])
    if job.get("user"):
        _change_user(job["user"], env)
    try:
        os.chdir(job["cwd"])
    except OSError as error:
        reason = "no-such-folder" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "not-permitted"
        raise _RefusedError(CANNOT_EXECUTE, reason, f"{job['cwd']}: {error.strerror}") from None
    for number, descriptor in enumerate((nothing, *logs)):
        os.dup2(descriptor, number)
    command = job["argv"][0]
    try:
        os.execvpe(command, job["argv"], env)
    except FileNotFoundError as error:
        raise _RefusedError(NOT_FOUND, "command-not-found", f"{command}: {error.strerror}") from None
    except OSError as error:
        reason = "not-permitted" if error.errno == errno.EACCES else "cannot-execute"
        raise _RefusedError(CANNOT_EXECUTE, reason, f"{command}: {error.strerror}") from None


def _change_user(name: str, env: dict[str, str]) -> None:
    import pwd

    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise _RefusedError(CANNOT_EXECUTE, "no-such-user", f"{name}: no such user on this machine") from None
    if user.pw_uid == os.getuid():
        return
    try:
        os.initgroups(name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except OSError as error:
        raise _RefusedError(CANNOT_EXECUTE, "not-permitted", f"cannot run as {name}: {error.strerror}") from None
    env.update({"HOME": user.pw_dir, "USER": name, "LOGNAME": name, "SHELL": user.pw_shell})


def _join_cgroup(job: dict[str, Any], pid: int) -> list[str]:
    if not job.get("cgroup"):
        return []
    try:
        with open(os.path.join(job["cgroup"], "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write(str(pid))
    except OSError as error:
        return [f"no limits by cgroup: {error.strerror}"]
    return []


def _wait_for(pid: int) -> int:
    """The status of the job's main process; orphans that end before it are reaped on the way."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def _outcome(status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"exit_code": 128 + number, "signal": number, "reason": "signalled"}
    return {"exit_code": os.WEXITSTATUS(status), "signal": None, "reason": "exited"}


def sweep(grace_s: float = STRAGGLER_GRACE_S) -> int:
    """End what is left below us: each is told once, then killed. How many would not die."""
    since_s = time.monotonic()
    told: set[int] = set()
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = [one for one in descendants([os.getpid()], processes()) if not one.has_ended]
        waited_s = time.monotonic() - since_s
        if not left or waited_s > grace_s + _UNKILLABLE_S:
            return len(left)
        for one in left:
            if waited_s > grace_s:
                send(one.pid, one.start_ticks, signal.SIGKILL)
            elif one.pid not in told:
                told.add(one.pid)
                send(one.pid, one.start_ticks, signal.SIGTERM)
        time.sleep(0.02)


def _ticks(pid: int) -> int:
    found = process(pid)
    return -1 if found is None else found.start_ticks


def _write_whatever_happens(path: str, record: dict[str, Any]) -> None:
    until = time.monotonic() + _WRITE_S
    while True:
        try:
            write_json(path, record)
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(1.0)

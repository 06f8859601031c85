"""The parent of one job: starts it, waits, and writes down how it ended, whatever becomes of the agent.

One supervisor per job, so it loads as little as it can: see `Launcher` for how it is started. The folder holds

    job.json       what to run; whoever makes this file first decides
    lock           locked by the supervisor as long as it lives
    running.json   who runs it, written before the first instruction of the command
    executed       there once the command is executed: before, its folder or its program may still be waited for
    exit.json      how it ended
    stdout.log, stderr.log   what it wrote, within bounds (output.py); index.log says in which order

All that touches what belongs to the user, their folder above all, is done by the job's own process: on a file system
that hangs nobody else hangs with it.

The laws: the command is not executed unless running.json is on disk, and never where running.json is there already. So
what has no running.json may be started again, and nothing runs twice. The folder must be on a local disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from fairlead.node.json_files import read_json, write_json
from fairlead.node.process import environment, lease_file
from fairlead.node.process.leftovers import STRAGGLER_GRACE_S, sweep
from fairlead.node.process.output import Outputs
from fairlead.node.process.processes import boot_id, boot_s, process

JOB, LOCK, RUNNING, EXECUTED, EXIT = "job.json", "lock", "running.json", "executed", "exit.json"
CANNOT_EXECUTE, NOT_FOUND = 126, 127
_LOCK_S = 0.5
"""Somebody who asks whether the lock is held has it for microseconds."""
_WRITE_S = 600.0
"""How long a full disk is waited for before the exit code is given up."""
_DIE_S = 5.0
"""How long a process that was killed before it became the command is waited for; it holds nothing of ours."""
_LOOK_S = 1.0
"""How often the lease is looked at, where there is one."""
_PR_SET_CHILD_SUBREAPER = 36
_FOR_THE_JOB = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Not for us: we stay to see it end."""
_SESSION_END_S = 300.0
"""A session that is being ended kills who is still there before this is over; systemd waits for 90 s."""


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
    told: list[tuple[int, float]] = []
    for number in _FOR_THE_JOB:
        # Nobody has a reason to signal this process alone: who does is ending the session or the whole machine.
        signal.signal(number, lambda caught, frame: told.append((caught, boot_s())))
    _become_subreaper()
    started_at_s, began_s = time.time(), boot_s()
    try:
        outputs = _open_outputs(folder, job)
        pid, failed = _fork(folder, job, started_at_s, outputs)
        tell = _say(tell)
        _await_command(folder, job, pid, failed)
    except _RefusedError as refused:
        record = {**refused.record, "started_at_s": started_at_s, "ended_at_s": time.time(), "ran_s": 0.0}
        record |= {"ended_boot_s": boot_s()}
        _write_whatever_happens(ended, {**record, "is_swept": True})
        _say(tell)
        _leave_cgroup(job)
        return
    lease = lease_file.of_job(folder)

    def look() -> None:
        """Who has had no word from the controller for too long must not run: the job may be started elsewhere."""
        if lease_file.has_ended(lease):
            told.append((signal.SIGTERM, boot_s()))
            os.kill(pid, signal.SIGKILL)

    outcome = _outcome(_wait_for(pid, outputs, look if os.path.exists(lease) else None))
    record = {**outcome, "started_at_s": started_at_s, "ended_at_s": time.time()}
    now_s = boot_s()
    record |= {"ran_s": now_s - began_s, "ended_boot_s": now_s}
    record |= {"supervisor_signals": [number for number, at_s in told if now_s - at_s <= _SESSION_END_S]}
    _write_whatever_happens(ended, {**record, "is_swept": False})
    # Who was killed had its grace, and what it leaves behind has had the same.
    grace_s = 0.0 if record["signal"] == signal.SIGKILL else STRAGGLER_GRACE_S
    sweep(grace_s, job.get("cgroup"), outputs.drain)
    outputs.close()
    _write_whatever_happens(ended, {**record, "is_swept": True})
    _leave_cgroup(job)


def _say(tell: int) -> int:
    """Tell the launcher, once, that it need not wait any longer."""
    if tell >= 0:
        with contextlib.suppress(BrokenPipeError):  # nobody waits any more; the job goes on
            os.write(tell, b"1")
        os.close(tell)
    return -1


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


def _open_outputs(folder: str, job: dict[str, Any]) -> Outputs:
    try:
        return Outputs(folder, int(job["output_bytes"]), int(job["reserve_bytes"]))
    except OSError as error:
        raise _RefusedError(CANNOT_EXECUTE, "log-not-writable", str(error)) from None


def _fork(folder: str, job: dict[str, Any], started_at_s: float, outputs: Outputs) -> tuple[int, int]:
    """Fork, write down who it is, and only then let it go on. Gives what becomes readable when it is the command."""
    may_go, go = os.pipe()
    failed, fail = os.pipe()  # closed by a successful exec
    # Held back until the child takes them as its command would: who stops it early must not do so in vain.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_JOB)
    try:
        pid = os.fork()
    except OSError as error:
        raise _RefusedError(CANNOT_EXECUTE, "cannot-fork", str(error)) from None
    if pid == 0:
        os.close(go)
        os.close(failed)
        _child(job, outputs, may_go, fail)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_JOB)
    os.close(may_go)
    os.close(fail)
    outputs.close_writers()
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
    return pid, failed


def _await_command(folder: str, job: dict[str, Any], pid: int, failed: int) -> None:
    """Until it is the command, or has ended before; one that does not get there in time is given up."""
    start_s = float(job["start_s"])
    is_late = not select.select([failed], [], [], start_s)[0]
    if is_late:
        os.kill(pid, signal.SIGKILL)
        _wait_briefly(pid)
        where = f"{job['order']['cwd']} or {job['order']['argv'][0]}"
        about = f"{where} did not answer within {start_s:g} s: is a file system unreachable?"
        raise _RefusedError(CANNOT_EXECUTE, "start-timed-out", about)
    with open(failed, "rb") as answer:
        said = answer.read()
    if said:
        _wait_briefly(pid)
        raise _RefusedError(**json.loads(said))
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(folder, EXECUTED), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _wait_briefly(pid: int) -> None:
    """For one that was never the command: if it sits in the kernel, it dies as soon as it comes out."""
    until = time.monotonic() + _DIE_S
    while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)


def _child(job: dict[str, Any], outputs: Outputs, may_go: int, fail: int) -> NoReturn:
    """In the job's process, up to its command."""
    refused = _RefusedError(CANNOT_EXECUTE, "cannot-start", "")
    try:
        os.setsid()
        if os.read(may_go, 1) != b"1":
            os._exit(CANNOT_EXECUTE)
        for number in (*_FOR_THE_JOB, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_JOB)
        _execute(job, outputs)
    except _RefusedError as why:
        refused = why
    except BaseException as error:
        refused = _RefusedError(CANNOT_EXECUTE, "cannot-start", f"{type(error).__name__}: {error}")
    record = refused.record
    said = {"code": record["exit_code"], "reason": record["reason"], "detail": record["detail"]}
    os.write(fail, json.dumps(said).encode())
    os._exit(CANNOT_EXECUTE)


def _execute(job: dict[str, Any], outputs: Outputs) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDONLY)
    order: dict[str, Any] = job["order"]
    env = environment.composed(job["inherited"], order["env"], job["env"])
    if order["user"]:
        _change_user(order["user"], env)
    try:
        os.chdir(order["cwd"])
    except OSError as error:
        reason = "no-such-folder" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "not-permitted"
        raise _RefusedError(CANNOT_EXECUTE, reason, f"{order['cwd']}: {error.strerror}") from None
    for number, descriptor in enumerate((nothing, *outputs.writers)):
        os.dup2(descriptor, number)
    command = order["argv"][0]
    try:
        os.execvpe(command, order["argv"], env)
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


def _leave_cgroup(job: dict[str, Any]) -> None:
    if job.get("cgroup"):
        with contextlib.suppress(OSError):
            os.rmdir(job["cgroup"])


def _wait_for(pid: int, outputs: Outputs, look: Callable[[], None] | None) -> int:
    """The status of the job's main process. What it writes is kept, and orphans that end before it are reaped.

    `look` is called now and then, where there is anything to look at.
    """
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        with contextlib.suppress(ChildProcessError):
            while found := os.waitpid(-1, os.WNOHANG):
                if found[0] == pid:
                    outputs.drain()
                    return found[1]
                if found[0] == 0:
                    break
        ready = select.select([woken, *outputs.readers], [], [], None if look is None else _LOOK_S)[0]
        if look is not None:
            look()
        for one in ready:
            if one == woken:
                os.read(woken, 4096)
            else:
                outputs.take(one)


def _outcome(status: int) -> dict[str, Any]:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"exit_code": 128 + number, "signal": number, "reason": "signalled"}
    return {"exit_code": os.WEXITSTATUS(status), "signal": None, "reason": "exited"}


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
            if time.monotonic() > until or not os.path.isdir(os.path.dirname(path)):
                raise  # it has been full for too long, or was removed: nobody will read it
            time.sleep(1.0)

"""Nothing of a job is left when it is over, however its processes try to get away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process import cgroups
from fairlead.node.process.launch import LaunchState, Limits
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.leftovers import is_populated
from fairlead.node.process.processes import environment_of, processes, send
from tests.patience import PATIENCE_S

J = LaunchId(AttemptId(17, 2))
AWAY = """
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    long nap_us = atol(words[1]);
    int width = atoi(words[2]);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    puts("up");
    fflush(stdout);
    clearenv();
    for (int i = 0; fork() != 0; i++)
        if (i == width)
            return count > 3 ? (pause(), 0) : 0;
    for (;;) {
        pid_t child = fork();
        if (child > 0)
            _exit(0);
        setsid();
        if (nap_us) {
            struct timespec nap = {0, nap_us * 1000};
            nanosleep(&nap, NULL);
        }
    }
}
"""
"""Each process lives for so long, makes another in a session of its own and ends; so many of these chains at once."""

SWEEPER = """
import os, subprocess, sys
from fairlead.node.process import supervisor
from fairlead.node.process import leftovers
supervisor._become_subreaper()
os.setsid()
subprocess.run(sys.argv[1:], check=True)
had = "some" if leftovers.reap() else "none"
leftovers.sweep(0.05)
print(f"had {had}, left {leftovers.children()}")
"""


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("away")
    (folder / "away.c").write_text(AWAY)
    subprocess.run([compiler, "-O1", "-o", folder / "away", folder / "away.c"], check=True)
    return folder / "away"


@pytest.fixture
def mark() -> Iterator[str]:
    """In the arguments of all that a test starts, so that what gets away is found: its environment is empty."""
    made = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    yield made
    for pid in _marked(made):
        os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    found = []
    for one in processes():
        if mark.encode() in _words(one.pid):
            found.append(one.pid)
    return found


def _alive(mark: str) -> bool:
    """A chain is missed by one look, hardly by many."""
    return any(_marked(mark) for _ in range(30))


@pytest.mark.parametrize(("nap_us", "width"), [(200, 1), (0, 1), (200, 16), (0, 4)])
def test_processes_that_fork_away_are_all_swept(away: Path, nap_us: int, width: int) -> None:
    line = [sys.executable, "-c", SWEEPER, str(away), str(nap_us), str(width)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("had some, left []\n"), done.stdout


def test_a_job_that_forks_away_is_over_only_when_nothing_is_left(away: Path, mark: str, tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "jobs")
    status = launcher.start(J, Order(J.attempt, (str(away), "200", "2", mark)))
    _until_up(status.stdout)
    assert _alive(mark)
    done = launcher.stop(J, grace_s=0.1)
    assert (done.state, done.signal, done.is_swept) == (LaunchState.ENDED, signal.SIGKILL, True)
    assert not _alive(mark)


def test_a_process_that_cannot_be_killed_keeps_the_job_from_being_over(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "jobs")
    status = launcher.start(J, Order(J.attempt, ("sleep", "60")))
    supervisor = next(p for p in processes() if str(status.folder).encode() in _words(p.pid))
    # As one that sits in a driver: signals do not reach it. Here they do not reach its supervisor, who would sweep.
    send(supervisor.pid, supervisor.start_ticks, signal.SIGSTOP)
    assert status.pid is not None
    (status.folder / "exit.json").write_text('{"exit_code": 0, "reason": "exited", "signal": null, "is_swept": false}')
    try:
        now = launcher.status(J)
        assert now.state is LaunchState.ENDING
        assert not launcher.is_over(now)
    finally:
        send(supervisor.pid, supervisor.start_ticks, signal.SIGCONT)
        launcher.stop(J, grace_s=0.1)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _until_up(log: Path) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while b"up" not in log.read_bytes():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def _real_cgroup() -> Path:
    parent, found = cgroups.writable_parent()
    if parent is None or not hasattr(os, "pidfd_open"):
        pytest.skip(found)
    return parent


def _cgroup_of(folder: Path) -> Path:
    return Path(json.loads((folder / "job.json").read_text())["cgroup"])


def test_with_a_cgroup_all_end_at_once_and_it_goes_with_them(away: Path, mark: str, tmp_path: Path) -> None:
    parent = _real_cgroup()
    launcher = Launcher(tmp_path / "jobs", cgroup_parent=parent)
    status = launcher.start(J, Order(J.attempt, (str(away), "200", "2", mark)))
    _until_up(status.stdout)
    made = _cgroup_of(status.folder)
    assert made.parent == parent
    assert is_populated(str(made))
    assert status.pid in cgroups.members(made)
    done = launcher.stop(J, grace_s=0.1)
    assert (done.state, done.is_swept) == (LaunchState.ENDED, True)
    assert not _alive(mark)
    until_s = time.monotonic() + PATIENCE_S
    while made.exists():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_without_its_supervisor_a_job_that_forgot_who_it_is_is_found_by_its_cgroup(tmp_path: Path) -> None:
    parent = _real_cgroup()
    launcher = Launcher(tmp_path / "jobs", cgroup_parent=parent)
    program = "import os; os.fork() or (os.setsid(), os.execve('/bin/sleep', ['sleep', '60'], {})); os.wait()"
    status = launcher.start(J, Order(J.attempt, (sys.executable, "-I", "-S", "-c", program)))
    until_s = time.monotonic() + PATIENCE_S
    while not any(one.pid != status.pid and not environment_of(one.pid) for one in launcher.processes(J)):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    supervisor = next(p for p in processes() if str(status.folder).encode() in _words(p.pid))
    assert status.pid is not None
    send(supervisor.pid, supervisor.start_ticks, signal.SIGKILL)
    os.kill(status.pid, signal.SIGKILL)
    while launcher.status(J).state is not LaunchState.LOST or len(launcher.processes(J)) > 1:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    assert launcher.processes(J), "no parent, no mark in its environment, but it is there"
    assert not launcher.is_over(launcher.status(J))
    launcher.kill(J)
    assert launcher.is_over(launcher.status(J))
    launcher.settle(J)
    assert not _cgroup_of(status.folder).exists()


def fake_tree(folder: Path, controllers: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in {"cgroup.procs": "", "cgroup.subtree_control": controllers}.items():
        (folder / name).write_text(text)
    return folder


def test_a_parent_is_taken_where_limits_are_delegated_else_where_jobs_can_at_least_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = fake_tree(tmp_path / "unit", "cpu memory pids")
    own = fake_tree(unit / "main", "")
    monkeypatch.setattr(cgroups, "own_cgroup", lambda: own)
    monkeypatch.setattr(cgroups, "_enable", lambda folder: None)  # in a true tree refused: we are in it
    assert cgroups.writable_parent() == (unit, str(unit))
    (unit / "cgroup.subtree_control").write_text("")
    parent, found = cgroups.writable_parent()
    assert parent == own
    assert "no limits of memory, cpu, pids" in found
    assert cgroups.writable_parent(unit)[0] == unit
    assert cgroups.writable_parent(tmp_path / "none")[0] is None
    monkeypatch.setattr(cgroups, "own_cgroup", lambda: None)
    assert cgroups.writable_parent() == (None, "no cgroup v2 on this machine")


def test_limits_that_the_cgroup_cannot_hold_are_noted(tmp_path: Path) -> None:
    parent = _real_cgroup()
    missing = {"memory", "cpu", "pids"} - cgroups.controllers(parent)
    if not missing:
        pytest.skip("every limit is delegated here")
    made, notes = cgroups.make(parent, "fairlead-note", Limits(memory_mib=64, cpus=1, processes=100))
    assert made is not None
    cgroups.remove(made)
    assert {note.split()[2].partition(".")[0] for note in notes} == missing


def test_a_cgroup_that_goes_while_it_is_looked_at_has_nobody_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.procs").write_text("7\n")
    assert cgroups.members(tmp_path) == {7}
    (tmp_path / "cgroup.procs").unlink()

    def gone(path: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert cgroups.members(tmp_path) == set()

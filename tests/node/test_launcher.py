"""Jobs outlive whoever started them, run once, and their end is always known or known to be unknown."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlead.errors import InputError, RunError
from fairlead.node.launch import JobState, JobStatus, Launch, Limits
from fairlead.node.launcher import TOKEN, Launcher
from fairlead.node.processes import command_line, is_running, process, processes, send

SOURCES = Path(__file__).parents[2] / "src"
PYTHON = sys.executable


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path / "jobs")
    yield made
    for status in made.jobs():  # a test that fails leaves nothing behind
        made.kill(status.job_id, status.attempt)


def python(program: str) -> tuple[str, ...]:
    return (PYTHON, "-I", "-S", "-c", program)


def run(launcher: Launcher, *argv: str, job: str = "j", **more: object) -> JobStatus:
    launcher.start(Launch(job, 0, argv, **more))  # type: ignore[arg-type]
    return launcher.wait(job, 0, 30.0)


def wait_until(true: Callable[[], object], for_s: float = 20.0) -> None:
    until = time.monotonic() + for_s
    while not true():
        assert time.monotonic() < until, f"not so within {for_s} s"
        time.sleep(0.01)


def supervisor(status: JobStatus) -> tuple[int, int]:
    found = json.loads((status.folder / "running.json").read_text())
    return found["supervisor_pid"], found["supervisor_start_ticks"]


def test_exit_code_and_both_logs_are_kept(launcher: Launcher) -> None:
    done = run(launcher, *python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"))
    assert (done.state, done.exit_code, done.signal, done.reason) == (JobState.ENDED, 7, None, "exited")
    assert done.stdout.read_text() == "out\n"
    assert done.stderr.read_text() == "err\n"
    assert not done.has_succeeded
    assert done.ended_at_s is not None
    assert done.started_at_s is not None
    assert done.ended_at_s >= done.started_at_s


def test_success_is_success(launcher: Launcher) -> None:
    assert run(launcher, "true").has_succeeded


def test_a_signal_is_told_as_shells_do(launcher: Launcher) -> None:
    done = run(launcher, *python("import os; os.kill(os.getpid(), 11)"))
    assert (done.exit_code, done.signal, done.reason) == (139, 11, "signalled")


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "reason"),
    [
        (("no-such-command",), "/", 127, "command-not-found"),
        (("/no/such/command",), "/", 127, "command-not-found"),
        (("true",), "/no/such/folder", 126, "no-such-folder"),
        (("true",), "/etc/passwd", 126, "no-such-folder"),
        (("/etc/passwd",), "/", 126, "not-permitted"),
        (("/etc",), "/", 126, "not-permitted"),
    ],
)
def test_what_cannot_be_started_has_ended_with_a_reason(
    launcher: Launcher, argv: tuple[str, ...], cwd: str, code: int, reason: str
) -> None:
    done = launcher.start(Launch("j", 0, argv, cwd=Path(cwd)))
    assert (done.state, done.exit_code, done.reason) == (JobState.ENDED, code, reason)
    assert done.detail


def test_a_file_that_is_no_program_cannot_be_executed(launcher: Launcher, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\0\1\2")
    program.chmod(0o755)
    done = launcher.start(Launch("j", 0, (str(program),)))
    assert (done.exit_code, done.reason) == (126, "cannot-execute")


def test_an_unknown_user_is_a_reason(launcher: Launcher) -> None:
    done = launcher.start(Launch("j", 0, ("true",), user="no-such-user"))
    assert (done.exit_code, done.reason) == (126, "no-such-user")


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_root_runs_a_job_as_another_user(launcher: Launcher) -> None:
    done = run(launcher, "/bin/sh", "-c", "id -un; echo $USER", user="nobody")
    assert done.has_succeeded, done
    assert done.stdout.read_text() == "nobody\nnobody\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may")
def test_others_may_not_run_a_job_as_root(launcher: Launcher) -> None:
    done = launcher.start(Launch("j", 0, ("true",), user="root"))
    assert (done.exit_code, done.reason) == (126, "not-permitted")


def test_the_environment_is_the_users_with_ours_on_top(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path / "jobs", inherited={"PATH": os.environ["PATH"], "CUDA_MPS_PIPE_DIRECTORY": "/old"})
    launch = Launch(
        "j",
        3,
        python("import json, os; print(json.dumps(dict(os.environ)))"),
        gpus=("GPU-1",),
        env={"A": "b", "CUDA_VISIBLE_DEVICES": "7", "LD_PRELOAD": "", "FAIRLEAD_JOB_ID": "other"},
        mps_env={"CUDA_MPS_CLIENT_PRIORITY": "1"},
        extra_env={"FAIRLEAD_PAGE": "/dev/shm/page"},
    )
    launcher.start(launch)
    seen = json.loads(launcher.wait("j", 3, 30.0).stdout.read_text())
    assert len(seen.pop(TOKEN)) == 16
    seen.pop("LC_CTYPE", None)  # Python sets it by itself
    assert seen == {
        "PATH": os.environ["PATH"],
        "A": "b",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "FAIRLEAD_PAGE": "/dev/shm/page",
        "FAIRLEAD_JOB_ID": "j",
        "FAIRLEAD_ATTEMPT": "3",
        "FAIRLEAD_GPUS": "GPU-1",
        "LD_PRELOAD": "",
    }


def test_our_preload_goes_before_the_users_and_fake_gpus_are_hidden_from_cuda() -> None:
    launch = Launch(
        "j", 0, ("x",), gpus=("FAKE-GPU-0001",), env={"LD_PRELOAD": "/a.so"}, extra_env={"LD_PRELOAD": "/b.so"}
    )
    env = launch.environment({})
    assert (env["LD_PRELOAD"], env["CUDA_VISIBLE_DEVICES"], env["FAIRLEAD_GPUS"]) == (
        "/b.so:/a.so",
        "",
        "FAKE-GPU-0001",
    )


def test_secrets_of_the_agent_do_not_reach_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "secret")
    launcher = Launcher(tmp_path / "jobs")
    assert "secret" not in run(launcher, "env").stdout.read_text()


def test_mps_over_several_gpus_is_refused() -> None:
    with pytest.raises(InputError, match="one daemon"):
        Launch("j", 0, ("x",), gpus=("a", "b"), mps_env={"CUDA_MPS_PIPE_DIRECTORY": "/p"})


def test_bad_launches_are_refused() -> None:
    for bad in ({"argv": ()}, {"argv": ("",)}, {"argv": ("a\0b",)}, {"argv": ("x",), "env": {"A=B": "c"}}):
        with pytest.raises(InputError):
            Launch("j", 0, **bad)  # type: ignore[arg-type]


def test_starting_twice_runs_once(launcher: Launcher) -> None:
    launch = Launch("j", 0, ("sh", "-c", "echo ran; sleep 0.2"))
    first, second = launcher.start(launch), launcher.start(launch)
    assert (first.state, second.state, first.pid) == (JobState.RUNNING, JobState.RUNNING, second.pid)
    assert launcher.wait("j", 0, 30.0).has_succeeded
    assert launcher.start(launch).has_succeeded
    assert launcher.start(Launch("j", 0, ("false",))).has_succeeded, "what was asked for first counts"
    assert first.stdout.read_text() == "ran\n"


def test_many_who_start_the_same_at_once_run_it_once(launcher: Launcher) -> None:
    launch = Launch("j", 0, ("sh", "-c", "echo ran; sleep 0.3"))
    threads = [threading.Thread(target=launcher.start, args=(launch,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = launcher.wait("j", 0, 30.0)
    assert done.has_succeeded
    assert done.stdout.read_text() == "ran\n"


def test_a_second_attempt_is_another_run(launcher: Launcher) -> None:
    for attempt in (0, 1):
        launcher.start(Launch("j", attempt, ("echo", str(attempt))))
    assert [launcher.wait("j", attempt, 30.0).stdout.read_text() for attempt in (0, 1)] == ["0\n", "1\n"]


def test_any_job_name_will_do(launcher: Launcher) -> None:
    names = ["..", "a/b", "naïve", "x@1", "per%cent", "."]
    for name in names:
        assert run(launcher, "true", job=name).has_succeeded
    assert sorted(status.job_id for status in launcher.jobs()) == sorted(names)
    with pytest.raises(InputError, match="characters"):
        launcher.start(Launch("x" * 300, 0, ("true",)))


def test_fifty_jobs_at_once(launcher: Launcher) -> None:
    program = "import sys, time; time.sleep(0.5); print('x' * 100_000); sys.exit(int(sys.argv[1]))"
    for i in range(50):
        launcher.start(Launch(f"j{i}", 0, (*python(program), str(i))))
    for i in range(50):
        done = launcher.wait(f"j{i}", 0, 60.0)
        assert (done.state, done.exit_code) == (JobState.ENDED, i)
        assert done.stdout.stat().st_size == 100_001


def test_a_polite_job_stops_at_sigterm_with_its_own_code(launcher: Launcher) -> None:
    program = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(3)))
print("up", flush=True)
time.sleep(60)
"""
    status = launcher.start(Launch("j", 0, python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    done = launcher.stop("j", 0, grace_s=20.0)
    assert (done.state, done.exit_code, done.stop_requested) == (JobState.ENDED, 3, True)
    assert done.stdout.read_text() == "up\nsaved\n"


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(launcher: Launcher) -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    status = launcher.start(Launch("j", 0, python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    began_s = time.monotonic()
    done = launcher.stop("j", 0, grace_s=0.5)
    assert 0.5 <= time.monotonic() - began_s < 10.0
    assert (done.exit_code, done.signal) == (137, 9)


def test_children_that_left_the_group_end_with_the_job(launcher: Launcher) -> None:
    program = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.2)
"""
    done = run(launcher, *python(program))
    assert done.has_succeeded
    assert process(int(done.stdout.read_text())) is None


def test_stopping_what_has_ended_changes_nothing(launcher: Launcher) -> None:
    done = run(launcher, "true")
    assert not launcher.signal("j", 0, signal.SIGTERM)
    again = launcher.stop("j", 0)
    assert again.has_succeeded
    assert again.ended_at_s == done.ended_at_s


def test_a_recycled_pid_is_never_signalled(launcher: Launcher) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        done = run(launcher, "true")
        record = json.loads((done.folder / "running.json").read_text())
        mine = process(bystander.pid)
        assert mine is not None
        # The job's number now belongs to somebody else, who started at another moment.
        record |= {"pid": bystander.pid, "start_ticks": mine.start_ticks - 1}
        record |= {"supervisor_pid": bystander.pid, "supervisor_start_ticks": mine.start_ticks - 1}
        (done.folder / "running.json").write_text(json.dumps(record))
        (done.folder / "exit.json").unlink()
        until_s = time.monotonic() + 10.0  # its supervisor may hold the lock a moment longer
        while launcher.status("j", 0).state is JobState.RUNNING and time.monotonic() < until_s:
            time.sleep(0.01)
        assert launcher.status("j", 0).state is JobState.LOST
        assert not launcher.signal("j", 0, signal.SIGKILL)
        assert launcher.processes("j", 0) == ()
        launcher.stop("j", 0, grace_s=0.1)
        assert not send(bystander.pid, mine.start_ticks - 1, signal.SIGKILL)
        assert bystander.poll() is None
        bystander.kill()


def test_after_a_reboot_pids_mean_nothing(launcher: Launcher) -> None:
    status = launcher.start(Launch("j", 0, ("sleep", "60")))
    path = status.folder / "running.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "boot_id": "another"}))
    assert not launcher.signal("j", 0, signal.SIGKILL)
    assert launcher.processes("j", 0) == ()
    path.write_text(kept)
    assert launcher.stop("j", 0).signal == signal.SIGTERM


@pytest.mark.parametrize("ends_by_itself", [False, True])
def test_a_job_whose_supervisor_was_killed_is_lost_found_and_stopped(launcher: Launcher, ends_by_itself: bool) -> None:
    program = "import os, time; os.fork(); print('up', flush=True); time.sleep(60)"
    if ends_by_itself:
        program = "print('up', flush=True); import time; time.sleep(0.3)"
    status = launcher.start(Launch("j", 0, python(program)))
    wait_until(lambda: status.stdout.read_text().count("up") == 2 - ends_by_itself)
    assert send(*supervisor(status), signal.SIGKILL)
    wait_until(lambda: launcher.status("j", 0).state is JobState.LOST)
    if ends_by_itself:
        wait_until(lambda: not launcher.processes("j", 0))
    else:
        assert len(launcher.processes("j", 0)) == 2
    done = launcher.stop("j", 0, grace_s=5.0)
    assert (done.state, done.exit_code, done.reason) == (JobState.LOST, None, "supervisor-lost")
    assert not done.has_succeeded
    assert launcher.processes("j", 0) == ()
    assert launcher.start(Launch("j", 0, ("true",))).state is JobState.LOST, "it ran once, it does not run again"


def test_orphans_of_a_lost_job_are_found_though_they_left_its_session(launcher: Launcher) -> None:
    program = "import os, time; os.fork() or (os.setsid(), time.sleep(60)); print('up', flush=True); time.sleep(60)"
    status = launcher.start(Launch("j", 0, python(program)))
    wait_until(lambda: "up" in status.stdout.read_text())
    wait_until(lambda: len({one.session for one in launcher.processes("j", 0)}) == 2)
    send(*supervisor(status), signal.SIGKILL)
    assert status.pid is not None
    os.kill(status.pid, signal.SIGKILL)
    wait_until(lambda: len(launcher.processes("j", 0)) == 1)
    launcher.stop("j", 0, grace_s=1.0)
    assert launcher.processes("j", 0) == ()


def test_leftovers_of_a_half_swept_job_are_stopped_at_adoption(launcher: Launcher) -> None:
    status = launcher.start(Launch("j", 0, ("sleep", "60")))
    send(*supervisor(status), signal.SIGKILL)
    wait_until(lambda: launcher.status("j", 0).state is JobState.LOST)
    # As a supervisor leaves it that is killed between the exit code and the sweep.
    (status.folder / "exit.json").write_text('{"exit_code": 0, "reason": "exited", "is_swept": false}')
    (adopted,) = Launcher(launcher.folder).adopt()
    assert adopted.state is JobState.ENDED
    assert launcher.processes("j", 0) == ()


def test_what_was_accepted_and_never_started_can_be_started(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Launch("j", 0, ("echo", "ran"))
    with monkeypatch.context() as killed:  # an agent that dies between the two steps
        killed.setattr(Launcher, "_supervise", lambda *_: None)
        with pytest.raises(RunError):
            launcher.start(launch)
    (adopted,) = Launcher(launcher.folder).adopt()
    assert adopted.state is JobState.PREPARED
    launcher.start(launch)
    assert launcher.wait("j", 0, 30.0).stdout.read_text() == "ran\n"


_AGENT = """
import sys
from pathlib import Path
from fairlead.node.launch import Launch
from fairlead.node.launcher import Launcher
launcher = Launcher(Path(sys.argv[1]))
job = "import sys, time; [(print(i, flush=True), time.sleep(0.01)) for i in range(40)]; sys.exit(int(sys.argv[1]))"
for i in range(int(sys.argv[2])):
    launcher.start(Launch(f"j{i}", 0, (sys.executable, "-I", "-S", "-c", job, str(i))))
print("all started", flush=True)
import time
time.sleep(60)
"""


def test_nothing_is_lost_or_run_twice_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    jobs, folder = 12, tmp_path / "jobs"
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    chance = random.Random(7)
    for kill in range(8):  # each agent starts all jobs, from wherever the one before it was killed
        agent = subprocess.Popen([PYTHON, "-c", _AGENT, str(folder), str(jobs)], env=env, stdout=subprocess.PIPE)
        if kill < 7:
            time.sleep(0.1 + 0.3 * chance.random())
        else:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"all started\n"
        agent.kill()
        agent.communicate()
    launcher = Launcher(folder)
    assert len(launcher.adopt()) == jobs
    for i in range(jobs):
        done = launcher.wait(f"j{i}", 0, 30.0)
        assert (done.state, done.exit_code) == (JobState.ENDED, i), done
        assert done.stdout.read_text().split() == [str(n) for n in range(40)]


def test_a_machine_that_can_start_nothing_says_so(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("j", 0, ("echo", "ran"))
    with monkeypatch.context() as broken:
        broken.setattr("fairlead.node.launcher._SUPERVISOR", "raise SystemExit('broken')")
        with pytest.raises(RunError, match=r"does not come up"):
            launcher.start(launch)
        assert "broken" in (launcher.folder / "j@0" / "supervisor.log").read_text()
    launcher.start(launch)
    assert launcher.wait("j", 0, 30.0).stdout.read_text() == "ran\n"


def test_a_supervisor_killed_at_any_moment_of_the_start_never_runs_a_job_twice(launcher: Launcher) -> None:
    chance = random.Random(11)
    outcomes = []
    for i in range(25):
        job, folder = f"j{i}", launcher.folder / f"j{i}@0"
        starting = threading.Thread(target=launcher.start, args=(Launch(job, 0, ("sh", "-c", "echo ran; sleep 0.05")),))
        starting.start()
        time.sleep(0.08 * chance.random())
        for one in processes():
            if str(folder) in command_line(one.pid):
                send(one.pid, one.start_ticks, signal.SIGKILL)
        starting.join()
        launcher.start(Launch(job, 0, ("sh", "-c", "echo ran")))
        done = launcher.wait(job, 0, 30.0)
        log = done.stdout.read_text() if done.stdout.exists() else ""
        assert done.state in (JobState.ENDED, JobState.LOST)
        assert log in ("", "ran\n")
        assert not done.has_succeeded or log == "ran\n"
        outcomes.append(done.has_succeeded)
    assert any(outcomes)


def test_the_supervisor_is_no_child_of_the_agent_and_ignores_polite_signals(launcher: Launcher) -> None:
    status = launcher.start(Launch("j", 0, ("sleep", "60")))
    pid, ticks = supervisor(status)
    found = process(pid)
    assert found is not None
    assert found.parent != os.getpid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(pid, number)
    time.sleep(0.1)
    assert is_running(pid, ticks)
    assert launcher.status("j", 0).state is JobState.RUNNING
    rss_kib = int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
    assert rss_kib < 20_000
    launcher.stop("j", 0)


def test_a_job_starts_with_signals_as_usual(launcher: Launcher) -> None:
    done = run(launcher, "grep", "SigIgn", "/proc/self/status")
    # 32 and 33 are the C library's own: nobody can set them, and whoever started us may have them ignored.
    assert int(done.stdout.read_text().split()[1], 16) & ~(0b11 << 31) == 0


def test_limits_are_written_where_there_is_a_cgroup_and_noted_where_not(launcher: Launcher, tmp_path: Path) -> None:
    limits = Limits(memory_mib=64, cpus=1.5)
    assert "no limits" in run(launcher, "true", limits=limits).notes[0]
    parent = tmp_path / "cgroup"
    parent.mkdir()
    inside = Launcher(tmp_path / "others", cgroup_parent=parent)
    done = run(inside, "sleep", "0.1", limits=limits)
    assert (parent / "j@0" / "memory.max").read_text() == str(64 * 1024 * 1024)
    assert (parent / "j@0" / "cpu.max").read_text() == "150000 100000"
    assert (parent / "j@0" / "cgroup.procs").read_text() == str(done.pid)
    gone = Launcher(tmp_path / "third", cgroup_parent=tmp_path / "nowhere")
    done = run(gone, "true", limits=limits)
    assert done.has_succeeded
    assert "No such file" in done.notes[0]


def test_only_what_is_over_can_be_removed(launcher: Launcher) -> None:
    launcher.start(Launch("j", 0, ("sleep", "60")))
    with pytest.raises(RunError, match="running"):
        launcher.remove("j", 0)
    launcher.stop("j", 0)
    launcher.remove("j", 0)
    assert launcher.jobs() == ()
    with pytest.raises(InputError, match="never started"):
        launcher.status("j", 0)

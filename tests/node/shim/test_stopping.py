"""Leaving: signals, handlers and exits never take the process away with work in flight."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from fairlead.node.guard.control_page import ControlPage, GpuOrder, UsagePage
from tests.node.shim.conftest import Rig, eventually
from tests.patience import PATIENCE_S

SIGNALS = [signal.SIGTERM, signal.SIGINT]
BUSY = """
start()
f = function(5000)
print("ready", flush=True)
while True:
    launch(f)
"""


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"


def drained(rig: Rig, ended_ns: int) -> bool:
    """Nothing was in flight when the process was seen to have ended, nor when its context was destroyed."""
    stats = rig.stats()
    return stats["busy_until_ns"] <= ended_ns and stats["synchronised"] > 0 and stats["destroyed_busy"] == 0


def end_of(process: subprocess.Popen[str], within_s: float = PATIENCE_S) -> int:
    process.wait(timeout=within_s)
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def dies_of_sigterm(rig: Rig, program: str) -> None:
    """A program that launches for ever is told to end in the middle of it: it drains first."""
    process = rig.start(program)
    ready(process)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert drained(rig, end_of(process))
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("number", SIGNALS)
def test_by_default_it_drains_releases_and_dies_of_the_signal(rig: Rig, number: signal.Signals) -> None:
    process = rig.start("busy", 30, "k5000us")
    assert eventually(lambda: rig.stats()["launches"] > 20)
    process.send_signal(number)
    ended_ns = end_of(process)
    assert process.returncode == -number
    assert drained(rig, ended_ns)
    assert rig.stats()["resets"] == 1
    assert "draining" in rig.log()


def test_a_frozen_process_dies_of_the_signal_too(rig: Rig) -> None:
    with ControlPage.create(rig.folder / "page") as page:
        process = rig.start("busy", 30, "k5000us", FAIRLEAD_SHIM_PAGE=page.path)
        assert eventually(lambda: rig.stats()["launches"] > 20)
        page.write(GpuOrder(frozen=True))
        time.sleep(0.2)
        launches = rig.stats()["launches"]
        process.send_signal(signal.SIGTERM)
        assert drained(rig, end_of(process))
        assert process.returncode == -signal.SIGTERM
        assert rig.stats()["launches"] == launches


def test_pythons_sigterm_default_in_the_middle_of_launches(rig: Rig) -> None:
    dies_of_sigterm(rig, BUSY)


@pytest.mark.parametrize("frozen", [False, True])
def test_pythons_keyboard_interrupt_arrives_even_while_frozen(rig: Rig, frozen: bool) -> None:
    with ControlPage.create(rig.folder / "page") as page:
        process = rig.start(BUSY, FAIRLEAD_SHIM_PAGE=page.path)
        ready(process)
        time.sleep(0.2)
        page.write(GpuOrder(frozen=frozen))
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        ended_ns = end_of(process)
        _, err = process.communicate()
        assert "KeyboardInterrupt" in err
        assert process.returncode == -signal.SIGINT  # Python raises it again after its clean-up
        assert drained(rig, ended_ns)


CHECKPOINT = """
import sys
def save(number, frame):
    for _ in range(20):
        launch(function(1000))
    cuda.cuCtxSynchronize()
    print("saved", flush=True)
    sys.exit(5)
{before}
start()
{after}
f = function(5000)
print("ready", flush=True)
while True:
    launch(f)
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_programs_own_handler_checkpoints_on_the_gpu_and_exits(rig: Rig, when: str, frozen: bool) -> None:
    install = "signal.signal(signal.SIGTERM, save)"
    program = CHECKPOINT.format(before=install if when == "before" else "", after=install if when == "after" else "")
    usage = UsagePage(rig.folder / "usage")
    with ControlPage.create(rig.folder / "page") as page:
        process = rig.start(program, FAIRLEAD_SHIM_PAGE=page.path, FAIRLEAD_SHIM_USAGE=usage.path)
        ready(process)
        time.sleep(0.2)
        page.write(GpuOrder(frozen=frozen))
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        ended_ns = end_of(process)
        out, _ = process.communicate()
        assert "saved" in out
        assert process.returncode == 5
        assert drained(rig, ended_ns)
        assert rig.stats()["resets"] == 1  # released, since a signal asked for the exit


def test_a_handler_that_does_not_end_the_program_gets_its_grace_and_no_more(rig: Rig) -> None:
    program = """
    start()
    signal.signal(signal.SIGTERM, lambda *_: None)
    f = function(1000)
    print("ready", flush=True)
    while True:
        launch(f)
    """
    with ControlPage.create(rig.folder / "page") as page:
        process = rig.start(program, FAIRLEAD_SHIM_PAGE=page.path, FAIRLEAD_SHIM_GRACE_S=1.0)
        ready(process)
        page.write(GpuOrder(frozen=True))
        time.sleep(0.2)
        before = rig.stats()["launches"]
        process.send_signal(signal.SIGTERM)
        assert eventually(lambda: "did not end it in time" in rig.log())
        during = rig.stats()["launches"]
        assert 0 < during - before < 600  # a second at half rate, of which a busy machine may take something
        time.sleep(0.3)
        assert rig.stats()["launches"] == during
        assert process.poll() is None


def test_what_the_program_asks_about_its_handlers_is_what_it_set(rig: Rig) -> None:
    program = """
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    called = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int)
    mine, later = kind(lambda n: called.append("mine")), kind(lambda n: called.append("later"))
    at = lambda f: ctypes.cast(f, ctypes.c_void_p).value
    libc.signal(15, at(mine))
    start()
    assert libc.signal(15, at(later)) == at(mine)   # found again though the shim stands in front
    os.kill(os.getpid(), 15)
    assert libc.signal(15, None) == at(later)
    libc.signal(15, 1)
    os.kill(os.getpid(), 15)                        # ignored
    assert libc.signal(15, at(mine)) == 1
    os.kill(os.getpid(), 15)
    print(called)
    """
    assert rig.run(program) == "['later', 'mine']"


def test_default_restored_by_a_handler_that_raises_again_still_drains(rig: Rig) -> None:
    program = """
    start()
    def again(number, frame):
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    signal.signal(signal.SIGTERM, again)
    f = function(5000)
    print("ready", flush=True)
    while True:
        launch(f)
    """
    dies_of_sigterm(rig, program)


def test_a_handler_installed_past_the_c_library_is_taken_over(rig: Rig) -> None:
    # rt_sigaction as a system call: no library call to interpose on. The default, so that only ours could drain.
    program = """
    start()
    action = (ctypes.c_ulonglong * 4)(0, 0, 0, 0)
    assert ctypes.CDLL(None).syscall(13, 15, action, None, 8) == 0
    f = function(5000)
    while not action[0]:  # until somebody else's handler is there
        time.sleep(0.01)
        assert ctypes.CDLL(None).syscall(13, 15, None, action, 8) == 0
    print("ready", flush=True)
    while True:
        launch(f)
    """
    dies_of_sigterm(rig, program)


@pytest.mark.parametrize("how", ["exit", "_exit"])
def test_an_exit_with_work_in_flight_waits_for_it(rig: Rig, how: str) -> None:
    process = rig.start("leave", how)
    ended_ns = end_of(process)
    assert process.returncode == 7
    assert drained(rig, ended_ns)
    assert rig.stats()["resets"] == 0  # nobody asked it to leave: its context is its own affair


def test_work_that_never_ends_delays_death_by_the_limit_only(rig: Rig) -> None:
    process = rig.start("busy", 60, "k60000000us", FAIRLEAD_SHIM_DRAIN_S=0.5)
    assert eventually(lambda: rig.stats()["launches"] > 0)
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=PATIENCE_S)
    assert time.monotonic() - began > 0.4
    assert process.returncode == -signal.SIGTERM
    assert "still in flight" in rig.log()


def test_the_agent_sees_a_process_closing(rig: Rig) -> None:
    usage = UsagePage(rig.folder / "usage")
    process = rig.start("busy", 60, "k60000000us", FAIRLEAD_SHIM_DRAIN_S=1, FAIRLEAD_SHIM_USAGE=usage.path)
    assert eventually(lambda: rig.stats()["launches"] > 0)
    process.send_signal(signal.SIGTERM)
    assert eventually(lambda: [p.state for p in usage.processes()] == ["closing"])
    process.wait(timeout=PATIENCE_S)


def test_ignored_stays_ignored(rig: Rig) -> None:
    program = """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start()
    os.kill(os.getpid(), signal.SIGINT)
    launch(function(10))
    print("alive")
    """
    assert rig.run(program) == "alive"

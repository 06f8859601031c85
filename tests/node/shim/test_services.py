"""The gate follows the service: an offline job launches while the service beside it rests, and waits while it works.

Programs live by a virtual clock, so that what they get of a second does not depend on the machine. The stub has one
engine for each process, so it is the launches that are compared, not what runs beside what.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.node.guard.busy_page import BusyLayout, BusyPage, bearable_inflight_s
from fairlead.node.guard.control_page import ControlPage, GpuOrder
from tests.node.shim.conftest import UUID, Rig, eventually
from tests.node.shim.virtual import Clock

BUSY_PROGRAM = """
start({device}), join_clock()
f = function({us})
while True:
    launch(f)
    {wait}
    time.sleep({rest_s})
"""


class Pair:
    """A service that is observed, and an offline job that obeys it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.page = ControlPage.create(rig.folder / "page", inflight_s=0.001, stale_after_s=600.0)
        self.page.write(GpuOrder())
        self.busy = BusyPage.create(rig.folder / "service.busy", [UUID])

    def obey(self, *names: str) -> None:
        self.page.obey([self.rig.folder / name for name in names or ("service.busy",)])

    def service(self, us: float, rest_s: float, wait: str = "cuda.cuCtxSynchronize()", name: str = "service.busy",
                device: int = 0, **more: object) -> object:  # fmt: skip
        program = BUSY_PROGRAM.format(us=us, rest_s=rest_s, wait=wait, device=device)
        return self.rig.start(
            program, FAIRLEAD_SHIM_BUSY=self.rig.folder / name, STUB_STATS=self.rig.folder / f"{name}.stats", **more
        )

    def offline(self, kernel: str = "k100us") -> None:
        self.rig.start("busy", 600, kernel, FAIRLEAD_SHIM_PAGE=self.page.path)

    def share(self, clock: Clock, for_s: float) -> float:
        """The part of the time that the offline job's kernels ran."""
        clock.rest()
        before = self.rig.stats()["gpu_ns"]
        passed_s = clock.run(for_s)
        return (self.rig.stats()["gpu_ns"] - before) / 1e9 / passed_s


@pytest.fixture
def pair(rig: Rig) -> Iterator[Pair]:
    made = Pair(rig)
    yield made
    made.page.close()


WAITS = {
    "context": "cuda.cuCtxSynchronize()",
    "stream": "cuda.cuStreamSynchronize(None)",
    "query": "while cuda.cuStreamQuery(None): time.sleep(0.0002)",
    "copy": "cuda.cuMemcpyDtoH_v2(0, 0, 100)",
    "event": (
        "e = ctypes.c_void_p(); cuda.cuEventCreate(ctypes.byref(e), 2); cuda.cuEventRecord(e, None); "
        "cuda.cuEventSynchronize(e); cuda.cuEventDestroy_v2(e)"
    ),
}


@pytest.mark.parametrize("wait", WAITS)
def test_the_job_gets_what_the_service_leaves(rig: Rig, pair: Pair, wait: str) -> None:
    clock = rig.clock(parties=2, limit_s=0.5)
    pair.obey()
    pair.service(10_000, 0.030, WAITS[wait])
    pair.offline()
    share = pair.share(clock, 1.0)
    assert 0.66 < share < 0.82, share  # the service works 10 ms of 40; 1 ms may be in flight when it begins
    (work,) = pair.busy.work()
    assert work.busy_s / work.stretches == pytest.approx(0.010, rel=0.05)


def test_a_job_beside_nobody_or_an_idle_service_loses_nothing(rig: Rig, pair: Pair) -> None:
    clock = rig.clock(parties=2, limit_s=0.3)
    pair.obey()
    pair.service(10, 0.1)
    pair.offline()
    assert pair.share(clock, 1.0) > 0.9


def test_a_service_that_never_rests_leaves_the_floor(rig: Rig, pair: Pair) -> None:
    clock = rig.clock(parties=2, limit_s=0.5)
    pair.obey()
    pair.service(50_000, 0.000001)
    pair.offline("k1000us")
    share = pair.share(clock, 2.0)
    assert 0.02 < share < 0.07, share


def test_pauses_inside_a_request_are_not_used(rig: Rig, pair: Pair) -> None:
    clock = rig.clock(parties=2, limit_s=5.0)
    pair.obey()
    program = """
    start(), join_clock()
    f = function(1000)
    while True:
        for _ in range(8):
            launch(f), cuda.cuCtxSynchronize()
            time.sleep(0.0001)
        time.sleep(0.031)
    """
    rig.start(program, FAIRLEAD_SHIM_BUSY=pair.busy.path, STUB_STATS=rig.folder / "other")
    pair.offline()
    clock.rest()
    (work,) = pair.busy.work()
    assert 0.0001 < work.linger_s < 0.001
    assert work.requests < work.stretches
    share = pair.share(clock, 1.0)
    assert 0.66 < share < 0.85, share  # 31 of 40 ms, and 1 in flight; with the pauses it would be nearly all


def test_a_mark_does_not_outlive_a_service_that_was_killed(rig: Rig, pair: Pair) -> None:
    rig.clock(parties=1)
    pair.obey()
    program = """
    start()
    launch(function(3_600_000_000))
    cuda.cuCtxSynchronize()
    """
    service = rig.start(program, FAIRLEAD_SHIM_BUSY=pair.busy.path, STUB_STATS=rig.folder / "other", STUB_CLOCK="")
    assert eventually(lambda: any(work.is_busy for work in pair.busy.work()))
    service.send_signal(signal.SIGKILL)
    service.wait()
    assert pair.busy.work() == []
    said = rig.run("busy", 1.0, "k100us", FAIRLEAD_SHIM_PAGE=pair.page.path)
    assert rig.stats()["gpu_ns"] / 1e9 > 0.9 * float(said)


def test_two_services_are_both_obeyed_and_other_gpus_are_free(rig: Rig, pair: Pair) -> None:
    clock = rig.clock(parties=4, limit_s=0.3)
    BusyPage.create(rig.folder / "second.busy", [UUID])
    others = [UUID[:-2] + f"{number:02x}" for number in range(1, 16)]
    BusyPage.create(rig.folder / "far.busy", others)
    pair.obey("service.busy", "second.busy", "far.busy")
    pair.service(10_000, 0.030)
    pair.service(10_000, 0.030, name="second.busy")
    pair.service(100_000, 0.000001, name="far.busy", device=15, STUB_GPUS=16)
    pair.offline()
    share = pair.share(clock, 1.0)
    assert 0.45 < share < 0.78, share  # between both at once and one after the other; the far one does not count


def test_without_its_agent_a_job_still_waits(rig: Rig, pair: Pair) -> None:
    """A stale page means the floor rate, and the service is obeyed on top of it."""
    clock = rig.clock(parties=2, limit_s=2.0)
    pair.page._layout.stale_after_ms = 100
    pair.obey()
    pair.service(10_000, 0.030)
    pair.offline()
    share = pair.share(clock, 5.0)
    assert 0.02 < share < 0.12, share


def test_a_service_is_not_held_back_nor_taken_over(rig: Rig, pair: Pair) -> None:
    program = """
    start()
    before = signal.getsignal(signal.SIGTERM)
    for _ in range(100):
        launch(function(0))
    assert alloc(100)[0] == 0
    os.kill(os.getpid(), signal.SIGTERM)
    """
    service = rig.start(program, FAIRLEAD_SHIM_BUSY=pair.busy.path)
    assert service.wait() == -signal.SIGTERM
    assert "drain" not in rig.log()


def test_what_is_captured_is_no_work(rig: Rig, pair: Pair) -> None:
    program = """
    start()
    s, graph = stream(), ctypes.c_void_p()
    cuda.cuStreamBeginCapture_v2(s, 0)
    for _ in range(50):
        launch(function(10), s)
    cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    print(flush=True)
    input()
    """
    service = rig.start(program, FAIRLEAD_SHIM_BUSY=pair.busy.path)
    assert service.stdout is not None
    service.stdout.readline()
    assert [(work.is_busy, work.stretches) for work in pair.busy.work()] == [(False, 0)]
    assert (rig.stats()["captured"], rig.stats()["spoiled"]) == (50, 0)


def test_an_observed_launch_costs_less_than_a_microsecond(rig: Rig, pair: Pair) -> None:
    with_it = float(rig.run("cost", 300_000, FAIRLEAD_SHIM_BUSY=pair.busy.path))
    without = float(rig.run("cost", 300_000, preload=False))
    assert with_it - without < 1000  # in CPU time; bench/shim.py measures


def test_names_outside_the_folder_are_not_obeyed(tmp_path: Path) -> None:
    with ControlPage.create(tmp_path / "page") as page:
        page.obey([tmp_path / "a.busy", tmp_path / "elsewhere" / "b.busy"], inflight_s=0.002)
        assert page._layout.services[0].value == b"a.busy"
        assert page._layout.services[1].value == b""
        before = page._layout.services_seq
        page.obey([tmp_path / "a.busy"], inflight_s=0.002)
        assert page._layout.services_seq == before == 2
        assert page._layout.gpus[0].inflight_us == 2000


@pytest.mark.parametrize(
    ("requests", "busy_s", "bound_s"), [(0, 0.0, 0.001), (10, 0.3, 0.001), (10, 0.02, 0.0004), (10, 0.0001, 0.0001)]
)
def test_the_bound_in_flight_follows_from_how_long_requests_are(
    tmp_path: Path, requests: int, busy_s: float, bound_s: float
) -> None:
    page = BusyPage.create(tmp_path / "a.busy")
    layout = BusyLayout.from_buffer_copy(page.path.read_bytes())
    layout.processes_used = 1
    layout.processes[0].owner.word = 1
    layout.processes[0].marks[0].requests, layout.processes[0].marks[0].busy_ns = requests, int(busy_s * 1e9)
    page.path.write_bytes(bytes(layout))
    assert ctypes.sizeof(layout) == page.path.stat().st_size
    absent = BusyPage(tmp_path / "none.busy")
    assert bearable_inflight_s([page, absent], 0.001) == pytest.approx(bound_s)

"""The launch gate: GPU time in proportion to the rate, freezes in bounded time, captures left alone, little cost.

Where time is the question, programs, shim and driver live by a virtual clock (`stub/clock.c`): what they get of a
second of it does not depend on what else the machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.node.guard.control_page import ControlPage, GpuOrder, UsagePage
from tests.node.shim.conftest import Rig, eventually
from tests.node.shim.virtual import Clock
from tests.patience import PATIENCE_S


class Agent:
    """Writes a control page; a minute of the clock passes in no test."""

    def __init__(self, path: Path, rate_frac: float = 1.0, **settings: float) -> None:
        self.page = ControlPage.create(path, **{"stale_after_s": 60.0, **settings})
        self.order(rate_frac=rate_frac)

    def order(self, **order: object) -> None:
        self.page.write(GpuOrder(**order))  # type: ignore[arg-type]


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    made: list[Agent] = []
    yield made
    for agent in made:
        agent.page.close()


@dataclass(frozen=True)
class Share:
    """GPU time over the time in which it was used."""

    gpu_s: float
    passed_s: float

    def keeps(self, rate_frac: float, rel: float = 0.10) -> bool:
        return abs(self.gpu_s - rate_frac * self.passed_s) <= rel * rate_frac * self.passed_s


def share_of(rig: Rig, page: Path, *words: object, stats: str = "stats", **more: object) -> Share:
    """What a job gets that always wants more."""
    said = rig.run(*words, FAIRLEAD_SHIM_PAGE=page, STUB_STATS=rig.folder / stats, **more)
    return Share(rig.stats(stats)["gpu_ns"] / 1e9, float(said))


def share_now(rig: Rig, clock: Clock, for_s: float) -> Share:
    """The same of one that runs, seen from outside."""
    clock.rest()
    before = rig.stats()["gpu_ns"]
    passed_s = clock.run(for_s)
    return Share((rig.stats()["gpu_ns"] - before) / 1e9, passed_s)


@pytest.mark.parametrize("kernels", [("k1000us",), ("k100us", "k3000us", "k700us"), ("k20us",)], ids="-".join)
def test_half_the_rate_gives_half_the_gpu_time(rig: Rig, agents: list[Agent], kernels: tuple[str, ...]) -> None:
    rig.clock()
    agents.append(Agent(rig.folder / "page", 0.5))
    share = share_of(rig, rig.folder / "page", "busy", 2.0, *kernels)
    assert share.keeps(0.5), share


def test_threads_with_streams_of_their_own_share_the_rate(rig: Rig, agents: list[Agent]) -> None:
    rig.clock(parties=4)
    agents.append(Agent(rig.folder / "page", 0.5))
    rig.run("threads", 2, "k300us", "k300us", "k900us", "k2000us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    share = Share(rig.stats()["gpu_ns"] / 1e9, 2.0)
    # The stub runs streams one after the other, so a timing holds the kernels of other streams that came between:
    # the job is charged for too much and gets less, never more.
    assert share.keeps(0.45, rel=0.22), share


def together(*jobs: Callable[[], Share]) -> list[Share]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [one.result() for one in [pool.submit(job) for job in jobs]]


def test_launches_are_charged_in_time_not_in_number(rig: Rig, agents: list[Agent]) -> None:
    rig.clock(parties=2)
    agents.append(Agent(rig.folder / "page", 0.3))
    page = rig.folder / "page"
    small, large = together(
        lambda: share_of(rig, page, "busy", 2.0, "k200us", stats="small"),
        lambda: share_of(rig, page, "busy", 2.0, "k8000us", stats="large"),
    )
    assert small.keeps(0.3), small
    assert large.keeps(0.3), large


def test_processes_of_one_job_share_one_rate(rig: Rig, agents: list[Agent]) -> None:
    rig.clock(parties=2)
    agents.append(Agent(rig.folder / "page", 0.4))
    page, usage = rig.folder / "page", rig.folder / "usage"
    one, other = together(
        lambda: share_of(rig, page, "busy", 2.0, "k500us", stats="a", FAIRLEAD_SHIM_USAGE=usage),
        lambda: share_of(rig, page, "busy", 2.0, "k500us", stats="b", FAIRLEAD_SHIM_USAGE=usage),
    )
    assert Share(one.gpu_s + other.gpu_s, max(one.passed_s, other.passed_s)).keeps(0.4), (one, other)


def test_every_way_to_submit_work_is_gated(rig: Rig, agents: list[Agent]) -> None:
    rig.clock()
    agents.append(Agent(rig.folder / "page", 0.5))
    program = """
    start(), join_clock()
    s, f = stream(), function(2000)
    graph = ctypes.c_void_p()
    cuda.cuStreamBeginCapture_v2(s, 0), launch(f, s), cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    class Config(ctypes.Structure):
        _fields_ = [("dims", ctypes.c_uint * 7), ("stream", ctypes.c_void_p), ("attrs", ctypes.c_void_p),
                    ("count", ctypes.c_uint)]
    class Part(ctypes.Structure):
        _fields_ = [("f", ctypes.c_void_p), ("dims", ctypes.c_uint * 7), ("stream", ctypes.c_void_p),
                    ("params", ctypes.c_void_p)]
    config = Config((ctypes.c_uint * 7)(1, 1, 1, 1, 1, 1, 0), s, None, 0)
    part = Part(f, (ctypes.c_uint * 7)(1, 1, 1, 1, 1, 1, 0), s, None)
    dims = (1, 1, 1, 1, 1, 1, 0)
    ways = {
        "kernel": lambda: cuda.cuLaunchKernel(f, *dims, s, None, None),
        "kernel_ptsz": lambda: cuda.cuLaunchKernel_ptsz(f, *dims, None, None, None),
        "ex": lambda: cuda.cuLaunchKernelEx(ctypes.byref(config), f, None, None),
        "ex_ptsz": lambda: cuda.cuLaunchKernelEx_ptsz(ctypes.byref(config), f, None, None),
        "cooperative": lambda: cuda.cuLaunchCooperativeKernel(f, *dims, s, None),
        "cooperative_ptsz": lambda: cuda.cuLaunchCooperativeKernel_ptsz(f, *dims, s, None),
        "multi": lambda: cuda.cuLaunchCooperativeKernelMultiDevice(ctypes.byref(part), 1, 0),
        "graph": lambda: cuda.cuGraphLaunch(graph, s),
        "graph_ptsz": lambda: cuda.cuGraphLaunch_ptsz(graph, None),
        "grid": lambda: cuda.cuLaunchGridAsync(f, 1, 1, s),
    }
    for name, way in ways.items():
        for _ in range(20):
            assert way() == 0
        cuda.cuCtxSynchronize()
        began = time.monotonic()
        for _ in range(100):
            assert way() == 0
        cuda.cuCtxSynchronize()
        print(name, time.monotonic() - began)
    """
    found = [line.split() for line in rig.run(program, FAIRLEAD_SHIM_PAGE=rig.folder / "page").splitlines()]
    assert len(found) == 10
    for name, passed in found:
        share = Share(0.2, float(passed))
        assert share.keeps(0.5, rel=0.12), (name, share)


def test_full_rate_loses_nothing(rig: Rig, agents: list[Agent]) -> None:
    rig.clock()
    agents.append(Agent(rig.folder / "page"))
    share = share_of(rig, rig.folder / "page", "busy", 1.0, "k500us")
    assert share.keeps(1.0, rel=0.07), share


def test_a_change_of_rate_takes_effect_while_the_job_runs(rig: Rig, agents: list[Agent]) -> None:
    clock = rig.clock(limit_s=0.3)
    agents.append(Agent(rig.folder / "page", 0.1))
    rig.start("busy", 60, "k500us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    for rate in (0.1, 0.8, 0.2):
        clock.rest()
        agents[0].order(rate_frac=rate)
        clock.run(0.1)
        share = share_now(rig, clock, 0.8)
        assert share.keeps(rate, rel=0.15), (rate, share)


@pytest.mark.parametrize("kernel", ["k100us", "k20000us"])
def test_a_freeze_takes_effect_in_bounded_time(rig: Rig, agents: list[Agent], kernel: str) -> None:
    clock = rig.clock(limit_s=0.4)
    agents.append(Agent(rig.folder / "page", inflight_s=0.05))
    rig.start("busy", 30, kernel, FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    clock.rest()
    assert rig.stats()["gpu_ns"] > 3e8
    agents[0].order(frozen=True)
    # One launch may be past the gate already; whoever is not waits for as long as it takes.
    told = rig.stats()["launches"]
    clock.run(0.5)
    stats = rig.stats()
    assert stats["launches"] - told <= 1
    # In flight at the last launch: the cap (50 ms), a quantum without a marker, one whose marker is not read, a kernel.
    longest_ms = float(kernel[1:-2]) / 1e3
    assert (stats["busy_until_ns"] - stats["last_launch_ns"]) / 1e6 < 50 + 2 * 50 / 8 + 2 * longest_ms
    agents[0].order(frozen=False)
    clock.run(0.5)
    assert rig.stats()["launches"] > stats["launches"]


def test_captures_are_neither_held_back_nor_spoiled_nor_charged(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page"))
    agents[0].order(frozen=True)
    program = """
    start()
    s, graph = stream(), ctypes.c_void_p()
    kernels = [function(100000, str(i)) for i in range(50)]  # five seconds, were they run
    cuda.cuStreamBeginCapture_v2(s, 0)
    for f in kernels * 20:
        assert launch(f, s) == 0
    cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    """
    rig.run(program, FAIRLEAD_SHIM_PAGE=rig.folder / "page")  # ends at all: nobody lifts the freeze
    stats = rig.stats()
    assert (stats["captured"], stats["spoiled"], stats["events_made"], stats["gpu_ns"]) == (1000, 0, 0, 0)


def test_a_capture_in_one_thread_is_not_spoiled_by_launches_in_another(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.5))
    program = """
    import threading
    context = start()
    s, other, graph = stream(), stream(), ctypes.c_void_p()
    def launches():
        cuda.cuCtxSetCurrent(context)
        f = function(1000)
        for _ in range(200):
            launch(f, other)
    cuda.cuStreamBeginCapture_v2(s, 0)
    thread = threading.Thread(target=launches)
    thread.start()
    for _ in range(50):
        launch(function(10), s)
    thread.join()
    cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    """
    rig.run(program, FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    stats = rig.stats()
    assert stats["spoiled"] == 0
    assert stats["events_made"] > 10
    assert stats["events_alive"] <= 20  # the last few only: events are given back


def test_a_launch_at_full_rate_costs_next_to_nothing(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page"))
    usage = rig.folder / "usage"
    with_it = float(rig.run("cost", 300_000, FAIRLEAD_SHIM_PAGE=rig.folder / "page", FAIRLEAD_SHIM_USAGE=usage))
    without = float(rig.run("cost", 300_000, preload=False))
    # In CPU time, which a busy machine does not change; bench/shim.py measures.
    assert with_it - without < 300


def test_the_agent_sees_what_the_gate_did(rig: Rig, agents: list[Agent]) -> None:
    clock = rig.clock(limit_s=2.0)
    agents.append(Agent(rig.folder / "page", 0.3))
    usage = UsagePage.create(rig.folder / "usage")
    assert usage.processes() == []
    variables = {"FAIRLEAD_SHIM_PAGE": rig.folder / "page", "FAIRLEAD_SHIM_USAGE": usage.path}
    process = rig.start("busy", 600, "k1000us", **variables)
    clock.rest()
    assert eventually(lambda: [p.launches for p in usage.processes()] == [rig.stats()["launches"] + 1]), "one waits"
    (seen,) = usage.processes()
    assert seen.pid == process.pid
    assert seen.state == "running"
    assert seen.launches > 400
    assert seen.charged_s == pytest.approx(seen.launches / 1e3, rel=0.15)
    assert seen.charged_s == pytest.approx(0.3 * 2.0, rel=0.15)
    # A launch waits for the time that the rate takes from it.
    assert 0.75 * seen.charged_s * 0.7 / 0.3 < seen.gated_s < 2.0
    assert seen.samples > 10
    assert seen.cap_timeouts == 0
    process.kill()
    process.wait()
    assert eventually(lambda: usage.processes() == [])


def test_without_a_heartbeat_the_job_goes_on_at_the_floor_rate(rig: Rig) -> None:
    clock = rig.clock(limit_s=0.5)
    with ControlPage.create(rig.folder / "page", stale_after_s=0.3, stale_rate_frac=0.2) as page:
        page.write(GpuOrder(frozen=True))
        rig.start("busy", 60, "k500us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
        clock.rest()
        share = share_now(rig, clock, 1.0)
        assert share.keeps(0.2, rel=0.15), share


def test_full_speed_ends_too_when_the_agent_is_gone(rig: Rig) -> None:
    clock = rig.clock(limit_s=0.4)
    with ControlPage.create(rig.folder / "page", stale_after_s=0.5, stale_rate_frac=0.1):
        rig.start("busy", 60, "k500us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
        clock.rest()
        assert rig.stats()["gpu_ns"] > 3e8
        clock.run(1.0)
        share = share_now(rig, clock, 1.0)
        assert share.keeps(0.1, rel=0.2), share


def test_a_page_that_comes_late_or_is_replaced_is_taken_up(rig: Rig, agents: list[Agent]) -> None:
    path, clock = rig.folder / "page", rig.clock(limit_s=0.1)
    rig.start("busy", 600, "k500us", FAIRLEAD_SHIM_PAGE=path)
    share = share_now(rig, clock, 0.5)
    assert share.keeps(0.1, rel=0.2), share  # nobody watches yet: the floor
    agents.append(Agent(path, stale_after_s=3.0))
    clock.run(1.1)  # it looks for one every second
    assert share_now(rig, clock, 0.6).keeps(1.0, rel=0.2)
    agents.append(Agent(path, 0.4))  # another file under the same name
    clock.run(3.1)  # the old one is stale
    share = share_now(rig, clock, 0.6)
    assert share.keeps(0.4, rel=0.12), share


def test_a_page_for_other_gpus_says_nothing_about_this_one(rig: Rig) -> None:
    rig.clock()
    other = "GPU-00000000-0000-0000-0000-000000000001"
    with ControlPage.create(rig.folder / "page", [other]) as page:
        page.write(GpuOrder(rate_frac=1.0), other)
        share = share_of(rig, rig.folder / "page", "busy", 1.0, "k500us")
    assert share.keeps(0.1, rel=0.2), share


def test_kernels_that_wait_for_a_later_launch_do_not_hang_the_job(rig: Rig) -> None:
    # Two seconds in flight on one stream: the next launch is held for a second at most, then let through and counted.
    rig.clock()
    program = """
    start(), join_clock()
    a, long = stream(), function(2000000)
    for _ in range(2):
        launch(long, a)
    launch(function(10), stream())
    print("through", time.monotonic_ns())
    os.kill(os.getpid(), signal.SIGKILL)
    """
    process = rig.start(program)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert "through" in out
    assert rig.stats()["last_launch_ns"] < rig.stats()["busy_until_ns"] - 5e8, "long before the first two are done"


COPIES = {
    "cuMemcpyHtoDAsync_v2": "cuda.cuMemcpyHtoDAsync_v2(u64(0), host, size(20 * MIB), s)",
    "cuMemcpyDtoH_v2": "cuda.cuMemcpyDtoH_v2(host, u64(0), size(20 * MIB))",
    "cuMemcpyDtoDAsync_v2_ptsz": "cuda.cuMemcpyDtoDAsync_v2_ptsz(u64(0), u64(0), size(20 * MIB), None)",
    "cuMemsetD32Async": "cuda.cuMemsetD32Async(u64(0), 0, size(5 * MIB), s)",
    "cuMemcpy2DAsync_v2": "cuda.cuMemcpy2DAsync_v2((u64 * 16)(*[0] * 14, 20 * 1024, 1024), s)",
    "cuMemcpyBatchAsync": "cuda.cuMemcpyBatchAsync(None, None, (size * 2)(10 * MIB, 10 * MIB), size(2), None, None, "
    "size(0), None, s)",
}


@pytest.mark.parametrize("copy", COPIES)
def test_copies_and_fills_are_charged_as_launches_are(rig: Rig, agents: list[Agent], copy: str) -> None:
    rig.clock()
    agents.append(Agent(rig.folder / "page", 0.5))
    program = f"""
    start(), join_clock()
    s, u64, size, host = stream(), ctypes.c_ulonglong, ctypes.c_size_t, ctypes.create_string_buffer(64)
    began = time.monotonic()
    while time.monotonic() < began + 1.5:
        assert {COPIES[copy]} == 0
    print(time.monotonic() - began)
    """
    share = share_of(rig, rig.folder / "page", program)
    assert share.keeps(0.5, rel=0.15), share


def test_a_freeze_stops_copies_and_a_capture_is_left_alone(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.0))
    agents[0].order(frozen=True)
    program = """
    import threading
    start()
    s, graph, u64, size = stream(), ctypes.c_void_p(), ctypes.c_ulonglong, ctypes.c_size_t
    cuda.cuStreamBeginCapture_v2(s, 0)
    for _ in range(5):
        cuda.cuMemcpyDtoDAsync_v2(u64(0), u64(0), size(MIB), s), cuda.cuMemsetD8Async(u64(0), 0, size(MIB), s)
    cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    print("captured", flush=True)
    cuda.cuMemsetD8Async(u64(0), 0, size(MIB), s)
    print("through", flush=True)
    """
    job = rig.start(program, FAIRLEAD_SHIM_PAGE=rig.folder / "page", FAIRLEAD_SHIM_USAGE=rig.folder / "usage")
    assert job.stdout is not None
    assert job.stdout.readline().strip() == "captured"
    assert (rig.stats()["captured"], rig.stats()["spoiled"]) == (10, 0)
    assert eventually(lambda: sum(p.launches for p in UsagePage(rig.folder / "usage").processes()) == 11)
    assert rig.stats()["gpu_ns"] == 0, "it waits at the gate"
    agents[0].order(frozen=False, rate_frac=1.0)
    assert job.stdout.readline().strip() == "through"
    assert job.wait(PATIENCE_S) == 0


def test_a_bucket_that_the_job_fills_itself_does_not_help_it(rig: Rig, agents: list[Agent]) -> None:
    rig.clock()
    agents.append(Agent(rig.folder / "page", 0.3))
    program = """
    import mmap, struct, threading
    start(), join_clock()
    f = function(1000)
    launch(f)
    with open(os.environ["FAIRLEAD_SHIM_USAGE"], "r+b") as file:
        page = mmap.mmap(file.fileno(), 0)
    began = time.monotonic()
    while time.monotonic() < began + 1.5:
        page[152:160] = struct.pack("q", 1 << 60)  # tokens of the first GPU
        launch(f)
    print(time.monotonic() - began)
    """
    share = share_of(rig, rig.folder / "page", program, FAIRLEAD_SHIM_USAGE=rig.folder / "usage")
    assert share.keeps(0.3, rel=0.15), share

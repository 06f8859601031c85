"""The launch gate: GPU time in proportion to the rate, freezes in bounded time, captures left alone, little cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.node.page import ControlPage, GpuOrder, UsagePage
from tests.node.shim.conftest import Rig, eventually


class Agent:
    """Keeps a control page's heart beating."""

    def __init__(self, path: Path, rate_frac: float = 1.0, **settings: float) -> None:
        self.page = ControlPage.create(path, **settings)
        self.page.write(GpuOrder(rate_frac=rate_frac))
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._beat)
        self.thread.start()

    def _beat(self) -> None:
        while not self.stopping.wait(0.05):
            self.page.heartbeat()

    def order(self, **order: object) -> None:
        self.page.write(GpuOrder(**order))  # type: ignore[arg-type]

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    made: list[Agent] = []
    yield made
    for agent in made:
        agent.stop()
        agent.page.close()


def busy_frac(rig: Rig, page: Path, *kernels: str, for_s: float = 2.0, stats: str = "stats", **more: object) -> float:
    """GPU time that a job which always wants more gets, as a share of wall time."""
    rig.run("busy", for_s, *kernels, FAIRLEAD_SHIM_PAGE=page, STUB_STATS=rig.folder / stats, **more)
    return rig.stats(stats)["gpu_ns"] / 1e9 / for_s


@pytest.mark.parametrize("kernels", [("k1000us",), ("k100us", "k3000us", "k700us"), ("k20us",)], ids="-".join)
def test_half_the_rate_gives_half_the_gpu_time(rig: Rig, agents: list[Agent], kernels: tuple[str, ...]) -> None:
    agents.append(Agent(rig.folder / "page", 0.5))
    assert busy_frac(rig, rig.folder / "page", *kernels) == pytest.approx(0.5, rel=0.10)


def test_threads_with_streams_of_their_own_share_the_rate(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.5))
    kernels = ["k300us", "k300us", "k900us", "k2000us"]
    rig.run("threads", 2, *kernels, FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    # The stub runs streams one after the other, so a timing holds the kernels of other streams that came between:
    # the job is charged for too much and gets less, never more.
    share = rig.stats()["gpu_ns"] / 1e9 / 2
    assert 0.35 < share < 0.55


def test_launches_are_charged_in_time_not_in_number(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.3))
    results = {}

    def job(name: str, kernel: str) -> None:
        results[name] = busy_frac(rig, rig.folder / "page", kernel, stats=name)

    jobs = [threading.Thread(target=job, args=pair) for pair in (("small", "k200us"), ("large", "k8000us"))]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert results["small"] == pytest.approx(0.3, rel=0.10)
    assert results["large"] == pytest.approx(0.3, rel=0.10)


def test_processes_of_one_job_share_one_rate(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.4))
    usage = rig.folder / "usage"
    results = {}

    def rank(name: str) -> None:
        results[name] = busy_frac(rig, rig.folder / "page", "k500us", stats=name, FAIRLEAD_SHIM_USAGE=usage)

    ranks = [threading.Thread(target=rank, args=(name,)) for name in ("a", "b")]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    assert sum(results.values()) == pytest.approx(0.4, rel=0.10)


def test_every_way_to_submit_work_is_gated(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.5))
    program = """
    start()
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
        print(name, round(0.2 / (time.monotonic() - began), 3))
    """
    found = [line.split() for line in rig.run(program, FAIRLEAD_SHIM_PAGE=rig.folder / "page").splitlines()]
    assert len(found) == 10
    for name, rate in found:
        assert float(rate) == pytest.approx(0.5, rel=0.12), name


def test_full_rate_loses_nothing(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page"))
    assert busy_frac(rig, rig.folder / "page", "k500us", for_s=1.0) == pytest.approx(1.0, abs=0.07)


def test_a_change_of_rate_takes_effect_while_the_job_runs(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.1))
    process = rig.start("busy", 3.5, "k500us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    shares = []
    time.sleep(0.5)
    for rate in (0.1, 0.8, 0.2):
        agents[0].order(rate_frac=rate)
        time.sleep(0.1)
        before, began = rig.stats()["gpu_ns"], time.monotonic()
        time.sleep(0.8)
        shares.append((rig.stats()["gpu_ns"] - before) / 1e9 / (time.monotonic() - began))
    process.wait(timeout=10)
    assert shares == pytest.approx([0.1, 0.8, 0.2], rel=0.15)


@pytest.mark.parametrize("kernel", ["k100us", "k20000us"])
def test_a_freeze_takes_effect_in_bounded_time(rig: Rig, agents: list[Agent], kernel: str) -> None:
    agents.append(Agent(rig.folder / "page", inflight_s=0.05))
    process = rig.start("busy", 30, kernel, FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    assert eventually(lambda: rig.stats()["gpu_ns"] > 3e8)
    agents[0].order(frozen=True)
    frozen_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    time.sleep(0.5)
    stats = rig.stats()
    # In flight: the cap (50 ms), a quantum that had no marker yet, one kernel beyond; and some for a busy machine.
    longest_ms = float(kernel[1:-2]) / 1e3
    assert (stats["busy_until_ns"] - frozen_ns) / 1e6 < 50 + 50 / 8 + longest_ms + 30
    assert stats["last_launch_ns"] - frozen_ns < 30e6
    time.sleep(0.2)
    assert rig.stats()["launches"] == stats["launches"]
    agents[0].order(frozen=False)
    assert eventually(lambda: rig.stats()["launches"] > stats["launches"], within_s=0.5)
    process.kill()


def test_captures_are_neither_held_back_nor_spoiled_nor_charged(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page"))
    agents[0].order(frozen=True)
    program = """
    start()
    s, graph = stream(), ctypes.c_void_p()
    kernels = [function(100000, str(i)) for i in range(50)]  # five seconds, were they run
    began = time.monotonic()
    cuda.cuStreamBeginCapture_v2(s, 0)
    for f in kernels * 20:
        assert launch(f, s) == 0
    cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    print(time.monotonic() - began)
    """
    assert float(rig.run(program, FAIRLEAD_SHIM_PAGE=rig.folder / "page")) < 0.5
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
    # The issue allows 1 us; this bound leaves room for a busy machine. bench/shim.py measures.
    assert with_it - without < 300


def test_the_agent_sees_what_the_gate_did(rig: Rig, agents: list[Agent]) -> None:
    agents.append(Agent(rig.folder / "page", 0.3))
    usage = UsagePage.create(rig.folder / "usage")
    assert usage.processes() == []
    variables = {"FAIRLEAD_SHIM_PAGE": rig.folder / "page", "FAIRLEAD_SHIM_USAGE": usage.path}
    process = rig.start("busy", 2.5, "k1000us", **variables)
    time.sleep(2.0)
    (seen,) = usage.processes()
    assert seen.pid == process.pid
    assert seen.state == "running"
    assert seen.launches == pytest.approx(600, rel=0.15)
    assert seen.charged_s == pytest.approx(0.6, rel=0.15)
    assert seen.gated_s == pytest.approx(1.8, rel=0.25)
    assert seen.samples > 10
    assert seen.cap_timeouts == 0
    process.wait(timeout=10)
    assert usage.processes() == []


def test_without_a_heartbeat_the_job_goes_on_at_the_floor_rate(rig: Rig) -> None:
    with ControlPage.create(rig.folder / "page", stale_after_s=0.3, stale_rate_frac=0.2) as page:
        page.write(GpuOrder(frozen=True))
        process = rig.start("busy", 3, "k500us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
        assert eventually(lambda: rig.stats()["gpu_ns"] > 0, within_s=2)
        before, began = rig.stats()["gpu_ns"], time.monotonic()
        time.sleep(1.0)
        share = (rig.stats()["gpu_ns"] - before) / 1e9 / (time.monotonic() - began)
        assert share == pytest.approx(0.2, rel=0.15)
        process.kill()


def test_full_speed_ends_too_when_the_agent_is_gone(rig: Rig) -> None:
    with ControlPage.create(rig.folder / "page", stale_after_s=0.5, stale_rate_frac=0.1):
        process = rig.start("busy", 10, "k500us", FAIRLEAD_SHIM_PAGE=rig.folder / "page")
        time.sleep(1.0)
        before, began = rig.stats()["gpu_ns"], time.monotonic()
        time.sleep(1.0)
        assert (rig.stats()["gpu_ns"] - before) / 1e9 / (time.monotonic() - began) == pytest.approx(0.1, rel=0.2)
        process.kill()


def test_a_page_that_comes_late_or_is_replaced_is_taken_up(rig: Rig, agents: list[Agent]) -> None:
    path = rig.folder / "page"
    process = rig.start("busy", 20, "k500us", FAIRLEAD_SHIM_PAGE=path)
    time.sleep(0.5)
    assert rig.stats()["gpu_ns"] / 1e9 < 0.2  # nobody watches yet: the floor
    agents.append(Agent(path, stale_after_s=0.5))

    def share() -> float:
        before, began = rig.stats()["gpu_ns"], time.monotonic()
        time.sleep(0.4)
        return (rig.stats()["gpu_ns"] - before) / 1e9 / (time.monotonic() - began)

    assert eventually(lambda: share() > 0.8, within_s=4)
    agents[0].stop()
    agents.append(Agent(path, 0.4))  # another file under the same name
    assert eventually(lambda: 0.35 < share() < 0.45, within_s=5)
    process.kill()


def test_a_page_for_other_gpus_says_nothing_about_this_one(rig: Rig) -> None:
    other = "GPU-00000000-0000-0000-0000-000000000001"
    with ControlPage.create(rig.folder / "page", [other]) as page:
        page.write(GpuOrder(rate_frac=1.0), other)
        share = busy_frac(rig, rig.folder / "page", "k500us", for_s=1.0)
    assert share == pytest.approx(0.1, rel=0.2)


def test_kernels_that_wait_for_a_later_launch_do_not_hang_the_job(rig: Rig) -> None:
    # Two seconds in flight on one stream: the next launch is held for a second at most, then let through and counted.
    program = """
    start()
    a, long = stream(), function(2000000)
    began = time.monotonic()
    for _ in range(2):
        launch(long, a)
    launch(function(10), stream())
    print(time.monotonic() - began)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    process = rig.start(program)
    out, _ = process.communicate(timeout=20)
    assert float(out) < 3

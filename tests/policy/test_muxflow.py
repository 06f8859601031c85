"""MuxFlow and its baselines: who runs beside whom, with which share, and that services are left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.cluster import parse_shape
from fairlead.model.service import Burst
from fairlead.policy import registry
from fairlead.policy.plan import Plan
from fairlead.policy.sharing.forecast import Forecast
from fairlead.policy.sources import Fleet
from fairlead.policy.stack import Stack
from fairlead.policy.view import View
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.traces.services import service_fleet
from fairlead.traces.trace import Trace

SHARINGS = ("muxflow", "muxflow:matched=false", "muxflow:dynamic=false", "time-sharing", "priority-time-sharing")


class Watched(Stack):
    """Checks what is promised of every plan, while it is decided."""

    def __init__(self, spec: str) -> None:
        built = registry.build(f"ordering=fifo:backfill=greedy,sharing={spec}")
        super().__init__(built.sizing, built.ordering, built.sharing, built.placing, spec=spec)
        self.homes: dict[int, tuple[int, ...]] = {}
        self.joined = 0
        self.shares: list[float] = []

    def decide(self, view: View) -> Plan:
        plan = super().decide(view)
        assert view.meter is not None
        fleet = view.meter.fleet()
        row = {gpu: at for at, gpu in enumerate(fleet.gpu.tolist())}
        for job_id in plan.evict:
            assert view.running[job_id].job.kind != "service"
        for place in plan.place:
            state = view.waiting[place.job_id]
            if state.job.kind == "service":
                assert self.homes.setdefault(place.job_id, place.gpus) == place.gpus
                assert not view.on_gpu[place.gpus[0]]
            elif place.gpus[0] in row:
                at = row[place.gpus[0]]
                solo = state.job.profile.solo
                assert len(place.gpus) == 1
                assert fleet.offline[at] < 0 or int(fleet.offline[at]) in plan.evict
                assert fleet.accepts[at]
                assert solo is not None
                assert fleet.memory_frac[at] + solo.memory_frac <= 0.85 + 1e-12
                self.joined += 1
                self.shares.append(place.sm_share)
        return plan


def watched(trace: Trace, cluster: str, spec: str) -> tuple[Watched, Result]:
    stack = Watched(spec)
    return stack, Simulation(trace, parse_shape(cluster), stack).run()


def with_bursts(trace: Trace, every: int, burst: Burst) -> Trace:
    from dataclasses import replace

    profiles = dict(trace.profiles)
    for number, (name, profile) in enumerate(trace.profiles.items()):
        if profile.service is not None and number % every == 0:
            profiles[name] = replace(profile, service=profile.service.with_bursts(burst))
    return replace(trace, profiles=profiles)


@pytest.mark.parametrize("spec", SHARINGS)
def test_one_offline_job_beside_one_service_where_it_fits_and_the_guard_allows_it(spec: str) -> None:
    trace = with_bursts(service_fleet(24, 4.0, start_h=9.0, seed=2), 3, Burst(3600.0, 5400.0, 5.0))
    stack, found = watched(trace, "3x8:T4", spec)
    assert stack.joined > 24
    assert (found.jobs["finish_s"] > 0.0).all()
    if spec.startswith("muxflow"):
        assert all(0.1 <= share <= 0.9 for share in stack.shares)
        assert found.summary["evictions"] > 0
    else:
        assert found.summary["evictions"] == 0


def test_dynamic_shares_differ_and_static_ones_do_not() -> None:
    trace = service_fleet(16, 2.0, start_h=10.0)
    dynamic, _ = watched(trace, "2x8:T4", "muxflow")
    static, _ = watched(trace, "2x8:T4", "muxflow:dynamic=false:share=0.4")
    assert len(set(dynamic.shares)) > 8
    assert set(static.shares) == {0.4}


def test_services_start_at_once_and_end_when_they_are_to() -> None:
    _, found = watched(service_fleet(16, 2.0), "2x8:T4", "muxflow")
    services = found.jobs.filter(pl.col("kind") == "service")
    assert (services["first_start_s"] == 0.0).all()
    assert services["jct_s"].to_list() == pytest.approx([7200.0] * 16)
    assert services["moves"].sum() == services["preemptions"].sum() == 0


def test_running_pairs_are_not_broken_up_for_small_gains() -> None:
    trace = service_fleet(24, 6.0, start_h=6.0, seed=1)
    moved = {
        keep: watched(trace, "3x8:T4", f"muxflow:keep={keep}")[1].summary["preemptions"] for keep in (0.0, 0.1, 9.0)
    }
    assert moved[0.0] > moved[0.1] >= moved[9.0] == 0


def test_muxflow_beats_time_slices_and_harms_services_less() -> None:
    trace = service_fleet(40, 12.0, start_h=8.0)
    found = {x: watched(trace, "5x8:T4", x)[1].summary for x in ("muxflow", "time-sharing", "online-only")}
    assert found["time-sharing"]["offline_mean_jct_s"] > 1.1 * found["muxflow"]["offline_mean_jct_s"]
    assert found["muxflow"]["service_p99_slowdown"] < 1.2 < found["time-sharing"]["service_p99_slowdown"]
    assert found["online-only"]["service_slowdown"] == 1.0


@settings(max_examples=12, deadline=None)
@given(
    services=st.integers(1, 10),
    spare=st.integers(0, 4),
    load=st.sampled_from([0.3, 0.95, 1.6]),
    seed=st.integers(0, 1000),
    spec=st.sampled_from([*SHARINGS, "online-only"]),
    factor=st.sampled_from([1.0, 5.0]),
)
def test_whatever_the_fleet_every_job_ends_and_services_are_untouched(**drawn: Any) -> None:
    trace = service_fleet(drawn["services"], 2.0, load=drawn["load"], start_h=11.0, seed=drawn["seed"])
    trace = with_bursts(trace, 2, Burst(1800.0, 3600.0, drawn["factor"]))
    stack, found = watched(trace, f"1x{drawn['services'] + drawn['spare']}:T4", drawn["spec"])
    assert (found.jobs["finish_s"] > 0.0).all()
    services = found.jobs.filter(pl.col("kind") == "service")
    assert services["jct_s"].to_list() == pytest.approx([7200.0] * drawn["services"])
    assert len(stack.homes) == drawn["services"]
    assert (found.jobs["jct_s"] >= found.jobs["duration_s"] - 1e-6).all()
    assert found.summary["slo_miss_frac"] >= found.summary["slo_miss_alone_frac"] - 1e-12


# -- the forecast -----------------------------------------------------------------------------------------------------


def fleet_of(activity: list[float], services: list[int] | None = None) -> Fleet:
    count = len(activity)
    numbers = np.array(services if services is not None else range(count), dtype=np.int64)
    some = np.array(activity)
    return Fleet(numbers, numbers, some, some, some, np.ones(count, dtype=bool), np.full(count, -1))


def test_a_service_is_expected_to_go_on_rising_and_not_to_fall() -> None:
    forecast = Forecast()
    assert forecast.p95(fleet_of([0.2, 0.3]), 0.0) == pytest.approx([0.25, 0.35])
    assert forecast.p95(fleet_of([0.3, 0.2]), 900.0) == pytest.approx([0.45, 0.25])


def test_a_day_that_was_seen_says_what_comes_next_at_todays_level() -> None:
    forecast = Forecast()
    for i in range(96):
        forecast.p95(fleet_of([0.2 if i < 10 else 0.6]), i * 900.0)
    # Yesterday it tripled after this quarter of an hour; today it is half as high.
    for i in range(9):
        forecast.p95(fleet_of([0.1]), 86400.0 + i * 900.0)
    assert forecast.p95(fleet_of([0.1]), 86400.0 + 9 * 900.0) == pytest.approx([0.35])


def test_services_that_come_and_go_do_not_mix_up_the_others() -> None:
    forecast = Forecast()
    forecast.p95(fleet_of([0.1, 0.5], [7, 8]), 0.0)
    assert forecast.p95(fleet_of([0.6, 0.3], [8, 9]), 900.0) == pytest.approx([0.75, 0.35])

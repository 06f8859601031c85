"""Each row of the table of states, at its limits."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fairlead.errors import InputError
from fairlead.policy.guarding import GpuGuard, GuardConfig, Sample, State, Transition

GOOD = Sample(0.0, util_frac=0.4, sm_activity_frac=0.3, clock_frac=1.0, memory_frac=0.5, temperature_c=60.0)


def feed(guard: GpuGuard, sample: Sample, seconds: int) -> list[Transition]:
    """One sample a second from the guard's present time on, then up to the end of the last second."""
    start_s = guard.time_s
    out = [t for i in range(seconds) for t in guard.observe(replace(sample, time_s=start_s + i))]
    return out + guard.advance(start_s + seconds)


def healthy(config: GuardConfig | None = None) -> GpuGuard:
    guard = GpuGuard(config or GuardConfig())
    feed(guard, GOOD, 30)
    assert guard.state is State.HEALTHY
    return guard


def moves(transitions: list[Transition]) -> list[tuple[float, str]]:
    return [(t.time_s, str(t.after)) for t in transitions]


def test_init_lasts_30_seconds_of_valid_samples() -> None:
    guard = GpuGuard()
    assert feed(guard, GOOD, 29) == []
    assert not guard.accepts_offline
    assert not guard.must_evict
    assert moves(feed(guard, GOOD, 1)) == [(30.0, "healthy")]
    assert guard.accepts_offline


def test_init_begins_with_the_first_window_that_is_seen_from_its_start() -> None:
    guard = GpuGuard(time_s=2.0)
    assert moves(feed(guard, GOOD, 33)) == [(35.0, "healthy")]


def test_init_ends_unhealthy_if_a_window_was() -> None:
    guard = GpuGuard()
    feed(guard, replace(GOOD, util_frac=0.9), 5)
    assert moves(feed(guard, GOOD, 25)) == [(30.0, "unhealthy")]
    assert moves(feed(guard, GOOD, 10)) == [(35.0, "healthy")]


@pytest.mark.parametrize(
    ("at_limit", "within", "cause"),
    [
        ({"util_frac": 0.85}, {"util_frac": 0.849}, "util-high"),
        ({"sm_activity_frac": 0.70}, {"sm_activity_frac": 0.699}, "sm-activity-high"),
        ({"clock_frac": 0.93}, {"clock_frac": 0.931}, "clock-low"),
        ({"memory_frac": 0.85}, {"memory_frac": 0.849}, "memory-high"),
        ({"temperature_c": 80.0}, {"temperature_c": 79.9}, "temperature-high"),
    ],
)
def test_a_broken_limit_of_healthy_makes_it_unhealthy_after_2_windows(
    at_limit: dict[str, float], within: dict[str, float], cause: str
) -> None:
    guard = healthy()
    assert feed(guard, replace(GOOD, **within), 60) == []
    found = feed(guard, replace(GOOD, **at_limit), 60)
    assert moves(found) == [(100.0, "unhealthy")]
    assert found[0].cause == cause
    assert "after 2 windows" in found[0].reason
    assert not guard.accepts_offline
    assert not guard.must_evict
    assert moves(feed(guard, GOOD, 60)) == [(180.0, "healthy")]


@pytest.mark.parametrize(
    ("at_limit", "within", "after_s", "cause"),
    [
        ({"util_frac": 0.97}, {"util_frac": 0.969}, 15.0, "util-high"),
        ({"sm_activity_frac": 0.90}, {"sm_activity_frac": 0.899}, 10.0, "sm-activity-high"),
        ({"clock_frac": 0.80}, {"clock_frac": 0.801}, 10.0, "clock-low"),
        ({"memory_frac": 0.95}, {"memory_frac": 0.949}, 10.0, "memory-high"),
        ({"temperature_c": 87.0}, {"temperature_c": 86.9}, 10.0, "temperature-high"),
    ],
)
def test_a_broken_limit_of_overlimit_evicts(
    at_limit: dict[str, float], within: dict[str, float], after_s: float, cause: str
) -> None:
    guard = healthy()
    assert moves(feed(guard, replace(GOOD, **within), 60)) == [(40.0, "unhealthy")]
    found = feed(guard, replace(GOOD, **at_limit), 60)
    assert moves(found) == [(90.0 + after_s, "overlimit")]
    assert found[0].cause == cause
    assert guard.must_evict
    assert guard.next_s == 90.0 + after_s + 60.0


def test_the_slo_signal_of_one_sample_in_each_of_2_windows_evicts() -> None:
    guard = healthy()
    bad = replace(GOOD, slo_broken=True)
    feed(guard, bad, 1)
    feed(guard, GOOD, 9)
    assert guard.state is State.HEALTHY
    feed(guard, bad, 1)
    feed(guard, GOOD, 4)
    found = feed(guard, bad, 5)
    assert moves(found) == [(50.0, "overlimit")]
    assert found[0].cause == "slo-broken"


def test_a_short_spike_changes_nothing() -> None:
    guard = healthy()
    feed(guard, replace(GOOD, sm_activity_frac=1.0), 5)
    assert feed(guard, GOOD, 60) == []


def test_windows_are_judged_by_their_mean() -> None:
    guard = healthy()
    for _ in range(12):
        feed(guard, replace(GOOD, util_frac=1.0), 2)
        feed(guard, replace(GOOD, util_frac=0.74), 3)  # a mean of 0.844
    assert guard.state is State.HEALTHY


def test_the_services_own_share_counts_where_it_is_known() -> None:
    guard = healthy()
    shared = replace(GOOD, util_frac=1.0, sm_activity_frac=0.95)
    assert feed(guard, replace(shared, online_util_frac=0.4, online_sm_activity_frac=0.3), 60) == []
    assert moves(feed(guard, replace(shared, online_util_frac=0.4), 60)) == [(100.0, "overlimit")]


def test_what_is_not_known_is_skipped() -> None:
    guard = GpuGuard()
    feed(guard, Sample(0.0, util_frac=0.4), 30)
    assert guard.state is State.HEALTHY
    feed(guard, Sample(0.0, util_frac=0.4, temperature_c=90.0), 10)
    assert guard.state is State.OVERLIMIT
    blind = GpuGuard()
    feed(blind, Sample(0.0), 60)
    assert blind.state is State.INIT


def test_overlimit_ends_after_the_hold_once_it_is_calm() -> None:
    guard = healthy()
    hot = replace(GOOD, temperature_c=90.0)
    feed(guard, hot, 10)
    assert moves(feed(guard, GOOD, 100)) == [(100.0, "healthy")]
    feed(guard, hot, 10)
    assert guard.next_s == 150.0 + 120.0
    assert feed(guard, hot, 200) == []
    assert moves(feed(guard, replace(GOOD, util_frac=0.9), 60)) == [(380.0, "unhealthy")]
    assert guard.next_s is None


def test_holds_double_and_the_fifth_overlimit_in_an_hour_disables() -> None:
    guard = healthy()
    holds = []
    for _ in range(4):
        entered = feed(guard, replace(GOOD, clock_frac=0.7), 10)[-1]
        assert guard.next_s is not None
        holds.append(guard.next_s - entered.time_s)
        feed(guard, GOOD, int(holds[-1]))
        assert guard.state is State.HEALTHY
    assert holds == [60.0, 120.0, 240.0, 480.0]
    last = feed(guard, replace(GOOD, clock_frac=0.7), 10)[-1]
    assert (last.after, last.cause) == (State.DISABLED, "too-often-overlimit")
    assert guard.must_evict
    assert guard.next_s is None
    assert feed(guard, GOOD, 200) == []


def test_overlimits_of_more_than_an_hour_ago_are_forgotten() -> None:
    guard = healthy()
    feed(guard, replace(GOOD, clock_frac=0.7), 10)
    feed(guard, GOOD, 3590)
    feed(guard, replace(GOOD, clock_frac=0.7), 10)
    assert guard.next_s == guard.time_s + 60.0


def test_holds_end_at_their_maximum() -> None:
    guard = healthy(GuardConfig(overlimits_disable=100, overlimit_memory_s=1e9))
    for _ in range(9):
        feed(guard, replace(GOOD, clock_frac=0.7), 10)
        guard.observe_constant(replace(GOOD, time_s=guard.time_s), guard.next_s or 0.0)
    feed(guard, replace(GOOD, clock_frac=0.7), 10)
    assert guard.next_s == guard.time_s + 3600.0


@pytest.mark.parametrize("valid", [True, False])
def test_a_fatal_fault_disables_at_once(valid: bool) -> None:
    guard = healthy()
    found = guard.observe(replace(GOOD, time_s=31.5, fatal_fault="Xid 79", valid=valid))
    assert moves(found) == [(31.5, "disabled")]
    assert found[0].reason == "fatal fault: Xid 79"


def test_only_the_operator_brings_a_disabled_gpu_back() -> None:
    guard = healthy()
    assert moves(guard.disable(31.0, "new fan")) == [(31.0, "disabled")]
    assert guard.disable(32.0) == []
    assert feed(guard, GOOD, 100) == []
    assert guard.mps_restart(guard.time_s, "done") == []
    assert guard.agent_restarted(guard.time_s) == []
    assert moves(guard.enable(140.0)) == [(140.0, "init")]
    assert guard.enable(141.0) == []
    assert moves(feed(guard, GOOD, 60)) == [(175.0, "healthy")]


def test_an_mps_restart_begins_anew() -> None:
    guard = healthy()
    assert moves(guard.mps_restart(30.0, "begun")) == [(30.0, "init")]
    assert feed(guard, replace(GOOD, slo_broken=True), 60) == []
    assert guard.mps_restart(90.0, "done") == []
    assert moves(feed(guard, GOOD, 60)) == [(120.0, "healthy")]


def test_an_mps_restart_does_not_cut_a_hold_short() -> None:
    guard = healthy()
    feed(guard, replace(GOOD, clock_frac=0.7), 10)
    guard.mps_restart(41.0, "begun")
    guard.mps_restart(42.0, "done")
    assert guard.next_s == 100.0
    assert moves(feed(guard, GOOD, 100)) == [(100.0, "healthy")]


def test_two_failed_mps_restarts_in_a_row_disable() -> None:
    guard = healthy()
    guard.mps_restart(31.0, "failed")
    assert guard.state is State.INIT
    guard.mps_restart(32.0, "done")
    guard.mps_restart(33.0, "failed")
    assert guard.state is State.INIT
    assert guard.mps_restart(34.0, "failed")[0].cause == "mps-restart-failed"
    assert guard.state is State.DISABLED


def test_a_gap_leads_back_to_init() -> None:
    guard = healthy()
    assert guard.advance(34.0) == []
    found = guard.advance(40.0)
    assert moves(found) == [(34.0, "init")]
    assert found[0].cause == "no-samples"
    assert moves(feed(guard, GOOD, 60)) == [(70.0, "healthy")]
    assert moves(guard.observe(replace(GOOD, time_s=1e6))) == [(104.0, "init")]


def test_samples_that_are_not_valid_are_a_gap_but_one_is_none() -> None:
    guard = healthy()
    for _ in range(10):
        feed(guard, GOOD, 4)
        feed(guard, replace(GOOD, valid=False, util_frac=1.0), 1)
    assert guard.state is State.HEALTHY
    assert moves(feed(guard, replace(GOOD, valid=False), 60)) == [(83.0, "init")]


def test_a_gap_does_not_end_overlimit() -> None:
    guard = healthy()
    feed(guard, replace(GOOD, clock_frac=0.7), 10)
    assert guard.advance(1000.0) == []
    assert moves(feed(guard, GOOD, 60)) == [(1030.0, "healthy")]


@pytest.mark.parametrize("spacing_s", [0.1, 0.7, 2.0, 2.5, 4.9])
def test_any_spacing_of_samples_gives_the_same_states(spacing_s: float) -> None:
    guard, out = GpuGuard(), []
    for i in range(int(240 / spacing_s)):
        time_s = i * spacing_s
        bad = 60.0 <= time_s < 90.0
        out += guard.observe(replace(GOOD, time_s=time_s, sm_activity_frac=0.95 if bad else 0.3))
    assert moves(out) == [(30.0, "healthy"), (70.0, "overlimit"), (130.0, "healthy")]


def test_a_saved_guard_keeps_its_hold_over_an_agent_restart() -> None:
    guard = healthy()
    feed(guard, replace(GOOD, clock_frac=0.7), 10)
    again = GpuGuard.from_dict(json.loads(json.dumps(guard.to_dict())))
    assert again.agent_restarted(50.0) == []
    assert (again.state, again.next_s) == (State.OVERLIMIT, 100.0)
    assert moves(feed(again, GOOD, 60)) == [(100.0, "healthy")]
    assert moves(again.agent_restarted(3.0)) == [(3.0, "init")]  # another boot, another clock


def test_a_clock_that_went_back_leaves_no_endless_hold() -> None:
    guard = GpuGuard(time_s=1e9)
    feed(guard, replace(GOOD, clock_frac=0.7), 15)
    assert guard.state is State.OVERLIMIT
    guard.agent_restarted(10.0)
    assert guard.next_s == 3610.0


def test_other_windows_than_the_saved_ones_start_anew() -> None:
    saved = healthy().to_dict()
    assert GpuGuard.from_dict(saved, GuardConfig(window_s=6.0)).state is State.INIT
    assert GpuGuard.from_dict(saved).state is State.HEALTHY


@pytest.mark.parametrize("change", [{"state": "odd"}, {"watch": {}}, {"entries": None}, {"hold_until_s": "soon"}])
def test_a_broken_save_is_an_input_error(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a saved guard cannot be read"):
        GpuGuard.from_dict(GpuGuard().to_dict() | change)


def test_time_never_goes_back() -> None:
    guard = healthy()
    with pytest.raises(ValueError, match="time went back"):
        guard.observe(GOOD)


@pytest.mark.parametrize("wrong", [{"time_s": float("nan")}, {"util_frac": -0.1}, {"clock_frac": float("nan")}])
def test_an_impossible_sample_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(GOOD, **wrong)

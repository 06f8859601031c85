"""The launch rate: down fast, up slowly, and still where nothing changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.policy.guarding import LatencyConfig, LatencySignal, LaunchRate, Pressure, RateConfig

FRACS = st.one_of(st.none(), st.floats(0.0, 1.2))
PRESSURES = st.sampled_from([None, Pressure.NONE, Pressure.NONE, Pressure.HIGH, Pressure.SEVERE])
CONFIGS = st.builds(
    RateConfig,
    ewma=st.floats(0.05, 1.0),
    cut_frac=st.floats(0.1, 0.9),
    cooldown_periods=st.integers(0, 5),
    raise_frac=st.floats(0.001, 1.0),
    floor_frac=st.floats(0.01, 1.0),
)


def full(config: RateConfig | None = None) -> LaunchRate:
    rate = LaunchRate(config or RateConfig())
    for _ in range(100):
        rate.update(1.0, 0.5, Pressure.NONE)
    assert rate.rate_frac == 1.0
    return rate


def test_an_under_used_gpu_raises_the_rate_by_equal_steps() -> None:
    rate = LaunchRate()
    assert rate.rate_frac == 0.05
    rates = [rate.update(1.0, 0.5) for _ in range(3)]
    assert rates == pytest.approx([0.07, 0.09, 0.11])


@pytest.mark.parametrize(("util_frac", "moves"), [(0.87, True), (0.89, False), (0.95, False)])
def test_near_its_target_utilisation_it_stays(util_frac: float, moves: bool) -> None:
    rate = LaunchRate()
    for _ in range(20):
        rate.update(1.0, util_frac)
    assert (rate.rate_frac > 0.05) == moves


def test_a_low_clock_halves_it_then_it_waits_three_periods() -> None:
    rate = full(RateConfig(ewma=1.0))
    low = [rate.update(0.9, 0.5) for _ in range(2)]
    assert low == [0.5, 0.5]
    assert [rate.update(1.0, 0.5) for _ in range(3)] == pytest.approx([0.5, 0.5, 0.52])


def test_a_clock_between_the_limit_and_the_dead_band_changes_nothing() -> None:
    rate = full()
    for _ in range(50):
        rate.update(0.94, 0.5)
    assert rate.rate_frac == 1.0
    rate.update(0.94, 0.5, Pressure.HIGH)
    for _ in range(50):
        rate.update(0.94, 0.5)
    assert rate.rate_frac == 0.5


def test_one_odd_clock_reading_is_smoothed_away() -> None:
    rate = full()
    rate.update(0.8, 0.5)
    assert rate.rate_frac == 1.0


@pytest.mark.parametrize("pressure", [Pressure.HIGH, Pressure.SEVERE])
def test_pressure_that_lasts_brings_it_to_the_floor_within_a_second(pressure: Pressure) -> None:
    rate = full()
    found = [rate.update(1.0, 1.0, pressure) for _ in range(10)]
    assert found[0] == 0.5
    assert found[-1] == 0.05
    assert found[4 if pressure is Pressure.SEVERE else 8] == 0.05


def test_a_burst_of_five_times_the_load_brings_it_to_the_floor_within_a_second() -> None:
    rate, signal = full(), LatencySignal(baseline_s=0.008, slo_s=0.2)
    for i in range(10):
        now_s = 0.1 * i
        signal.report(now_s, 0.008 * 1.8)  # well over the baseline, far from the SLO
        rate.update(0.99, 1.0, signal.pressure(now_s))
    assert rate.rate_frac == 0.05


def test_a_service_that_is_content_lets_its_neighbour_fill_the_gpu() -> None:
    rate = LaunchRate()
    for _ in range(100):
        rate.update(1.0, 1.0, Pressure.NONE)
    assert rate.rate_frac == 1.0


def test_nothing_is_raised_blindly() -> None:
    rate = LaunchRate()
    rate.update(1.0, 0.5)
    before = rate.rate_frac
    for _ in range(10):
        rate.update(None, 0.5, None)
        rate.update(1.0, None, Pressure.NONE)
    assert rate.rate_frac == before
    rate.update(None, 0.5, Pressure.NONE)
    assert rate.rate_frac > before


def test_frozen_launches_nothing_and_thaws_at_the_floor() -> None:
    rate = full()
    rate.freeze()
    assert rate.allowed_frac == 0.0
    assert rate.update(1.0, 0.1, Pressure.NONE) == 0.0
    rate.unfreeze()
    assert rate.allowed_frac == 0.05
    assert rate.update(1.0, 0.1, Pressure.NONE) == pytest.approx(0.07)


@given(CONFIGS, st.lists(st.tuples(FRACS, FRACS, PRESSURES)))
def test_the_rate_stays_between_floor_and_one(
    config: RateConfig, inputs: list[tuple[float | None, float | None, Pressure | None]]
) -> None:
    rate = LaunchRate(config)
    for clock_frac, util_frac, pressure in inputs:
        found = rate.update(clock_frac, util_frac, pressure)
        assert config.floor_frac <= found <= 1.0


@given(CONFIGS, st.lists(st.tuples(FRACS, FRACS, PRESSURES), max_size=30), FRACS, FRACS, PRESSURES)
@settings(deadline=None)
def test_it_settles_without_swinging_where_the_input_is_constant(
    config: RateConfig,
    inputs: list[tuple[float | None, float | None, Pressure | None]],
    clock_frac: float | None,
    util_frac: float | None,
    pressure: Pressure | None,
) -> None:
    rate = LaunchRate(config)
    for given_inputs in inputs:
        rate.update(*given_inputs)
    for _ in range(600):  # what came before fades from the smoothed values
        rate.update(clock_frac, util_frac, pressure)
    found = [rate.update(clock_frac, util_frac, pressure) for _ in range(1200)]
    assert found in (sorted(found), sorted(found, reverse=True))
    assert found[-1] == found[-100]


@given(st.floats(0.0, 0.6), st.floats(0.2, 1.0))
@settings(deadline=None)
def test_with_a_gpu_that_answers_it_settles_at_the_target(online_frac: float, offline_frac: float) -> None:
    rate, found = LaunchRate(), []
    for _ in range(500):
        util_frac = min(1.0, online_frac + offline_frac * rate.rate_frac)
        found.append(rate.update(1.0, util_frac))
    assert found == sorted(found)
    assert found[-1] == found[-100]
    assert found[-1] == 1.0 or online_frac + offline_frac * found[-1] >= 0.88


def test_with_a_clock_that_answers_it_stays_within_one_cut_of_the_limit() -> None:
    rate, found = LaunchRate(), []
    for _ in range(2000):  # the clock reaches 0.93 at a rate of 0.7
        found.append(rate.update(1.0 - 0.1 * rate.rate_frac, 0.5))
    assert max(found[200:]) < 0.9
    assert min(found[200:]) > 0.15


def test_latency_becomes_pressure_at_its_limits() -> None:
    signal = LatencySignal(baseline_s=0.010, slo_s=0.050)
    found = []
    for i, latency_s in enumerate([0.010, 0.0119, 0.0121, 0.049, 0.050]):
        signal.report(float(i), latency_s)
        found.append(signal.pressure(float(i)))
    none, high, severe = Pressure.NONE, Pressure.HIGH, Pressure.SEVERE
    assert found == [none, none, high, high, severe]
    assert signal.slo_broken(4.0)


def test_without_an_slo_the_baseline_stands_in_and_the_other_way_round() -> None:
    baseline = LatencySignal(baseline_s=0.010)
    baseline.report(0.0, 0.0201)
    assert baseline.slo_broken(0.0)
    slo = LatencySignal(slo_s=0.1)
    slo.report(0.0, 0.085)
    assert slo.pressure(0.0) is Pressure.NONE
    slo.report(1.0, 0.091)
    assert slo.pressure(1.0) is Pressure.HIGH


def test_recent_reports_are_averaged_and_old_ones_say_nothing() -> None:
    signal = LatencySignal(baseline_s=0.010, config=LatencyConfig(window_s=1.0, stale_s=3.0))
    assert signal.pressure(0.0) is None
    signal.report(0.0, 0.010)
    signal.report(0.5, 0.030)
    assert signal.latency_s(0.5) == pytest.approx(0.020)
    assert signal.latency_s(1.2) == 0.030
    assert signal.latency_s(3.5) == 0.030
    assert signal.latency_s(3.6) is None
    assert not signal.slo_broken(3.6)


def test_a_service_without_baseline_and_slo_is_refused() -> None:
    with pytest.raises(InputError, match="needs a baseline latency or an SLO"):
        LatencySignal()
    with pytest.raises(InputError, match="slo_s is 0"):
        LatencySignal(slo_s=0.0)
    with pytest.raises(ValueError, match="latency_s"):
        LatencySignal(slo_s=1.0).report(0.0, float("nan"))

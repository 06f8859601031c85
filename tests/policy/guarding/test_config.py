"""The guard's numbers: those of the table by default, checked, and readable from a plain dict."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.policy.guarding import EvictionConfig, GuardConfig, LatencyConfig, RateConfig


def test_the_defaults_are_those_of_the_table() -> None:
    c = GuardConfig()
    assert (c.sample_s, c.window_s, c.worse_windows, c.better_windows, c.init_s) == (1.0, 5.0, 2, 6, 30.0)
    assert (c.util_healthy_frac, c.sm_activity_healthy_frac, c.clock_healthy_frac) == (0.85, 0.70, 0.93)
    assert (c.memory_healthy_frac, c.temperature_healthy_c) == (0.85, 80.0)
    assert (c.util_over_frac, c.util_over_windows, c.sm_activity_over_frac) == (0.97, 3, 0.90)
    assert (c.clock_over_frac, c.memory_over_frac, c.temperature_over_c) == (0.80, 0.95, 87.0)
    assert (c.hold_s, c.hold_max_s, c.overlimit_memory_s) == (60.0, 3600.0, 3600.0)
    assert (c.overlimits_disable, c.mps_failures_disable, c.init_windows) == (5, 2, 6)
    r = c.rate
    assert (r.period_s, r.ewma, r.clock_low_frac, r.util_target_frac) == (0.1, 0.3, 0.93, 0.90)
    assert (r.cut_frac, r.cooldown_periods) == (0.5, 3)


def test_a_dict_changes_what_it_names() -> None:
    c = GuardConfig.from_dict({"hold_s": 30, "better_windows": 3, "rate": {"floor_frac": 0.1}, "eviction": {}})
    assert (c.hold_s, c.better_windows, c.rate.floor_frac) == (30.0, 3, 0.1)
    assert isinstance(c.hold_s, float)
    assert c.window_s == GuardConfig().window_s
    assert GuardConfig.from_dict({}) == GuardConfig()
    assert RateConfig.from_dict({"ewma": 1}).ewma == 1.0


def test_an_unknown_setting_is_an_error_with_a_hint() -> None:
    with pytest.raises(InputError, match=r"unknown setting 'hold'") as found:
        GuardConfig.from_dict({"hold": 30})
    assert "did you mean 'hold_s'" in str(found.value)
    with pytest.raises(InputError, match=r"guard\.rate: unknown setting 'flor_frac'"):
        GuardConfig.from_dict({"rate": {"flor_frac": 0.1}})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"hold_s": "60"}, "expected a number, found '60'"),
        ({"hold_s": True}, "expected a number, found True"),
        ({"worse_windows": 1.5}, "expected a whole number, found 1.5"),
        ({"hold_s": float("nan")}, "not a finite number"),
        ({"hold_s": 7200}, "hold_s must be at most hold_max_s; found hold_s=7200"),
        ({"util_healthy_frac": 0.97}, "util_healthy_frac must be under util_over_frac"),
        ({"clock_over_frac": 0.93}, "clock_over_frac must be under clock_healthy_frac"),
        ({"gap_s": 6.0}, "gap_s must be at least twice sample_s"),
        ({"sample_s": 3.0}, "gap_s must be at least twice sample_s"),
        ({"worse_windows": 0}, "guard.worse_windows: must be at least 1, found 0"),
        ({"rate": {"floor_frac": 0.0}}, "guard.rate.floor_frac: must be above 0, found 0.0"),
        ({"rate": 3}, "expected a table of settings, found 3"),
        ({"latency": {"high_ratio": 1.0}}, "guard.latency.high_ratio: must be above 1, found 1.0"),
        ({"eviction": {"client_tries": 0}}, "guard.eviction.client_tries: must be at least 1, found 0"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_allowed(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as found:
        GuardConfig.from_dict(values)
    assert said in str(found.value)
    assert found.value.exit_code == 2


def test_the_constructors_check_too() -> None:
    with pytest.raises(ValueError, match="init_s"):
        GuardConfig(init_s=0.0)
    with pytest.raises(ValueError, match="stale_s"):
        LatencyConfig(window_s=10.0)
    with pytest.raises(ValueError, match="backoff_s"):
        EvictionConfig(backoff_s=0.0)

"""What a service and an offline job leave each other: monotone, bounded, and by hand; latencies of services."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.contention import Mode, Solo, beside
from fairlead.model.service import Burst, DailyLoad, Service, TableLoad, latencies, miss_frac

FRAC = st.floats(0.01, 1.0)
SIDE = st.tuples(FRAC, FRAC, FRAC, FRAC)
MODES: tuple[Mode, ...] = ("mps", "time", "priority")


@given(SIDE, SIDE, FRAC, FRAC)
def test_more_share_is_never_less_throughput_unless_bandwidth_runs_out(service, offline, a, b) -> None:  # type: ignore[no-untyped-def]
    low, high = sorted((a, b))
    if service[2] + offline[2] <= 1.0:
        assert beside("mps", service, offline, high)[0] >= beside("mps", service, offline, low)[0] - 1e-12
    assert beside("mps", service, offline, high)[1] >= beside("mps", service, offline, low)[1] - 1e-12


@given(st.sampled_from(MODES), SIDE, SIDE, FRAC, st.floats(1.0, 5.0))
def test_a_busier_service_never_leaves_more(mode: Mode, service, offline, share: float, times: float) -> None:  # type: ignore[no-untyped-def]
    busier = tuple(min(1.0, x * times) for x in service[:3])
    less, more = beside(mode, (*service[:3], 1.0), offline, share)[0], beside(mode, (*busier, 1.0), offline, share)[0]
    assert more <= less + 1e-12
    assert 0.0 <= more <= 1.0
    assert beside(mode, service, offline, share)[1] >= 1.0


def test_by_hand() -> None:
    # c = 0.4 / 0.8 = 0.5; the service leaves enough, and bandwidth is enough.
    kept, slower = beside("mps", (0.3, 0.2, 0.2, 1.0), (0.9, 0.6, 0.4, 0.8), 0.4)
    assert kept == pytest.approx(0.5)
    assert slower == pytest.approx(1.0 + 0.35 * 0.5 * 0.6 * 0.2)
    assert beside("time", (0.3, 0.2, 0.2, 1.0), (0.9, 0.6, 0.4, 0.8), 0.4) == pytest.approx((0.95 * 0.7, 1.225))
    assert beside("priority", (0.3, 0.2, 0.2, 1.0), (0.9, 0.6, 0.4, 0.8), 0.4) == pytest.approx((0.97 * 0.4, 1.045))


@given(st.floats(0.0, 3.0), st.floats(1.0, 3.0), st.floats(1.01, 50.0))
def test_latencies_grow_with_load_and_slowdown_and_misses_are_a_fraction(rho: float, slow: float, slo: float) -> None:
    def at(load: float, factor: float) -> tuple[float, float, float]:
        args = (np.array(load), np.array(0.01), np.array(factor))
        mean, p99 = latencies(*args)
        return float(mean), float(p99), float(miss_frac(*args, np.array(0.01 * slo)))

    mean, p99, missed = at(rho, slow)
    assert 0.01 <= mean <= p99
    assert 0.0 <= missed <= 1.0
    for more in (at(rho * 1.1, slow), at(rho, slow * 1.1)):
        assert all(b >= a - 1e-12 for a, b in zip((mean, p99, missed), more, strict=True))


def test_an_idle_service_answers_in_the_time_of_a_request() -> None:
    mean, p99 = latencies(np.array(0.0), np.array(0.01), np.array(1.0))
    assert mean == p99 == 0.01
    assert miss_frac(np.array(0.0), np.array(0.01), np.array(1.0), np.array(0.02)) == 0.0


def test_loads_by_hand() -> None:
    day = DailyLoad(0.2, 0.5, 14.0)
    assert day.at(14 * 3600.0) == pytest.approx(0.3)
    assert day.at(2 * 3600.0) == pytest.approx(0.1)
    burst = Service(day, Solo(1, 1, 1, 1, 0.1, 0.01), 0.1).with_bursts(Burst(0.0, 60.0, 5.0)).load
    assert burst.at(59.0) == pytest.approx(5 * day.at(59.0))
    assert burst.at(60.0) == day.at(60.0)
    table = TableLoad((0.0, 10.0, 20.0), (0.1, 0.3, 0.1))
    assert [table.at(t) for t in (5.0, 10.0, 25.0)] == pytest.approx([0.2, 0.3, 0.2])


def test_loads_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="amplitude"):
        DailyLoad(0.2, 1.5)
    with pytest.raises(InputError, match="two or more points"):
        TableLoad((0.0, 0.0), (0.1, 0.2))
    with pytest.raises(InputError, match="SLO"):
        Service(DailyLoad(0.2), Solo(1, 1, 1, 1, 0.1, 0.01), 0.005)

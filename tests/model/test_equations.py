"""The two equations against figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.cluster import GPU_MODELS, parse_shape
from fairlead.model.job import Job
from fairlead.model.power import gpu_power_w
from fairlead.model.profile import GENERIC, Amdahl, Power, Profile, Table, profile_named
from fairlead.model.speed import speed
from fairlead.model.variability import Variability

CLUSTER = parse_shape("2x4").with_variability(
    Variability({"A": [1.0, 1.2, 0.9, 1.0, 2.0, 1.0, 1.0, 1.0], "B": [1.0] * 8})
)


def test_nominal_speed_is_exactly_one() -> None:
    assert speed(Job(0, "j", 0.0, 3, Profile(app_class="B")), (1, 2, 3), CLUSTER) == 1.0


def test_speed_is_speedup_over_locality_times_the_slowest_gpu() -> None:
    profile = Profile(app_class="A", locality=1.5, speedup=Power(0.5))
    job = Job(0, "j", 0.0, 1, profile, max_gpus=8)
    assert speed(job, (2,), CLUSTER) == pytest.approx(1 / 0.9)
    assert speed(job, (0, 1), CLUSTER) == pytest.approx(2**0.5 / 1.2)
    assert speed(job, (3, 4), CLUSTER) == pytest.approx(2**0.5 / (2.0 * 1.5))


def test_a_class_without_scores_is_taken_for_the_worst() -> None:
    assert speed(Job(0, "j", 0.0, 1, Profile(app_class="Z")), (4,), CLUSTER) == 0.5


def test_speedup_curves() -> None:
    assert Amdahl(0.8)(4) == pytest.approx(2.5)
    table = Table((1, 2, 4), (1.0, 1.8, 3.0))
    assert [table(k) for k in (1, 2, 3, 4, 9)] == pytest.approx([1.0, 1.8, 2.4, 3.0, 3.0])


@given(u=st.floats(0, 1), v=st.floats(0, 1))
def test_power_grows_with_utilisation_from_idle_to_peak(u: float, v: float) -> None:
    model = GPU_MODELS["V100"]
    low, high = sorted((gpu_power_w(model, u), gpu_power_w(model, v)))
    assert model.idle_w <= low <= high <= model.peak_w
    assert (gpu_power_w(model, max(u, v))) == high


def test_profiles_are_found_whatever_the_case_and_unknown_ones_assume_the_worst() -> None:
    assert profile_named("bert").app_class == "B"
    unknown = profile_named("my-model")
    assert (unknown.name, unknown.app_class, unknown.locality) == ("my-model", "A", 1.0)
    assert GENERIC.with_options(locality=1.7, restart_s=5.0).locality == 1.7

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairlead.errors import InputError
from fairlead.model.profile import GENERIC, profile_named
from fairlead.traces import builtin_demo, describe, generate, request_rate
from fairlead.traces.synthetic import GENERATORS, PROFILES

MANY = 200_000


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(name):
    first, again, other = (generate(name, jobs=50, seed=s).frame for s in (4, 4, 5))
    assert first.equals(again)
    assert not first.equals(other)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_traces_source_makes_it_again(name):
    trace = generate(name, jobs=20, seed=9)
    assert generate(trace.source.removeprefix("synthetic:")).frame.equals(trace.frame)


@pytest.mark.parametrize("name", ["poisson", "daily", "bursts"])
def test_jobs_arrive_at_the_mean_rate(name):
    found = describe(generate(f"{name}:rate_per_h=30", jobs=MANY))
    assert found["arrivals_per_h"] == pytest.approx(30, rel=0.03)


@pytest.mark.parametrize(
    ("size", "cv"),
    [
        ("size=exponential", 1.0),
        ("size=deterministic", 0.0),
        ("size=lognormal:cv=1.5", 1.5),
        ("size=hyperexponential:cv=3", 3.0),
        ("size=hyperexponential", 2.0),
    ],
)
def test_sizes_have_the_mean_and_variation_asked_for(size, cv):
    sizes = generate(f"poisson:mean_s=600:{size}", jobs=MANY).frame["duration_s"].to_numpy()
    assert sizes.mean() == pytest.approx(600, rel=0.03)
    assert sizes.std() / 600 == pytest.approx(cv, rel=0.06, abs=1e-9)


def test_poisson_gaps_are_exponential():
    gaps = np.diff(generate("poisson:rate_per_h=60", jobs=MANY).frame["submit_s"].to_numpy())
    assert gaps.mean() == pytest.approx(60, rel=0.02)
    assert gaps.std() == pytest.approx(60, rel=0.02)


def test_daily_rate_peaks_at_the_peak_hour():
    submits = generate("daily:amplitude=0.8:peak_h=9:rate_per_h=100", jobs=MANY).frame["submit_s"].to_numpy()
    by_hour = np.bincount((submits // 3600 % 24).astype(int), minlength=24) / MANY * 24
    assert by_hour.argmax() in (8, 9)
    assert by_hour.max() == pytest.approx(1.8, abs=0.08)
    assert by_hour.min() == pytest.approx(0.2, abs=0.05)


def test_bursts_come_in_batches_of_the_mean_size():
    submits = generate("bursts:mean_batch=8", jobs=MANY).frame["submit_s"]
    assert len(submits) / submits.n_unique() == pytest.approx(8, rel=0.03)


def test_philly_widths_and_durations_match_the_fit():
    found = describe(generate("philly:cluster_gpus=2490", jobs=MANY))
    widths = found["gpus_histogram"]
    assert widths[1] / MANY == pytest.approx(76_627 / 82_247, abs=0.003)
    assert set(widths) <= {1, 2, 4, 8, 12, 16, 24, 32, 64, 128}
    assert found["duration_mean_s"] == pytest.approx(13_136, rel=0.1)
    assert found["duration_median_s"] == pytest.approx(1_144, rel=0.1)
    assert found["duration_p99_s"] == pytest.approx(254_758, rel=0.15)


@pytest.mark.parametrize("load", [0.3, 0.9, 1.5])
def test_philly_offers_the_load_asked_for(load):
    trace = generate(f"philly:load={load}:cluster_gpus=128", jobs=2000, seed=2)
    assert describe(trace, cluster_gpus=128)["offered_load_frac"] == pytest.approx(load, rel=0.05)


def test_philly_jobs_fit_the_cluster_and_the_limits():
    frame = generate("philly:cluster_gpus=10:max_s=3600", jobs=5000).frame
    assert frame["gpus"].max() == 8
    assert frame["duration_s"].max() == 3600
    assert frame["duration_s"].min() >= 1
    assert generate("philly:cluster_gpus=64:max_gpus=2", jobs=5000).frame["gpus"].max() == 2


def test_services_last_the_whole_horizon():
    frame = generate("services:horizon_h=2", jobs=3).frame
    assert frame["kind"].to_list() == ["service"] * 3
    assert frame["duration_s"].to_list() == [7200.0] * 3
    assert frame["gpus"].to_list() == [1, 1, 1]


@pytest.mark.parametrize("name", ["poisson", "daily", "bursts", "philly"])
def test_elastic_jobs_run_on_1_to_64_gpus_and_each_application_scales_in_its_own_way(name):
    rigid, elastic = generate(name, jobs=60, seed=3), generate(f"{name}:elastic=true", jobs=60, seed=3)
    assert elastic.frame.drop("min_gpus", "max_gpus").equals(rigid.frame.drop("min_gpus", "max_gpus"))
    assert set(elastic.frame["min_gpus"]) == {1}
    assert set(elastic.frame["max_gpus"]) == {64}
    assert describe(rigid)["elastic_frac"] == 0
    speedups = [elastic.profile(model).speedup for model in PROFILES]
    assert len({s(8) for s in speedups}) == len(PROFILES)
    assert all(s(1) == pytest.approx(1) and 1 < s(8) < s(64) < 64 for s in speedups)
    assert elastic.profile("BERT").app_class == rigid.profile("BERT").app_class
    assert generate(f"{name}:elastic=false", jobs=60, seed=3).frame.equals(rigid.frame)


def test_an_elastic_job_that_asks_for_more_than_64_gpus_may_have_them():
    assert set(generate("poisson:gpus=80:elastic=true", jobs=3).frame["max_gpus"]) == {80}


def test_request_rate_is_a_daily_wave():
    assert request_rate(14 * 3600) == pytest.approx(32)
    assert request_rate(2 * 3600) == pytest.approx(8)
    assert request_rate(38 * 3600) == pytest.approx(request_rate(14 * 3600))
    rates = [request_rate(t * 60.0, mean_per_s=5, amplitude=1) for t in range(1440)]
    assert np.mean(rates) == pytest.approx(5)
    assert min(rates) >= 0


def test_synthetic_models_all_have_a_built_in_profile():
    assert set(generate("poisson", jobs=500).frame["profile"]) == set(PROFILES)
    for name in PROFILES:
        assert profile_named(name) != replace(GENERIC, name=name)


def test_the_demo_is_a_thousand_jobs_at_load_0_9_of_64_gpus():
    found = describe(builtin_demo(), cluster_gpus=64)
    assert found["jobs"] == 1000
    assert found["offered_load_frac"] == pytest.approx(0.9, abs=0.02)
    assert builtin_demo().frame.equals(builtin_demo().frame)


def test_options_may_be_separated_by_commas_and_win_over_arguments():
    assert len(generate("poisson,jobs=3,seed=1", jobs=9, seed=2)) == 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("poison", r"unknown synthetic trace 'poison'\nhint: did you mean 'poisson'"),
        ("poisson:rat_per_h=3", r"no option 'rat_per_h'\nhint: did you mean 'rate_per_h'"),
        ("poisson:rate_per_h=-3", "option rate_per_h: found '-3', expected jobs per hour above 0"),
        ("poisson:rate_per_h=inf", "option rate_per_h"),
        ("poisson:rate_per_h=fast", "option rate_per_h: found 'fast'"),
        ("poisson:gpus=1.5", "option gpus: found '1.5'"),
        ("poisson:size=pareto", "expected one of exponential, deterministic"),
        ("poisson:cv=2", "option cv: found 2, but size=exponential has a cv of its own"),
        ("poisson:size=hyperexponential:cv=0.5", "expected 1 or more"),
        ("poisson:size=lognormal:cv=0", "option cv: found '0'"),
        ("poisson:gpus", "found 'gpus', expected option=value"),
        ("poisson:gpus=1:gpus=2", "more than once"),
        ("poisson:jobs=0", "option jobs"),
        ("poisson:elastic=maybe", "option elastic: found 'maybe', expected one of false, true"),
        ("services:elastic=true", "no option 'elastic'"),
        ("daily:amplitude=2", "a number from 0 to 1"),
        ("bursts:mean_batch=0.5", "1 or more"),
        ("philly:load=0", "option load"),
        ("services:horizon_h=0", "option horizon_h"),
        ("", "unknown synthetic trace ''"),
    ],
)
def test_a_wrong_spec_is_explained(spec, message):
    with pytest.raises(InputError, match=message):
        generate(spec)


def test_wrong_arguments_are_explained():
    with pytest.raises(InputError, match="jobs: found '0'"):
        generate("poisson", jobs=0)
    with pytest.raises(InputError, match="seed: found '-1'"):
        generate("poisson", seed=-1)

from __future__ import annotations

import json

import polars as pl
import pytest

from fairlead.traces import Trace, describe, load
from tests.traces.samples import CHRONUS, OPENB, OWN, SIA_PHILLY


def test_counts_times_and_load(written):
    found = describe(load(written(OWN)), cluster_gpus=8)
    assert found["jobs"] == 3
    assert found["span_s"] == 7.0
    assert found["gpus_histogram"] == {1: 1, 2: 1, 4: 1}
    assert found["duration_median_s"] == 60.0
    assert found["gpu_hours"] == pytest.approx((60 + 4 * 120.25 + 2 * 30) / 3600)
    assert found["offered_load_gpus"] == pytest.approx(601 / 7)
    assert found["offered_load_frac"] == pytest.approx(601 / 7 / 8)
    assert found["arrivals_per_h"] == pytest.approx(2 / 7 * 3600)


def test_shares_formats_and_notes(written):
    chronus, openb, sia = (describe(load(written(text))) for text in (CHRONUS, OPENB, SIA_PHILLY))
    assert chronus["deadlines_frac"] == pytest.approx(2 / 3)
    assert chronus["notes"] == ["jobs that asked for no GPU: 1 left out"]
    assert openb["services_frac"] == pytest.approx(1 / 3)
    assert openb["fractional_frac"] == pytest.approx(1 / 3)
    assert (sia["format"], sia["wraps"], sia["elastic_frac"]) == ("sia-philly", True, 0.0)


def test_one_moment_has_no_rate_and_the_result_is_json():
    one = Trace.from_columns(pl.DataFrame({"job_id": ["a"], "submit_s": [3.0], "gpus": [1], "duration_s": [1.0]}))
    found = describe(one, cluster_gpus=4)
    assert (found["arrivals_per_h"], found["offered_load_gpus"], found["offered_load_frac"]) == (None, None, None)
    json.dumps(found)


def test_fractions_of_a_gpu_count_as_such():
    columns = {"job_id": ["a"], "submit_s": [0.0], "gpus": [1], "duration_s": [3600.0], "gpu_frac": [0.25]}
    assert describe(Trace.from_columns(pl.DataFrame(columns)))["gpu_hours"] == 0.25

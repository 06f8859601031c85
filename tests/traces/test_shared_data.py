"""Facts of the public data; skipped, and said so, where it isn't there."""

from __future__ import annotations

import pytest

from fairlead.traces import Trace, describe, load
from tests.traces.samples import SHARED


def shared(name: str) -> Trace:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"public data not present: {path}")
    return load(path)


def test_philly_has_its_82247_jobs_and_gpu_hours():
    trace = shared("philly/philly.csv")
    found = describe(trace)
    assert found["jobs"] == 82_247
    assert found["gpu_hours"] == pytest.approx(978_078.47, abs=0.01)
    assert found["span_s"] == 9_408_690.0
    assert found["users"] == 15
    assert trace.frame["submit_s"][0] == 0.0
    assert trace.frame["submit_s"].is_sorted()
    assert (trace.frame["duration_s"] == trace.frame["duration_s"].floor()).all()
    assert found["gpus_histogram"][1] == 76_627
    assert trace.notes == ()


def test_philly_ties_keep_the_order_of_the_file():
    frame = shared("philly/philly.csv").frame.select("submit_s", "job_id")
    rows = frame.with_columns(frame["job_id"].cast(int))
    for (submit_s, row), (next_s, next_row) in zip(rows.rows(), rows.rows()[1:], strict=False):
        assert submit_s < next_s or row < next_row


@pytest.mark.parametrize("number", range(1, 6))
def test_sia_philly_traces_have_160_jobs_and_wrap(number):
    trace = shared(f"pal/traces/workload-{number}.csv")
    assert (trace.format, len(trace)) == ("sia-philly", 160)
    assert trace.wrap is not None
    assert trace.frame["job_id"].to_list() == [str(i) for i in range(160)]


@pytest.mark.parametrize("name", [f"pollux/workloads/workload-{i}.csv" for i in range(1, 6)])
def test_pollux_workloads_have_160_elastic_jobs(name):
    trace = shared(name)
    assert (trace.format, len(trace)) == ("pollux", 160)
    assert describe(trace)["elastic_frac"] == 1.0


def test_boas_testbed_trace_is_a_pollux_workload_of_85_jobs():
    trace = shared("boa/workload-1-cbd.csv")
    assert (trace.format, len(trace)) == ("pollux", 85)


def test_chronus_deadlines_leave_room_for_every_job():
    trace = shared("chronus/trace_job_Philly_SLO.csv")
    assert (trace.format, len(trace)) == ("chronus", 30_735)
    assert trace.notes == ("jobs that asked for no GPU: 205 left out",)
    assert (trace.frame["deadline_s"] > trace.frame["duration_s"]).all()
    assert describe(trace)["span_s"] == pytest.approx(14 * 86_400, rel=0.01)


def test_openb_pods():
    trace = shared("alibaba/openb_pod_list_default.csv")
    found = describe(trace)
    assert (trace.format, found["jobs"]) == ("openb", 7_063)
    assert set(trace.notes) == {
        "pods that asked for no GPU: 1,088 left out",
        "pods that ran for no time: 1 left out",
        "jobs that ask for a part of a GPU: 3,077 (43.6%); they share GPUs",
    }
    assert found["services_frac"] == pytest.approx(0.568, abs=0.001)


def test_pollux_table_is_the_measured_goodput_summed_over_epochs():
    import polars as pl

    from fairlead.traces.formats.pollux import WHOLE_JOB_S, WIDTHS

    path = SHARED / "pollux/goodput_t4.csv"
    if not path.exists():
        pytest.skip(f"public data not present: {path}")
    seconds = pl.col("delta_progress") / pl.col("goodput_progress_per_s")
    measured = pl.read_csv(path).group_by("app", "gpus").agg(seconds.sum().alias("s"))
    for app, gpus, whole_job_s in measured.rows():
        if gpus in WIDTHS:
            assert WHOLE_JOB_S[app][WIDTHS.index(gpus)] == pytest.approx(whole_job_s, rel=0.001)

"""Parts of a trace on clusters of their own, and all of them together."""

from __future__ import annotations

import polars as pl
import pytest

from fairlead import api
from fairlead.errors import InputError
from fairlead.traces import Trace, Wrap

COLUMNS = {
    "job_id": ["a", "b", "c", "d", "e"],
    "submit_s": [0.0, 10.0, 20.0, 30.0, 40.0],
    "gpus": [8, 8, 4, 4, 16],
    "duration_s": [100.0, 100.0, 50.0, 60.0, 1000.0],
    "vc": ["x", "x", "y", "y", "z"],
    "user": ["u", "v", "u", "v", "u"],
}


def trace(rows: int = 5) -> Trace:
    return Trace.from_columns(pl.DataFrame(COLUMNS).head(rows))


def test_each_part_runs_as_it_would_alone():
    whole = api.simulate(trace(4), "1x8", "fifo", split="vc")
    for name, rows in (("x", [0, 1]), ("y", [2, 3])):
        alone = api.simulate(Trace.from_columns(pl.DataFrame(COLUMNS)[rows]), "1x8", "fifo")
        part = whole.parts[name]
        assert part.jobs.equals(alone.jobs)
        same = {key for key in alone.summary if key != "wall_s"}
        assert {key: part.summary[key] for key in same} == {key: alone.summary[key] for key in same}


def test_figures_of_jobs_are_over_all_jobs_and_those_of_clusters_add_up():
    whole = api.simulate(trace(4), "1x8", "fifo", split="vc")
    parts = [part.summary for part in whole.parts.values()]
    # b waits for a (90 s), c and d run at once.
    assert whole.jobs["jct_s"].to_list() == [100.0, 190.0, 50.0, 60.0]
    assert whole.jobs["part"].to_list() == ["x", "x", "y", "y"]
    assert whole.summary["mean_jct_s"] == pytest.approx(100.0)
    assert whole.summary["makespan_s"] == 200.0
    assert whole.summary["gpus"] == 16
    for key in ("energy_j", "idle_energy_j", "cost_usd", "gpu_hours", "gpu_hours_paid", "events"):
        assert whole.summary[key] == pytest.approx(sum(part[key] for part in parts)), key
    # x holds 8 GPUs for 200 s of 200, y 4 x 50 + 4 x 60 GPU-seconds of 8 x 90.
    assert whole.summary["gpu_busy_frac"] == pytest.approx((1600 + 440) / (1600 + 720))
    assert whole.summary["gpus_paid_mean"] == pytest.approx((1600 + 720) / 200)
    assert list(whole.summary) == list(parts[0])


def test_the_timeline_of_all_parts_holds_the_same_energy_and_busy_time():
    whole = api.simulate(trace(4), "1x8", "fifo", split="vc")
    timeline = whole.timeline.with_columns((pl.col("end_s") - pl.col("start_s")).alias("length_s"))
    assert timeline["start_s"][1:].to_list() == timeline["end_s"][:-1].to_list()
    held = {name: float((timeline[name] * timeline["length_s"]).sum()) for name in timeline.columns[2:-1]}
    parts = {
        name: sum(
            float((p.timeline[name] * (p.timeline["end_s"] - p.timeline["start_s"])).sum())
            for p in whole.parts.values()
        )
        for name in held
    }
    assert held == pytest.approx(parts)


def test_a_file_gives_every_part_its_cluster(tmp_path):
    sizes = tmp_path / "vc_config.csv"
    sizes.write_text(",num\nx,2\ny,1\nz,2\n")
    whole = api.simulate(trace(), sizes, "fifo", split="vc")
    assert {name: part.summary["gpus"] for name, part in whole.parts.items()} == {"x": 16, "y": 8, "z": 16}
    assert whole.summary["mean_wait_s"] == 0.0
    sizes.write_text("vc,cluster\nx,1x8:A100\ny,2x2\nz,4x4\n")
    whole = api.simulate(trace(), sizes, "fifo", split="vc")
    assert whole.parts["x"].cluster == "1 nodes x 8 A100, 8 GPUs"


def test_helios_gives_gpus_by_the_day_and_the_most_count(tmp_path):
    sizes = tmp_path / "cluster_gpu_number.csv"
    sizes.write_text("date,x,y,z,total\n2020-04-01,8,4,0,12\n2020-04-02,4,12,16,32\n")
    whole = api.simulate(trace(), sizes, "fifo", split="vc")
    assert [part.cluster for part in whole.parts.values()] == [
        "1 nodes x 8 V100, 8 GPUs",
        "1 nodes x 8 V100 + 1 nodes x 4 V100, 12 GPUs",
        "2 nodes x 8 V100, 16 GPUs",
    ]


def test_a_part_without_gpus_is_an_error_or_left_out(tmp_path):
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("vc,gpus\nx,8\ny,0\n")
    with pytest.raises(InputError, match="no GPUs for vc 'y', which has 2 jobs"):
        api.simulate(trace(), sizes, "fifo", split="vc")
    whole = api.simulate(trace(), sizes, "fifo", split="vc", drop_too_wide=True)
    assert list(whole.parts) == ["x"]
    assert whole.notes == (
        "vc y: 2 jobs left out, no GPUs for them",
        "vc z: 1 jobs left out, no GPUs for them",
    )


def test_jobs_that_never_fit_are_left_out_when_told():
    with pytest.raises(InputError, match="can never fit") as error:
        api.simulate(trace(), "1x8", "fifo")
    assert "--drop-too-wide" in (error.value.hint or "")
    result = api.simulate(trace(), "1x8", "fifo", drop_too_wide=True)
    assert result.jobs["job_id"].to_list() == ["a", "b", "c", "d"]
    assert result.notes == ("jobs that can never fit on 1 nodes x 8 V100, 8 GPUs: 1 left out",)
    narrow = api.simulate(trace(), "1x8", "fifo", drop_too_wide=True, drain=["0"])
    assert narrow.jobs["job_id"].to_list() == ["c", "d"]


def test_every_policy_of_a_comparison_leaves_out_the_same_jobs():
    columns = {**COLUMNS, "min_gpus": [1] * 5, "max_gpus": COLUMNS["gpus"]}
    elastic = Trace.from_columns(pl.DataFrame(columns))
    assert len(api.simulate(elastic, "1x8", "sizing=equal", drop_too_wide=True).jobs) == 5
    both = api.compare(["sizing=equal", "fifo"], elastic, "1x8", drop_too_wide=True, workers=1)
    assert [len(result.jobs) for result in both] == [4, 4]


def test_jobs_that_need_more_memory_than_any_gpu_has_are_too_wide():
    columns = {**COLUMNS, "memory_mib": [0.0, 40_000.0, 0.0, 0.0, 0.0]}
    result = api.simulate(Trace.from_columns(pl.DataFrame(columns)), "2x8:V100", "fifo", drop_too_wide=True)
    assert result.jobs["job_id"].to_list() == ["a", "c", "d", "e"]


def test_a_comparison_can_be_split():
    results = api.compare(["fifo", "srtf"], trace(4), "1x8", split="user", workers=1)
    assert [list(result.parts) for result in results] == [["u", "v"], ["u", "v"]]
    assert [result.policy.split(",")[1] for result in results] == ["ordering=fifo", "ordering=srtf"]


@pytest.mark.parametrize(
    ("column", "message"), [("colour", "can't be split by 'colour'"), ("group", "does not say the group")]
)
def test_what_a_trace_does_not_say_it_can_not_be_split_by(column, message):
    with pytest.raises(InputError, match=message):
        api.simulate(trace(), "1x8", "fifo", split=column)


def test_jobs_without_a_virtual_cluster_are_a_part_of_their_own():
    columns = {**COLUMNS, "vc": ["x", None, "x", "", "x"]}
    assert list(Trace.from_columns(pl.DataFrame(columns)).split("vc")) == ["(none)", "x"]


def test_what_has_no_meaning_for_parts_is_refused(tmp_path):
    wrapping = Trace(trace().frame, wrap=Wrap())
    with pytest.raises(InputError, match="arrivals go on") as error:
        api.simulate(wrapping, "1x8", "fifo", split="vc")
    assert "--no-wrap" in (error.value.hint or "")
    with pytest.raises(InputError, match="services"):
        api.simulate(trace(), "1x8", "fifo", split="vc", services=tmp_path / "services.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vc,num\nx,many\n", "line 2: found 'many', expected a whole number"),
        ("vc,num,more\nx,1,2\n", "3 columns, expected 2"),
        ("vc,num\nx\n", "line 2: found 1 cells, expected 2"),
        ("vc,num\nx,0x8\n", "both must be at least 1"),
        ("date,x\n2020-01-01,-4\n", "line 2: found '-4'"),
    ],
)
def test_a_bad_file_of_clusters_is_named(tmp_path, text, message):
    sizes = tmp_path / "sizes.csv"
    sizes.write_text(text)
    with pytest.raises(InputError, match=message):
        api.simulate(trace(2), sizes, "fifo", split="vc")

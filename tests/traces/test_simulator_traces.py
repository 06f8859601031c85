"""Traces that other simulators read: Tiresias and its relatives, Gavel, Shockwave. Rows are ours, in their layout."""

from __future__ import annotations

import pytest

from fairlead import api
from fairlead.errors import InputError
from fairlead.traces import load
from tests.traces.samples import ELASTICFLOW, GAVEL, MURI, SHARED, SHOCKWAVE, THROUGHPUTS, TIRESIAS
from tests.traces.test_formats import column


def test_tiresias_has_seconds_on_the_gpus_asked_for(written):
    trace = load(written(TIRESIAS))
    assert column(trace, "duration_s") == [190.0, 150.0, 120.0]
    assert column(trace, "submit_s") == [0.0, 25.0, 55.0]
    assert column(trace, "gpus") == [1, 8, 4]
    assert column(trace, "profile") == ["vgg19", "resnet50", "alexnet"]


def test_muri_has_milliseconds_and_priorities_the_other_way_round(written):
    trace = load(written(MURI))
    assert trace.format == "tiresias"
    assert column(trace, "duration_s") == [950.0, 437.0]
    assert column(trace, "submit_s") == [0.0, 12.0]
    assert column(trace, "priority") == [0, -1]
    assert "milliseconds" in trace.notes[0]


def test_elasticflow_has_deadlines_on_its_clock(written):
    trace = load(written(ELASTICFLOW))
    assert trace.format == "tiresias"
    assert column(trace, "deadline_s") == [700.0, None, 880.0]
    assert column(trace, "submit_s") == [1000.0, 1010.0, 1020.0]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration",
         "u-1,5,9,bert,50,64,4,30"),
        ("job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration",
         "u-1,5,9,bert,50,64,4,99,30,9"),
    ],
)  # fmt: skip
def test_elasticflows_other_headers_are_read_too(written, header, row):
    trace = load(written(f"{header}\n{row}\n"))
    assert trace.format == "tiresias"
    assert trace.frame.row(0, named=True) | {"job_id": "u-1", "submit_s": 5.0, "gpus": 4, "duration_s": 30.0} == (
        trace.frame.row(0, named=True)
    )
    assert column(trace, "deadline_s") == [45.0]


def test_elasticflows_raw_traces_are_plain(written):
    trace = load(written("job_id,submission_time,duration,num_gpu\nu-1,100,3890,4\n"))
    assert (trace.format, column(trace, "duration_s"), column(trace, "gpus")) == ("plain", [3890.0], [4])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "tables" / "rates.json"
    path.parent.mkdir()
    path.write_text(THROUGHPUTS)
    return path


def test_gavel_jobs_last_their_steps_over_the_rate_at_their_width(written, table):
    trace = load(written(GAVEL), throughputs=table)
    assert column(trace, "job_id") == ["0", "1", "2"]
    assert column(trace, "duration_s") == [800 / 80.0, 6000 / 60.0, 70 / 7.0]
    assert column(trace, "gpus") == [1, 2, 1]
    assert column(trace, "submit_s") == [0.0, 30.0, 45.5]
    assert column(trace, "deadline_s") == [None, 200.0, None]
    assert column(trace, "priority") == [1, 5, 1]
    assert column(trace, "profile") == ["LM bs10", "ResNet-18 bs32", "A3C"]
    assert trace.profile("ResNet-18 bs32").speedup(2) == 2.0
    assert trace.notes == (f"step rates and speedups are those of v100 in {table}",)


def test_gavel_models_have_the_names_of_our_table_of_pairs(written, table):
    from fairlead.model.interference import built_in

    known = {name for entry in built_in("gavel-v100").to_dict()["sets"] for name in entry["names"]}
    assert set(column(load(written(GAVEL), throughputs=table), "profile")) <= known


def test_another_gpu_type_has_other_durations(written, table):
    path = written("".join(line for line in GAVEL.splitlines(keepends=True) if "ResNet" not in line))
    assert column(load(path, throughputs=f"{table}:k80"), "duration_s") == pytest.approx([100.0, 100.0])


@pytest.mark.parametrize("key", ["('A3C', 1)", "A3C", "A3C (scale factor 1)", '("A3C", 1)'])
def test_tables_name_job_types_in_several_ways(written, tmp_path, key):
    import json

    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"p100": {key: {"null": 7.0}}}))
    assert column(load(written(OLD_LAYOUTS[10]), throughputs=path), "duration_s") == [10.0]


OLD_LAYOUTS = {
    6: "A3C\tpython3 main.py\t--max-steps\t70\t12\t1\n",
    7: "A3C\tpython3 main.py\t--max-steps\t0\t70\t12.000000\t1\n",
    9: "A3C\tpython3 main.py\t--max-steps\t0\t70\t1\t1\t-1.000000\t12\n",
    10: "A3C\tpython3 main.py\trl\t--max-steps\t0\t70\t1\t1\t-1.000000\t12\n",
    11: "A3C\tpython3 main.py\trl\t--max-steps\t0\t70\t1\tstatic\t1\t-1.000000\t12\n",
    12: "A3C\tpython3 main.py\trl\t--max-steps\t0\t99\t1\tstatic\t1\t-1.000000\t10\t12\n",
}


@pytest.mark.parametrize("cells", OLD_LAYOUTS)
def test_gavels_layouts_are_told_apart_by_their_cells(written, table, cells):
    assert OLD_LAYOUTS[cells].count("\t") == cells - 1
    trace = load(written(OLD_LAYOUTS[cells]), throughputs=table)
    assert (column(trace, "submit_s"), column(trace, "gpus"), column(trace, "duration_s")) == ([12.0], [1], [10.0])


def test_shockwave_has_durations_of_its_own_and_says_who_changes_batches(written):
    trace = load(written(SHOCKWAVE))
    assert column(trace, "duration_s") == [1400.0, 700.0]
    assert column(trace, "gpus") == [1, 4]
    assert trace.notes == ("jobs that change their batch while they train: 1 run as they begin",)


def test_a_table_that_lies_above_the_trace_is_found(tmp_path):
    trace = tmp_path / "traces" / "small" / "x.trace"
    trace.parent.mkdir(parents=True)
    trace.write_text(GAVEL)
    (tmp_path / "simulation_throughputs.json").write_text(THROUGHPUTS)
    assert "simulation_throughputs.json" in load(trace).notes[0]


def test_a_gavel_trace_without_a_table_says_what_to_give(written):
    with pytest.raises(InputError, match="counts steps") as error:
        load(written(GAVEL))
    assert "--throughputs" in (error.value.hint or "")


def test_a_job_type_that_the_table_lacks_is_a_bad_row(written, table):
    path = written(GAVEL.replace("A3C", "GAN"))
    with pytest.raises(InputError, match="line 3, column job_type: found 'GAN', expected a job type with a rate on 1"):
        load(path, throughputs=table)
    assert len(load(path, throughputs=table, skip_bad_rows=True)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "no table of throughputs"),
        ('{"v100": {"A3C": {"null": "fast"}}}', "A3C: found 'fast', expected steps per second"),
        ('{"a100": {"A3C": 1}, "k80": {"A3C": 1}}', "has no GPU type 'a100'|no GPU type"),
        ('{"v100": {}}', "no rate of a job alone"),
    ],
)
def test_a_bad_table_is_named(written, tmp_path, text, message):
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load(written(GAVEL), throughputs=path)


def test_a_table_that_is_not_there_is_an_error_for_people(written, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load(written(GAVEL), throughputs=tmp_path / "nothing.json")


def test_gavels_own_table_gives_rates_for_every_distributed_width(written):
    path = SHARED / "gavel" / "simulation_throughputs.json"
    if not path.exists():
        pytest.skip(f"public data not present: {path}")
    trace = load(written(GAVEL.replace("A3C", "CycleGAN")), throughputs=path)
    # 800 steps at 81.65 a second; 6,000 on two GPUs at 94.25; 70 at 4.43.
    assert column(trace, "duration_s") == pytest.approx([9.798, 63.661, 15.815], abs=1e-3)
    assert trace.profile("ResNet-18 bs32").speedup(8) == pytest.approx(340.038 / 29.947, rel=1e-3)
    assert api.simulate(trace, "1x4", "fifo", interference="gavel-v100").summary["jobs"] == 3

"""Which format a file is taken for, what is said where it could be another, and where its clock starts."""

from __future__ import annotations

import os
import threading

import pytest

from fairlead import api
from fairlead.errors import InputError
from fairlead.traces import load
from tests.traces.samples import EVERY_FORMAT, OWN, PLAIN, SHARED, SIA_PHILLY
from tests.traces.test_formats import column

HEAD = "job_id,num_gpus,submit_time,duration,model"


def test_seconds_under_the_header_of_pals_artifact_stay_seconds(written):
    trace = load(written(PLAIN))
    assert (trace.format, trace.wrap) == ("plain", None)
    assert column(trace, "duration_s") == [3600.0, 1800.0]
    assert trace.notes == (
        "duration is taken for seconds, since no other format fits (nearest is sia-philly, but its iteration counts "
        "are whole and written like 1481.0, found '3600')",
    )


@pytest.mark.parametrize(
    ("rows", "format"),
    [
        ("0,1,0,3600.0,resnet50\n1,1,0,60.0,vgg19\n", "sia-philly"),
        ("0,1,0,3600.0,resnet50\n1,1,0,60.5,vgg19\n", "plain"),
        ("1,1,0,3600.0,resnet50\n", "plain"),
        ("a,1,0,3600.0,resnet50\n", "plain"),
        ("0,1,0,3600.0,llama\n", "plain"),
        ("0,1,0,3600,resnet50\n", "plain"),
    ],
)
def test_iteration_counts_need_all_the_marks_of_the_artifact(written, rows, format):
    assert load(written(f"{HEAD}\n{rows}")).format == format


def test_other_columns_or_another_order_are_not_the_artifacts(written):
    assert load(written("job_id,num_gpus,submit_time,duration,model,user\n0,1,0,36.0,vgg19,u\n")).format == "plain"
    assert load(written("num_gpus,job_id,submit_time,duration,model\n1,0,0,36.0,vgg19\n")).format == "plain"


def test_a_user_can_say_which_it_is(written):
    assert column(load(written(PLAIN), format="sia-philly"), "duration_s")[0] == pytest.approx(631.455, abs=1e-3)
    assert column(load(written(SIA_PHILLY), format="plain"), "duration_s") == [1481.0, 4037.0, 1000.0]


def test_iteration_counts_are_not_assumed_in_silence(written):
    assert any("iteration counts" in note and "--format plain" in note for note in load(written(SIA_PHILLY)).notes)


@pytest.mark.parametrize("number", range(1, 6))
def test_the_artifacts_own_traces_keep_their_iteration_counts(number):
    path = SHARED / f"pal/traces/workload-{number}.csv"
    if not path.exists():
        pytest.skip(f"public data not present: {path}")
    trace, seconds = load(path), load(path, format="plain")
    assert trace.format == "sia-philly"
    assert (trace.frame["duration_s"] < seconds.frame["duration_s"]).any()
    assert trace.frame["duration_s"].sum() != seconds.frame["duration_s"].sum()


def test_plain_files_run_from_start_to_end_where_they_say_so(written):
    day = "2024-01-01"
    row = f"a,1,{day} 00:00:00,{day} 00:01:00,{day} 00:03:00,180"
    trace = load(written(f"id,gpus,submit,start_time,end_time,runtime\n{row}\n"))
    assert (column(trace, "submit_s"), column(trace, "duration_s")) == ([0.0], [120.0])


@pytest.mark.parametrize(
    ("first", "unit"), [(1_600_000_000, "seconds"), (1_600_000_000_000, "milliseconds"), (1_600_000_000.5, "seconds")]
)
def test_unix_time_starts_at_its_own_zero(written, first, unit):
    later = 1000 if unit == "milliseconds" else 1
    text = f"job_id,submit_s,gpus,duration_s\na,{first + 60 * later},1,60\nb,{first},1,60\nc,{first + 9 * later},1,60\n"
    trace = load(written(text))
    assert column(trace, "submit_s") == [0.0, 9.0, 60.0]
    assert trace.notes == (
        f"submissions are Unix {unit}: the trace starts with its first job, at 2020-09-13 12:26:40 UTC",
    )
    summary = api.simulate(trace, "1x4", "fifo").summary
    assert (summary["makespan_s"], summary["jobs"]) == (120.0, 3)


@pytest.mark.parametrize("text", [PLAIN.replace(",0,36", ",1600000000,36").replace(",60,", ",1600000060,")])
def test_unix_time_in_other_formats_starts_at_zero_too(written, text):
    assert column(load(written(text)), "submit_s") == [0.0, 60.0]


def test_a_first_job_that_comes_late_is_said(written):
    text = "job_id,submit_s,gpus,duration_s\na,3715485,1,60\nb,3715500,1,60\n"
    trace = load(written(text))
    assert column(trace, "submit_s") == [3_715_485.0, 3_715_500.0]
    assert "3,715,485 s after the trace's start" in trace.notes[0]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("job_id,user,vc,gpu_num,submit_time\n1,u,v,1,2020\n", "'helios', which also needs state, duration;"),
        ("job_id,submit_s,gpus,duraton_s\na,0,1,2\n", "'fairlead', which also needs duration_s (your 'duraton_s'?);"),
        ("job_id,num_gpu,submit_time,model_name,iterations\n1,1,0,v,9\n", "'tiresias', which also needs duration;"),
        ('{"kind": "ConfigMap", "metadata": {}, "spec": {}}', "'kubernetes', but its objects are workloads, pods"),
    ],
)
def test_hints_name_the_nearest_format_and_what_speaks_against_it(written, text, hint):
    with pytest.raises(InputError) as error:
        load(written(text))
    assert f"closest is {hint}" in (error.value.hint or "")


@pytest.mark.parametrize("name", ["helios", "sacct", "tiresias", "lucid", "plain", "acme"])
def test_empty_rows_and_other_column_orders_change_nothing(written, name):
    text = EVERY_FORMAT[name]
    mark = "|" if name == "sacct" else ","
    lines = text.splitlines()
    expected = load(written(text))
    cells = len(lines[0].split(mark))
    blanks = "\n\n" + "\n".join([lines[0], mark * (cells - 1), "   ", *lines[1:], mark * (cells - 1), ""]) + "\n\n"
    assert load(written(blanks)).frame.equals(expected.frame)
    turned = "\n".join(mark.join(reversed(line.split(mark))) for line in lines)
    assert load(written(turned)).frame.equals(expected.frame)


@pytest.mark.parametrize("name", ["helios", "tiresias", "lucid", "plain", "acme", "chronus", "philly-csv"])
def test_quotes_change_nothing(written, name):
    text = EVERY_FORMAT[name]
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines() if line)
    assert load(written(quoted), format=name).frame.equals(load(written(text)).frame)


def test_a_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(OWN))
    writer.start()
    trace = load(pipe)
    writer.join()
    assert column(trace, "job_id") == ["a", "b", "c"]

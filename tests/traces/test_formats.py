from __future__ import annotations

from math import ceil

import pytest

from fairlead.errors import InputError
from fairlead.traces import Trace, load
from fairlead.traces.formats import FORMATS
from fairlead.traces.trace import SCHEMA
from tests.traces.samples import ALIBABA_HEADER, ALIBABA_JOBS, ALIBABA_ROWS, EVERY_FORMAT, OWN, PHILLY_CSV, SIA_PHILLY


def column(trace: Trace, name: str) -> list[object]:
    return trace.frame[name].to_list()


def test_there_is_a_sample_for_every_registered_format():
    assert set(EVERY_FORMAT) == {f.name for f in FORMATS}


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_a_format_is_found_by_content_whatever_the_file_is_called(written, name):
    path = written(EVERY_FORMAT[name], "something.txt")
    trace = load(path)
    assert trace.format == name
    assert trace.frame.columns == list(SCHEMA)
    assert trace.source == str(path)
    assert trace.frame.equals(load(path, format=name).frame)


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_only_one_format_recognises_each_sample(written, name):
    from fairlead.traces.source import open_source

    source = open_source(written(EVERY_FORMAT[name]))
    assert [f.name for f in FORMATS if f.recognises(source)] == [name]


@pytest.mark.parametrize("name", [n for n in EVERY_FORMAT if n != "philly-json"])
def test_bom_and_windows_line_ends_change_nothing(written, name):
    plain = load(written(EVERY_FORMAT[name]))
    windows = load(written(b"\xef\xbb\xbf" + EVERY_FORMAT[name].replace("\n", "\r\n").encode()))
    assert windows.frame.equals(plain.frame)


@pytest.mark.parametrize("name", [n for n in EVERY_FORMAT if n != "philly-json"])
def test_a_last_line_without_a_line_end_counts(written, name):
    assert load(written(EVERY_FORMAT[name].rstrip("\n"))).frame.equals(load(written(EVERY_FORMAT[name])).frame)


def test_own_format_takes_columns_in_any_order_and_notes_unknown_ones(written):
    trace = load(written("colour,duration_s,gpus,job_id,line,submit_s\nred,60,2,x,9,3\n"))
    assert trace.frame.row(0)[:4] == ("x", 3.0, 2, 60.0)
    assert trace.notes == ("ignored unknown columns: colour, line",)


def test_own_format_keeps_submit_times_and_fills_empty_cells(written):
    head = "job_id,submit_s,gpus,duration_s,model,kind,min_gpus,max_gpus,memory_mib,deadline_s,priority,user,gpu_frac\n"
    trace = load(written(head + "x,100,4,60,,,,,,,,,\ny,90,1,60,BERT,service,1,1,512.5,99,-2,ann,0.5\n"))
    assert trace.frame.rows() == [
        ("y", 90.0, 1, 60.0, "BERT", "service", 1, 1, 512.5, 0.5, 99.0, -2, "ann", 0, "", 0.0, 0.0, ""),
        ("x", 100.0, 4, 60.0, "generic", "training", 4, 4, 0.0, 1.0, None, 0, "", 0, "", 0.0, 0.0, ""),
    ]


def test_own_format_calls_what_a_job_is_like_its_profile_and_reads_model_for_it(written):
    head = "job_id,submit_s,gpus,duration_s"
    assert column(load(written(f"{head},profile\nx,0,1,60,BERT\n")), "profile") == ["BERT"]
    both = load(written(f"{head},model,profile\nx,0,1,60,vgg19,BERT\n"))
    assert (column(both, "profile"), both.notes) == (["BERT"], ("ignored unknown columns: model",))


def test_own_format_reads_quoted_cells(written):
    trace = load(written('job_id,submit_s,gpus,duration_s,user\n"a, ""b""\nc",0,1,"60",\nd,1,1,5,"x"\n'))
    assert column(trace, "job_id") == ['a, "b"\nc', "d"]
    assert column(trace, "user") == ["", "x"]


def test_philly_csv_counts_from_the_earliest_row_and_keeps_file_order_on_ties(written):
    trace = load(written(PHILLY_CSV))
    assert column(trace, "job_id") == ["1", "0", "2"]
    assert column(trace, "submit_s") == [0.0, 2932.0, 2932.0]
    assert column(trace, "duration_s") == [2951.0, 66.0, 10.0]
    assert column(trace, "user") == ["6214e9", "11cb48", "6c71a0"]


def test_sia_philly_turns_iterations_into_seconds_and_wraps(written):
    trace = load(written(SIA_PHILLY))
    assert column(trace, "duration_s") == [1481.0 * 0.300610341, 4037.0 * 0.0469266931, 1000 * 0.179]
    assert column(trace, "submit_s") == [98.0, 115.0, 178.0]
    assert trace.wrap is not None
    assert (trace.wrap.rate_per_h, trace.wrap.seed) == (2.0, 1)
    assert "starts again" in trace.notes[0]
    assert trace.profile("DCGAN").app_class == "B"


def test_sia_philly_ends_with_its_last_row_when_told(written):
    trace = load(written(SIA_PHILLY), wrap=False)
    assert trace.wrap is None
    assert trace.notes == ()
    assert len(list(trace.arrivals())) == 3


def test_sia_philly_names_the_models_it_knows(written):
    with pytest.raises(InputError, match=r"line 3, column model: found 'LLaMA', expected one of BERT, DCGAN"):
        load(written(SIA_PHILLY.replace("DCGAN", "LLaMA")), format="sia-philly")


def test_pollux_durations_come_from_width_and_application(written):
    trace = load(written(EVERY_FORMAT["pollux"]))
    cifar, imagenet, ncf, bert = column(trace, "duration_s")
    assert 767 < cifar < 1104
    assert imagenet == pytest.approx(42508)
    assert ncf == pytest.approx(45.9)
    assert bert == pytest.approx((13542 * 3312) ** 0.5)  # 2 lies halfway from 1 to 4 in logarithms
    assert set(column(trace, "min_gpus")) == {1}
    assert set(column(trace, "max_gpus")) == {64}


def test_pollux_profiles_agree_with_the_durations(written):
    trace = load(written(EVERY_FORMAT["pollux"]))
    for job, duration_s in trace.arrivals():
        on_one_s = duration_s * job.profile.speedup(job.gpus) / job.profile.speedup(1)
        assert on_one_s == pytest.approx(
            {"cifar10": 3723, "imagenet": 532439, "ncf": 45.9, "bert": 13542}[job.profile.name]
        )


def test_pollux_jobs_wider_than_measured_run_as_on_64(written):
    trace = load(written("name,time,application,num_replicas,batch_size\nx,0,bert,100,12\n"))
    assert column(trace, "duration_s") == pytest.approx([1014])
    assert column(trace, "max_gpus") == [100]


def test_chronus_times_are_minutes_and_the_last_expectation_is_the_deadline(written):
    trace = load(written(EVERY_FORMAT["chronus"]))
    assert column(trace, "job_id") == ["1", "2", "0"]
    assert column(trace, "submit_s") == [3000.0, 3600.0, 6000.0]
    assert column(trace, "duration_s") == [1860.0, 6360.0, 12660.0]
    assert column(trace, "deadline_s") == [7200.0, None, 16920.0]
    assert trace.notes == ("jobs that asked for no GPU: 1 left out",)


def test_openb_pods_run_from_when_they_were_scheduled(written):
    trace = load(written(EVERY_FORMAT["openb"]))
    assert column(trace, "job_id") == ["openb-pod-0000", "openb-pod-0001", "openb-pod-0004"]
    assert column(trace, "submit_s") == [10.0, 20.0, 50.0]
    assert column(trace, "duration_s") == [990.0, 100.0, 90.0]
    assert column(trace, "gpu_frac") == [1.0, 0.46, 1.0]
    assert column(trace, "kind") == ["service", "training", "training"]
    assert column(trace, "memory_mib") == [0.0] * 3
    assert set(trace.notes) == {
        "pods that asked for no GPU: 1 left out",
        "pods that ran for no time: 1 left out",
        "ignored gpu_spec: which GPU models a pod accepts",
        "jobs that ask for a part of a GPU: 1 (33.3%); they share GPUs",
    }


def test_openb_needs_a_share_for_a_pod_with_a_gpu(written):
    with pytest.raises(InputError, match="line 2, column gpu_milli: found '0'"):
        load(written(EVERY_FORMAT["openb"].replace(",1,1000,", ",1,0,")))


def test_philly_json_sums_attempts_and_leaves_out_what_never_ran(written):
    trace = load(written(EVERY_FORMAT["philly-json"]))
    assert column(trace, "job_id") == ["app_1", "app_2"]
    assert column(trace, "submit_s") == [0.0, 60.0]
    assert column(trace, "duration_s") == [10.0, 90.0]
    assert column(trace, "gpus") == [1, 8]
    assert trace.notes == ("jobs that never started: 2 left out", "jobs that ran for no time: 1 left out")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2017-10-07 01:00:00", "yesterday", "entry 1, column submitted_time: found 'yesterday'"),
        ("2017-10-07 01:02:00", "soon", "entry 1, column attempts: found"),
        ('"app_1"', "null", "entry 2, column jobid: found nothing"),
        ('"app_1"', '"app_2"', r"entry 2, column jobid: found 'app_2'.*entry 1 has it"),
    ],
)
def test_philly_json_names_the_entry_that_is_bad(written, old, new, message):
    with pytest.raises(InputError, match=message):
        load(written(EVERY_FORMAT["philly-json"].replace(old, new, 1)))


def test_philly_json_entry_that_is_no_object_is_a_bad_row(written):
    trace = load(written(EVERY_FORMAT["philly-json"][:-1] + ", 7]"), skip_bad_rows=True)
    assert trace.skipped_rows == 1
    assert len(trace) == 2


@pytest.mark.parametrize(
    ("name", "ids", "submits", "durations", "gpus"),
    [
        ("helios", ["100", "103"], [0.0, 90.0], [3600.0, 5.0], [8, 2]),
        ("acme", ["dlc1", "dlc2"], [0.0, 10.0], [3600.0, 30.0], [32, 1]),
    ],
)
def test_logs_start_with_the_first_job_that_used_a_gpu(written, name, ids, submits, durations, gpus):
    trace = load(written(EVERY_FORMAT[name]))
    assert column(trace, "job_id") == ids
    assert column(trace, "submit_s") == submits
    assert column(trace, "duration_s") == durations
    assert column(trace, "gpus") == gpus
    assert trace.notes == ("jobs that asked for no GPU: 1 left out", "jobs that ran for no time: 1 left out")


@pytest.mark.parametrize("header", ["", ALIBABA_HEADER])
def test_alibaba_2020_adds_up_the_roles_of_a_job(written, header):
    trace = load(written(header + ALIBABA_ROWS))
    assert column(trace, "job_id") == ["j2", "j1", "j3"]
    assert column(trace, "submit_s") == [0.0, 100.0, 300.0]
    assert column(trace, "duration_s") == [1100.0, 600.0, 100.0]
    assert column(trace, "gpus") == [3, 1, ceil(0.5)]
    assert column(trace, "gpu_frac") == [1.0, 1.0, 0.5]
    assert trace.notes == (
        "rows without a start or an end: 1 left out",
        "jobs that asked for no GPU: 1 left out",
        "jobs that ran for no time: 1 left out",
        "jobs that ask for a part of a GPU: 1 (33.3%); they share GPUs",
    )


@pytest.mark.parametrize("header", ["", "job_name,inst_id,user,status,start_time,end_time\n"])
def test_alibaba_2020_job_table_is_turned_away_with_the_file_to_give(written, header):
    with pytest.raises(InputError, match="says nothing of GPUs") as error:
        load(written(header + ALIBABA_JOBS))
    assert "pai_task_table.csv" in (error.value.hint or "")


def test_leaving_out_everything_is_an_error_that_says_what(written):
    with pytest.raises(InputError, match="no jobs left") as error:
        load(written("\n".join(EVERY_FORMAT["helios"].splitlines()[i] for i in (0, 2))))
    assert "asked for no GPU" in (error.value.hint or "")


def test_a_trace_can_be_a_generator(written):
    trace = load("synthetic:poisson:jobs=7:seed=3")
    assert len(trace) == 7
    assert trace.format == "synthetic"


def test_own_sample_has_three_jobs(written):
    assert [job.name for job, _ in load(written(OWN)).arrivals()] == ["a", "b", "c"]

"""Logs of clusters: Acme, Lucid, Slurm's accounts, Kubernetes. Rows are ours, in the layout of the real files."""

from __future__ import annotations

import json

import pytest

from fairlead.errors import InputError
from fairlead.traces import describe, load
from tests.traces.samples import HELIOS, KALOS, KUEUE, LUCID, SACCT, workload
from tests.traces.test_formats import column


def test_kalos_runs_from_start_to_end_whatever_its_duration_says(written):
    trace = load(written(KALOS))
    assert trace.format == "acme"
    assert column(trace, "job_id") == ["dlc5", "dlc8"]
    assert column(trace, "duration_s") == [8.0, 3600.0]  # not 18 and 4,200, which hold the queue
    assert column(trace, "submit_s") == [0.0, 7200.0]
    assert trace.notes == ("jobs that still run: 1 left out", "jobs that ran for no time: 1 left out")
    assert describe(trace)["gpu_hours"] == pytest.approx((64 * 8 + 2 * 3600) / 3600)


def test_acme_without_times_of_start_and_end_has_its_durations(written):
    lines = [",".join(line.split(",")[:10] + line.split(",")[14:15]) for line in KALOS.splitlines()]
    trace = load(written("\n".join(lines)))
    assert trace.format == "acme"
    assert column(trace, "duration_s") == [18.0, 60.0, 4200.0]
    assert trace.notes == ("jobs that still run: 1 left out",)


@pytest.mark.parametrize("nothing", ["", "NaT", "None", "nan"])
def test_an_end_that_is_missing_may_be_written_in_many_ways(written, nothing):
    row = f"x,u,1,8,1,SFT,RUNNING,2023-05-17 10:00:00+00:00,2023-05-17 10:00:00+00:00,{nothing},{nothing},0,0\n"
    text = KALOS.splitlines()[0].replace("mem_per_pod_GB,shared_mem_per_pod,", "").replace("fail_time,stop_time,", "")
    good = "y,u,1,8,1,SFT,FAILED,2023-05-17 10:00:00+00:00,2023-05-17 10:00:00+00:00,2023-05-17 10:00:09+00:00,9,0,0\n"
    trace = load(written(f"{text}\n{row}{good}"))
    assert column(trace, "job_id") == ["y"]
    assert trace.notes == ("jobs that still run: 1 left out",)


def test_helios_keeps_users_and_virtual_clusters(written):
    trace = load(written(HELIOS))
    assert column(trace, "vc") == ["vc1", "vc2"]
    assert column(trace, "user") == ["uA", "uC"]
    assert describe(trace)["vcs"] == {"vc1": 1, "vc2": 1}
    assert list(trace.split("vc")) == ["vc1", "vc2"]


def test_helios_without_its_optional_columns_is_still_helios(written):
    text = "duration,state,submit_time,vc,gpu_num,job_id\n60,COMPLETED,2020-04-01 00:00:00,vcA,2,9\n"
    trace = load(written(text))
    assert (trace.format, column(trace, "duration_s")) == ("helios", [60.0])


def test_lucid_has_models_and_memory(written):
    trace = load(written(LUCID))
    assert column(trace, "job_id") == ["8", "7"]
    assert column(trace, "submit_s") == [0.0, 10.0]
    assert column(trace, "profile") == ["ResNet50", "ResNet18"]
    assert column(trace, "memory_mib") == [3838.0, 2660.0]
    assert column(trace, "vc") == ["vcY", "vcX"]


def test_lucids_philly_is_called_by_its_job_name_and_may_count_seconds(written):
    text = "user,vc,jobname,gpu_num,state,submit_time,duration\nu,v,app_1,4,Pass,120.0,30\nu,v,app_2,1,Killed,240,60\n"
    trace = load(written(text))
    assert (trace.format, column(trace, "job_id")) == ("lucid", ["app_1", "app_2"])
    assert column(trace, "submit_s") == [120.0, 240.0]


def test_sacct_counts_gpus_and_leaves_out_steps(written):
    trace = load(written(SACCT))
    assert column(trace, "job_id") == ["12", "13_3"]
    assert column(trace, "gpus") == [4, 2]
    assert column(trace, "duration_s") == [90_001.0, 300.0]
    assert column(trace, "submit_s") == [0.0, 30.0]
    assert column(trace, "user") == ["ann", "bob"]
    assert column(trace, "group") == ["vision", "nlp"]
    assert column(trace, "vc") == ["gpu", "gpu-long"]
    assert trace.notes == (
        "jobs that asked for no GPU: 1 left out",
        "jobs that never started: 1 left out",
        "jobs that still run: 1 left out",
        "jobs that ran for no time: 1 left out",
    )


@pytest.mark.parametrize(
    ("header", "row", "gpus", "duration_s"),
    [
        ("JobID|Submit|ReqTRES|ElapsedRaw|State", "1|2024-03-01T10:00:00|cpu=1,gres/gpu=2|77|TIMEOUT", 2, 77.0),
        ("reqtres|jobid|submit|elapsed", "gres/gpu:h100=3|1|2024-03-01T10:00:00|01:17", 3, 77.0),
        ("JobID|Submit|AllocTRES|Start|End|", "1|1709280000|gres/gpu=1|1709280010|1709280087|", 1, 77.0),
        ("JobID|Submit|AllocTRES|Elapsed|JobName", "1|2024-03-01T10:00:00|gres/gpu=1|00:01:17|a, 'b", 1, 77.0),
    ],
)
def test_sacct_takes_any_columns_in_any_order(written, header, row, gpus, duration_s):
    trace = load(written(f"{header}\n{row}\n"))
    assert trace.format == "sacct"
    assert column(trace, "gpus") == [gpus]
    assert column(trace, "duration_s") == [duration_s]


def test_sacct_adds_up_the_runs_of_a_requeued_job(written):
    text = (
        "JobID|Submit|AllocTRES|ElapsedRaw|State\n"
        "5|2024-03-01T10:00:00|gres/gpu=2|100|NODE_FAIL\n6|2024-03-01T10:00:05|gres/gpu=1|7|COMPLETED\n"
        "5|2024-03-01T10:02:00|gres/gpu=2|50|COMPLETED\n"
    )
    trace = load(written(text))
    assert column(trace, "job_id") == ["5", "6"]
    assert column(trace, "duration_s") == [150.0, 7.0]
    assert column(trace, "submit_s") == [0.0, 5.0]
    assert trace.notes == ("jobs that were requeued: 1, each with its runs added up",)


def test_sacct_for_people_is_turned_away_with_the_option_to_give(written):
    text = "JobID           JobName  State\n------------ ---------- ----------\n12  train COMPLETED\n"
    with pytest.raises(InputError) as error:
        load(written(text))
    assert "--parsable2" in (error.value.hint or "")


def test_sacct_without_gpus_in_it_says_what_to_ask_for(written):
    with pytest.raises(InputError) as error:
        load(written("JobID|User|Submit|Elapsed\n1|u|2024-03-01T10:00:00|00:01:00\n"))
    assert "closest is 'sacct', which also needs AllocTRES or ReqTRES" in (error.value.hint or "")


def test_kueue_workloads_run_from_admission_to_the_end(written):
    trace = load(written(KUEUE))
    assert column(trace, "job_id") == ["vision/job-b", "vision/job-a"]
    assert column(trace, "gpus") == [2, 8]
    assert column(trace, "duration_s") == [600.0, 3600.0]
    assert column(trace, "submit_s") == [0.0, 30.0]
    assert column(trace, "vc") == ["team-a"] * 2
    assert column(trace, "user") == ["vision"] * 2
    assert column(trace, "priority") == [10, 10]
    assert trace.notes == (
        "jobs that asked for no GPU: 1 left out",
        "jobs that never started: 1 left out",
        "jobs that still run: 1 left out",
    )


def _kueue_objects() -> list[dict[str, object]]:
    return [json.loads(line) for line in KUEUE.splitlines()]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda objects: json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2),
        lambda objects: json.dumps(objects),
        lambda objects: "\n".join(json.dumps({"type": "MODIFIED", "object": o}) for o in objects),
        lambda objects: "\n".join(json.dumps(o, indent=1) for o in objects),
        lambda objects: "\n\n".join(json.dumps({k: v for k, v in o.items() if k != "kind"}) for o in objects),
    ],
)
def test_kubernetes_objects_come_in_lists_watches_and_lines(written, wrapped):
    trace = load(written(wrapped(_kueue_objects()), "objects"))
    assert trace.format == "kubernetes"
    assert trace.frame.equals(load(written(KUEUE)).frame)


def test_a_workload_that_comes_again_counts_as_it_was_last(written):
    lines = [
        workload("a", "2024-05-01T10:00:00Z", None, None, 4),
        workload("a", "2024-05-01T10:00:00Z", "2024-05-01T10:05:00Z", None, 4),
        workload("a", "2024-05-01T10:00:00Z", "2024-05-01T10:05:00Z", "2024-05-01T10:06:00Z", 4),
    ]
    trace = load(written("\n".join(map(json.dumps, lines))))
    assert (len(trace), column(trace, "duration_s"), trace.notes) == (1, [60.0], ())


def _pod(name: str, start: str, end: str | None, gpus: int, owner: str | None = None) -> dict[str, object]:
    about: dict[str, object] = {"name": name, "namespace": "nlp", "creationTimestamp": "2024-05-01T10:00:00Z"}
    if owner is not None:
        about["ownerReferences"] = [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    state = {"terminated": {"exitCode": 0, "finishedAt": end}} if end else {"running": {}}
    return {
        "kind": "Pod",
        "metadata": about,
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}, {"resources": {}}]},
        "status": {
            "phase": "Succeeded",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": start}],
            "containerStatuses": [{"state": state}],
        },
    }


def test_pods_of_one_job_are_as_wide_as_those_that_ran_at_once(written):
    pods = [
        _pod("w-0", "2024-05-01T10:00:10Z", "2024-05-01T10:10:10Z", 4, "train"),
        _pod("w-1", "2024-05-01T10:00:10Z", "2024-05-01T10:10:10Z", 4, "train"),
        _pod("w-1-again", "2024-05-01T10:20:10Z", "2024-05-01T10:21:10Z", 4, "train"),
        _pod("lonely", "2024-05-01T10:00:10Z", "2024-05-01T10:00:40Z", 1),
        _pod("alive", "2024-05-01T10:00:10Z", None, 1),
    ]
    trace = load(written("\n".join(map(json.dumps, pods))))
    assert column(trace, "job_id") == ["nlp/train", "nlp/lonely"]
    assert column(trace, "gpus") == [8, 1]
    assert column(trace, "duration_s") == [660.0, 30.0]
    assert trace.notes == ("jobs that still run: 1 left out",)


def test_events_tell_what_a_pod_does_not(written):
    pod = _pod("p", "2024-05-01T10:00:10Z", None, 2)
    del pod["status"]
    about = {"kind": "Pod", "namespace": "nlp", "name": "p"}
    events = [
        {"kind": "Event", "involvedObject": about, "reason": "Scheduled", "eventTime": "2024-05-01T10:00:20.000000Z"},
        {"kind": "Event", "involvedObject": about, "reason": "Killing", "lastTimestamp": "2024-05-01T10:01:20Z"},
    ]
    trace = load(written("\n".join(map(json.dumps, [*events, pod]))))
    assert (column(trace, "gpus"), column(trace, "duration_s")) == ([2], [60.0])
    with pytest.raises(InputError, match="no workloads and no pods") as error:
        load(written("\n".join(map(json.dumps, events))))
    assert "say nothing of GPUs" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"name": "x", "namespace": "n", "creationTimestamp": "soon"}}, "line 2, column object: found"),
        ({"metadata": {"name": "x"}}, "no creationTimestamp"),
        ({"metadata": 5}, "line 2"),
        ({"spec": {"podSets": [{"count": "two"}]}}, "line 2, column object: found"),
    ],
)
def test_a_bad_object_is_named_by_its_line_and_can_be_skipped(written, change, message):
    first, second, *_ = _kueue_objects()
    path = written(f"{json.dumps(first)}\n{json.dumps({**second, **change})}\n")
    with pytest.raises(InputError, match=message):
        load(path)
    trace = load(path, skip_bad_rows=True)
    assert (len(trace), trace.skipped_rows) == (1, 1)

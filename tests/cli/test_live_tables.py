from __future__ import annotations

import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from fairlead.cli.live_tables import event_text, gpu_table, job_page, job_table, places
from fairlead.cli.top import frame

JOB: dict[str, Any] = {
    "id": 7, "name": "train", "user": "ann", "kind": "training", "state": "running", "phase": "", "reason": "placed",
    "detail": "", "wait_reason": None, "command": ["python", "train.py"], "cwd": "/work", "gpus": 2, "min_gpus": 2,
    "max_gpus": 2, "memory_mib": 20480.0, "profile": "generic", "application": "",
    "priority": 0, "deadline_s": 7200.0,
    "estimate_s": None, "slo_s": None, "placement": ["n0:0", "n0:1"], "shared": True, "sm_share": 0.5, "attempt": 1,
    "failures": 0, "epochs_done": 3, "epochs": 10, "epoch_s": 60.0, "loss": 0.123456, "submitted_at_s": 1000.0,
    "started_at_s": 1010.0, "ended_at_s": None, "exit_code": None, "energy_j": 7200.0, "is_fake": True,
    "energy_at_s": None, "deadline_at_s": None, "deadline_state": None,
}  # fmt: skip
GPU: dict[str, Any] = {
    "name": "n0:0", "number": 0, "uuid": "", "model": "H200", "memory_mib": 143771.0, "is_drained": False, "jobs": [],
    "utilisation_frac": 0.5, "power_w": 300.0, "memory_used_mib": 1024.0, "temperature_c": None, "guard_state": "",
}  # fmt: skip
SUMMARY: dict[str, Any] = {
    "policy": "fifo", "cluster": "1 nodes x 2 H200, 2 GPUs", "is_fake": False, "version": "1", "now_s": 5.0,
    "trouble": "", "jobs": {"running": 1, "waiting": 0}, "gpus": {"all": 2, "busy": 1, "drained": 0}, "power_w": None,
    "power_at_s": None, "deadlines": {"on-time": 0, "at-risk": 0, "missed": 0},
}  # fmt: skip


def text(shown: RenderableType) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return captured.get()


def test_gpus_in_a_row_are_told_together() -> None:
    assert places(["n0:0", "n0:1", "n0:2", "n1:0", "n1:2"]) == "n0:0-2, n1:0, n1:2"
    assert places([]) == ""


def test_a_line_tells_where_a_job_runs_or_why_not() -> None:
    waiting = {**JOB, "id": 8, "state": "waiting", "placement": [], "wait_reason": "no-free-gpu", "started_at_s": None}
    parked = {**JOB, "id": 9, "state": "parked", "placement": [], "reason": "exited", "exit_code": 3}
    elastic = {**JOB, "id": 10, "min_gpus": 1, "max_gpus": 4, "phase": "stopping", "epochs_done": None}
    lines = text(job_table([JOB, waiting, parked, elastic], now_s=1040.0)).splitlines()
    assert "n0:0-1, shared, 50% of the SMs" in lines[1]
    assert "3/10" in lines[1]
    assert "30 s" in lines[1]
    assert "no-free-gpu" in lines[2]
    assert "40 s" in lines[2]
    assert "exited 3" in lines[3]
    assert "running (stopping)" in lines[4]
    assert "2 of 1-4" in lines[4]


def test_a_page_leaves_out_what_is_not_known() -> None:
    attempt = {
        "attempt": 1, "placement": ["n0:0"], "started_at_s": 1010.0, "ended_at_s": None, "exit_code": None,
        "reason": "", "stopping": "",
    }  # fmt: skip
    shown = text(job_page({**JOB, "attempts": [attempt]}))
    assert "python train.py" in shown
    assert "2.00 Wh (made up" in shown
    assert "on n0:0, from " in shown
    assert "slo" not in shown
    assert "last words" not in shown


def test_deadlines_and_the_moment_of_the_joules_are_told() -> None:
    late = {**JOB, "deadline_at_s": 8200.0, "deadline_state": "missed", "energy_at_s": 1020.0}
    risky = {**late, "deadline_state": "at-risk"}
    rows = text(job_table([late, risky, JOB])).splitlines()
    assert rows[1].rstrip().endswith("; deadline missed")
    assert rows[2].rstrip().endswith("; deadline at risk")
    assert "deadline" not in rows[3]
    page = text(job_page(late))
    assert ", until 1970-01-01" in page
    assert ": deadline missed" in page
    assert "2.00 Wh up to 1970-01-01" in page
    summary = {**SUMMARY, "deadlines": {"on-time": 1, "at-risk": 2, "missed": 3}, "power_w": 4190.0, "power_at_s": 9.0}
    shown = text(frame({"summary": summary, "nodes": [], "running": [], "waiting": [], "events": []}, rows=40))
    assert "deadlines: 2 at risk, 3 missed" in shown
    assert re.search(r"4\.19 kW \d+ s ago", shown)


def test_names_are_no_markup() -> None:
    shown = text(job_table([{**JOB, "name": "[bold]x[/nope]"}]))
    assert "[bold]x[/nope]" in shown


@pytest.mark.parametrize(("frac", "drawn"), [(0.0, "0%"), (0.55, "█████▌"), (1.0, "██████████"), (None, "–")])
def test_how_busy_a_gpu_is_is_a_bar(frac: float | None, drawn: str) -> None:
    shown = text(gpu_table([{"name": "n0", "state": "up", "gpus": [{**GPU, "utilisation_frac": frac}]}]))
    assert drawn in shown


def test_the_state_of_a_gpu_is_that_of_its_node_where_that_is_away() -> None:
    gpus = [{**GPU, "is_drained": True, "guard_state": "overlimit"}]
    assert "drained, overlimit" in text(gpu_table([{"name": "n0", "state": "up", "gpus": gpus}]))
    assert "asleep" in text(gpu_table([{"name": "n0", "state": "asleep", "gpus": gpus}]))


def test_a_large_cluster_has_a_line_for_each_node() -> None:
    jobs = [{"id": 7, "name": None, "user": None}]
    node = {"name": "big", "state": "up", "gpus": [{**GPU, "jobs": jobs, "is_drained": True}] * 20}
    shown = text(gpu_table([node]))
    assert len(shown.splitlines()) == 2
    assert "up, 20 drained" in shown
    assert "6.00 kW" in shown


def test_an_event_is_a_line() -> None:
    event = {"id": 1, "at_s": 0.0, "what": "placed", "job_id": 7, "node": "", "about": "on n0:0"}
    assert "job 7     placed  on n0:0" in text(event_text(event))
    assert "n0" in text(event_text({**event, "job_id": None, "node": "n0", "about": "placed"}))


def test_a_picture_shows_no_more_jobs_than_there_is_room_for() -> None:
    nodes = [{"name": "n0", "state": "up", "gpus": [GPU, GPU]}]
    seen = {"summary": SUMMARY, "nodes": nodes, "running": [JOB] * 50, "waiting": [], "events": []}
    shown = text(frame(seen, rows=40))
    assert len(shown.splitlines()) <= 40
    assert "running: 50, 26 more" in shown
    troubled = {**seen, "summary": {**SUMMARY, "trouble": "disk full"}}
    assert "trouble: disk full" in text(frame(troubled, rows=40))

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import assert_a_clear_error

Fairlead = Callable[..., Any]

HEADER = "job_id,submit_s,gpus,duration_s\n"
FILES = {
    "good.csv": f"{HEADER}a,0,1,10\n",
    "negative.csv": f"{HEADER}a,0,1,10\nb,5,1,-10\n",
    "word.csv": f"{HEADER}a,0,one,10\n",
    "wrong-columns.csv": "this,is,no,trace\n1,2,3,4\n",
    "no-jobs.csv": HEADER,
    "empty.csv": "",
    "wide.csv": f"{HEADER}small,0,1,10\ngiant,5,65,10\n",
    "binary.csv": "\x00\x01\x02",
    "bad.toml": "nodes = 'sixteen'\n",
    "bad.json": "{",
    "no-samples.csv": "app,epoch,gpus,goodput_samples_per_s\na,0,1,10\n",
    "short-row.csv": "app,epoch,gpus,goodput_samples_per_s,samples\na,0,1\n",
    "large.json": '{"gpus": [{"gpu": 100, "A": 1.0}]}',
}
# What is given, and what the error has to name.
CASES: list[tuple[str, str]] = [
    ("simulate --trace {dir}/absent.csv", "absent.csv"),
    ("simulate --trace {dir}", ""),
    ("simulate --trace {dir}/negative.csv", "-10"),
    ("simulate --trace {dir}/word.csv", "one"),
    ("simulate --trace {dir}/wrong-columns.csv", "wrong-columns.csv"),
    ("simulate --trace {dir}/no-jobs.csv", "no-jobs.csv"),
    ("simulate --trace {dir}/empty.csv", "empty.csv"),
    ("simulate --trace {dir}/binary.csv", "binary.csv"),
    ("simulate --trace {dir}/wide.csv --cluster 16x4", "giant"),
    ("simulate --trace {dir}/good.csv --format nosuch", "nosuch"),
    ("simulate --trace synthetic:nosuch", "nosuch"),
    ("simulate --format philly", "--format philly"),
    ("simulate --policy nosuch", "nosuch"),
    ("simulate --policy ordering=nosuch", "nosuch"),
    ("simulate --policy stage=fifo", "stage"),
    ("simulate --policy fifo:backfill=sometimes", "sometimes"),
    ("simulate --policy fifo:nosuch=1", "nosuch"),
    ("simulate --policy ordering=fifo,ordering=las", "ordering"),
    ("simulate --policy placing=packed-sticky:sticky=false", "sticky"),
    ("simulate --cluster nonsense", "nonsense"),
    ("simulate --cluster 0x4", "0x4"),
    ("simulate --cluster 16x4:Z80", "Z80"),
    ("simulate --cluster {dir}/absent.toml", "absent.toml"),
    ("simulate --cluster {dir}/bad.toml", "bad.toml"),
    ("simulate --variability {dir}/absent.json", "absent.json"),
    ("simulate --variability {dir}/bad.json", "bad.json"),
    ("simulate --variability {dir}/large.json", "large.json"),
    ("simulate --round-s 0", "round_s"),
    ("simulate --round-s -360", "round_s"),
    ("simulate --round-s nan", "round_s"),
    ("simulate --locality 0.5", "locality"),
    ("simulate --locality inf", "locality"),
    ("simulate --restart-s -1", "restart_s"),
    ("simulate --mtbf-h 0", "mtbf_h"),
    ("simulate --repair-h 2", "mtbf_h"),
    ("simulate --policy boa", "--rent"),
    ("simulate --rent nonsense", "nonsense"),
    ("simulate --rent boots=3", "boots"),
    ("simulate --rent boot=soon", "soon"),
    ("simulate --rent boot=1,boot=2", "twice"),
    ("simulate --rent boot=-1", "boot_s=-1"),
    ("simulate --rent minimum=inf", "minimum_s=inf"),
    ("simulate --rent step=0", "step_s=0"),
    ("simulate --training {dir}/absent", "absent"),
    ("simulate --training {dir}", "perf_params_t4.json"),
    ("simulate --training {dir}/good.csv", "it lacks app, epoch"),
    ("simulate --training {dir}/no-samples.csv", "samples"),
    ("simulate --training {dir}/short-row.csv", "line 2"),
    ("simulate --training {dir}/binary.csv", "binary.csv"),
    ("compare --rent nonsense", "nonsense"),
    ("simulate --out {dir}/good.csv", "good.csv"),
    ("simulate --out {dir}/good.csv/below", "good.csv"),
    ("compare --policy fifo --policy nosuch", "nosuch"),
    ("compare --policy fifo --policy fifo", "twice"),
    ("compare --policy fifo --policy srtf --trace {dir}/wide.csv", "giant"),
    ("compare --out {dir}/good.csv", "good.csv"),
    ("policies nosuch", "nosuch"),
    ("traces describe {dir}/absent.csv", "absent.csv"),
    ("traces generate nosuch --out {dir}/new.csv", "nosuch"),
    ("traces generate philly --out {dir}/absent/new.csv", "absent"),
    ("traces generate philly --out {dir}/new.xyz", "new.xyz"),
    ("traces convert {dir}/absent.csv {dir}/new.csv", "absent.csv"),
    ("traces convert {dir}/good.csv {dir}/good.csv", "both"),
]


@pytest.fixture
def bad_files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("line", "named"), CASES, ids=[line for line, _ in CASES])
def test_a_mistake_gets_a_clear_error_and_status_2(line: str, named: str, fairlead: Fairlead, bad_files: Path) -> None:
    done = fairlead(*(word.format(dir=bad_files) for word in line.split()))
    assert_a_clear_error(done, named)


@pytest.mark.parametrize(
    "line",
    [
        "nosuch",
        "simulate --nosuch",
        "simulate --seed -1",
        "simulate --jobs 0",
        "simulate --seed x",
        "compare --workers 0",
    ],
)
def test_a_wrong_option_is_a_usage_error(line: str, fairlead: Fairlead) -> None:
    done = fairlead(*line.split())
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Error" in done.stderr


def test_a_bad_row_is_named_with_its_file_line_and_column(fairlead: Fairlead, bad_files: Path) -> None:
    error = fairlead("simulate", "--trace", bad_files / "negative.csv").stderr
    assert "negative.csv" in error
    assert "line 3" in error or ":3" in error
    assert "duration_s" in error


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(
    fairlead: Fairlead, bad_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairlead import api

    monkeypatch.setattr(api, "simulate", lambda *args, **options: pytest.fail("the run started"))
    assert fairlead("simulate", "--out", bad_files / "good.csv").exit_code == 2
    assert (bad_files / "good.csv").read_text() == FILES["good.csv"]

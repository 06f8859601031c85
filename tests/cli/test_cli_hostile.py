"""Values that nobody should give: each ends with status 2, one error, nothing on stdout and no traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.cluster import parse_shape
from fairlead.model.snapshot import Snapshot, SnapshotJob
from tests.cli.conftest import assert_a_clear_error

Fairlead = Callable[..., Any]
HUGE, DIGITS, LONG = "9" * 25, "9" * 5000, "x" * 5000
HEADER = "job_id,submit_s,gpus,duration_s"
FILES: dict[str, bytes] = {
    "good.csv": f"{HEADER}\na,0,1,10\nb,1,2,20\n".encode(),
    "cr.csv": f'{HEADER}\r"a",0,1,10\r'.encode(),
    "cr-inside.csv": f'{HEADER}\n"a",0,1\r,10\n'.encode(),
    "long-number.csv": f"{HEADER}\na,0,1,{'9' * 400}\n".encode(),
    "latin.csv": HEADER.encode() + b"\n\xff\xfe,0,1,10\n",
    "nul": b"\0\0\0",
    "empty": b"",
    "bad.toml": b"x = [",
    "digits.toml": b"a = " + DIGITS.encode(),
    "bad.json": b'{"a": [1',
    "deep.json": b"[" * 100_000,
    "digits.json": b'{"gpus": ' + DIGITS.encode() + b"}",
    "gpu.csv": f"gpu,A\n{DIGITS},1.0\n".encode(),
}
SIMULATE = "simulate --trace {dir}/good.csv --cluster 1x4"
PATHS = (LONG, "/", "{dir}", "/nonexistent/file.csv", *(f"{{dir}}/{name}" for name in FILES if name != "good.csv"))
# A command, an option, and values that are all wrong for it.
CASES: list[tuple[str, str, tuple[str, ...]]] = [
    (SIMULATE, "--trace", (*PATHS, "", "synthetic:philly:jobs=" + HUGE, "synthetic:poisson:rate_per_h=nan")),
    (SIMULATE, "--cluster", ("", HUGE, f"{HUGE}x8", "1xé", "-1x4", "inf", LONG, "{dir}/digits.toml", "{dir}/bad.toml")),
    (SIMULATE, "--round-s", ("0", "-1", "nan", "inf", "1e308", "1e-300")),
    (SIMULATE, "--locality", ("", "nan", "A=", "=1", "A=nan", "-1", DIGITS)),
    (SIMULATE, "--restart-s", ("nan", "inf", "-1")),
    (SIMULATE, "--mtbf-h", ("nan", "inf", "0", "-1", "1e308")),
    (SIMULATE, "--drain", ("", "-1", HUGE, DIGITS, "n0:", f"n0:{DIGITS}", "é")),
    (SIMULATE, "--slow", ("", "1", "1:nan@5", f"{DIGITS}:2@5", "1:2@inf", "1:0@5")),
    (SIMULATE, "--rent", ("", "boot=nan", "boot=inf", f"boot={'9' * 400}", "step=0", "step=-1", "é=1")),
    (SIMULATE, "--variability", (*PATHS, "{dir}/gpu.csv")),
    (SIMULATE, "--profiles", PATHS),
    (SIMULATE, "--services", PATHS),
    (SIMULATE, "--interference", PATHS),
    (SIMULATE, "--history", PATHS),
    (SIMULATE, "--carbon", ("nan", "inf", "-1", *PATHS)),
    (SIMULATE, "--save-history", ("{dir}/history.json",)),
    (SIMULATE, "--out", (LONG, "{dir}/good.csv", "/proc/nowhere", "/dev/null")),
    (
        SIMULATE,
        "--policy",
        (
            "", ",", ":", "=", "é", LONG, "las:queues=99999", f"las:queues={DIGITS}", "las:thresholds=nan",
            "boa:budget=nan", "boa:budget=inf", "boa:budget=-1", "boa:budget=", "eaco:utilisation=nan",
            "eaco:utilisaton=0.9", "muxflow:share=nan", "pollux:p=inf", "static:width_gpus=0", "sleep:after_s=nan",
            "pollux:interval_s=1e308", "pollux:interval_s=1e-300", "boa:rarest_s=1e-300",
        ),
    ),
    ("whatif --snapshot {dir}/state.json", "--job", (
        "", "gpu=2", "gpus=", f"gpus={HUGE}", f"gpus={DIGITS}", "gpus=0", "gpus=nan", "duration_s=nan",
        "duration_s=1e308", "duration_s=-1", f"priority={HUGE}", f"batch={HUGE}", "memory_mib=inf", "kind=é",
        "gpus=1,gpus=2", "{dir}/digits.toml", "{dir}/bad.toml", "deadline_s=nan", "deadline_s=0",
    )),
    ("whatif --snapshot {dir}/state.json", "--nodes", ("-9", "999999999999", "-999999999999")),
    ("whatif", "--snapshot", PATHS),
    ("traces describe", "", PATHS),
    ("traces convert {dir}/good.csv", "", ("", ".", LONG, "{dir}", "/nonexistent/a.csv", "é")),
    ("history show", "", (*PATHS, "é")),
    ("widths --budget 4", "--types", PATHS),
    ("widths --types {dir}/good.csv", "--budget", ("nan", "inf", "-1", "0")),
    ("config show", "--config", ("~nobody-has-this-name/x", "{dir}", "{dir}/bad.toml", "{dir}/digits.toml")),
    ("config show", "--home", ("~nobody-has-this-name/x",)),
    ("jobs", "--home", ("~nobody-has-this-name/x",)),
]  # fmt: skip
LINES = [(line, option, value) for line, option, values in CASES for value in values]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    for name, data in FILES.items():
        (made / name).write_bytes(data)
    jobs = (SnapshotJob(1, "a", "ann", 0.0, 4, 4, 4, left_s=100.0),)
    (made / "state.json").write_text(json.dumps(Snapshot(100.0, "fifo", parse_shape("1x4"), jobs).to_dict()))
    return made


@pytest.mark.parametrize(("line", "option", "value"), LINES, ids=[f"{li} {o} {v[:30]}" for li, o, v in LINES])
def test_a_hostile_value_is_an_error_in_words(
    line: str, option: str, value: str, fairlead: Fairlead, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = [word.format(dir=folder) for word in line.split()]
    value = value.format(dir=folder)
    assert_a_clear_error(fairlead(*words, *([f"{option}={value}"] if option else ["--", value])), "")


@pytest.mark.parametrize("value", [HUGE, "1000000"])
def test_more_jobs_than_there_are_is_all_of_them(fairlead: Fairlead, folder: Path, value: str) -> None:
    done = fairlead("simulate", "--trace", folder / "good.csv", "--cluster", "1x4", "--jobs", value, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["jobs"] == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(fairlead: Fairlead, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text(HEADER)
    secret.chmod(0)
    assert_a_clear_error(fairlead("simulate", "--trace", secret), "secret.csv")


def test_a_field_that_a_job_does_not_have_is_named_with_the_one_that_is_meant(fairlead: Fairlead, folder: Path) -> None:
    done = fairlead("whatif", "--snapshot", folder / "state.json", "--job", "gpu=2")
    assert_a_clear_error(done, "unknown field 'gpu'")
    assert "did you mean 'gpus'?" in done.stderr

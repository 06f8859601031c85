"""`traces describe` on every format, `--split`, `--drop-too-wide` and `--throughputs` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import assert_a_clear_error
from tests.traces.samples import ELASTICFLOW, EVERY_FORMAT, GAVEL, HELIOS, KALOS, MURI, THROUGHPUTS

Fairlead = Callable[..., Any]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(text: str, name: str = "trace") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "format", "jobs", "gpu_s"),
    [
        (KALOS, "acme", 2, 64 * 8 + 2 * 3600),
        (EVERY_FORMAT["helios"], "helios", 2, 8 * 3600 + 2 * 5),
        (EVERY_FORMAT["lucid"], "lucid", 2, 600 + 8 * 30),
        (EVERY_FORMAT["tiresias"], "tiresias", 3, 190 + 8 * 150 + 4 * 120),
        (MURI, "tiresias", 2, 4 * 950 + 8 * 437),
        (ELASTICFLOW, "tiresias", 3, 500 + 8 * 900 + 4 * 800),
        (EVERY_FORMAT["gavel"], "gavel", 2, 1400 + 4 * 700),
        (EVERY_FORMAT["sacct"], "sacct", 2, 4 * 90_001 + 2 * 300),
        (EVERY_FORMAT["kubernetes"], "kubernetes", 2, 2 * 600 + 8 * 3600),
        (EVERY_FORMAT["plain"], "plain", 2, 3600 + 2 * 1800),
    ],
)
def test_describe_counts_the_work_of_every_new_format(
    fairlead: Fairlead, written: Fairlead, text: str, format: str, jobs: int, gpu_s: float
) -> None:
    about = json.loads(fairlead("traces", "describe", written(text), "--json").stdout)
    assert (about["format"], about["jobs"]) == (format, jobs)
    assert about["gpu_hours"] == pytest.approx(gpu_s / 3600)


def test_describe_counts_jobs_by_virtual_cluster(fairlead: Fairlead, written: Fairlead) -> None:
    path = written(HELIOS)
    assert json.loads(fairlead("traces", "describe", path, "--json").stdout)["vcs"] == {"vc1": 1, "vc2": 1}
    assert "vcs.vc1" in fairlead("traces", "describe", path).stdout


def test_a_gavel_trace_takes_its_table(fairlead: Fairlead, written: Fairlead) -> None:
    path, table = written(GAVEL), written(THROUGHPUTS, "rates.json")
    done = fairlead("traces", "describe", path, "--throughputs", table, "--json")
    assert json.loads(done.stdout)["gpu_hours"] == pytest.approx((10 + 2 * 100 + 10) / 3600)
    assert "step rates" in done.stderr
    done = fairlead("simulate", "--trace", path, "--throughputs", table, "--cluster", "1x2", "--json")
    assert json.loads(done.stdout)["jobs"] == 3
    assert_a_clear_error(fairlead("traces", "describe", path), "counts steps")
    assert_a_clear_error(fairlead("simulate", "--throughputs", table), "there is no --trace")


def test_a_split_run_tells_parts_and_the_whole(fairlead: Fairlead, written: Fairlead) -> None:
    path = written(HELIOS)
    done = fairlead("simulate", "--trace", path, "--split", "vc", "--cluster", "1x8", "--json")
    found = json.loads(done.stdout)
    assert found["jobs"] == 2
    assert {name: part["jobs"] for name, part in found["parts"].items()} == {"vc1": 1, "vc2": 1}
    assert found["gpus"] == 16
    table = fairlead("simulate", "--trace", path, "--split", "vc", "--cluster", "1x8").stdout
    assert "vc1" in table
    assert "2 clusters, one for each vc" in table


def test_a_split_comparison_tells_parts_and_the_whole(fairlead: Fairlead, written: Fairlead, tmp_path: Path) -> None:
    path = written(HELIOS)
    sizes = written(",num\nvc1,1\nvc2,2\n", "vc_config.csv")
    words = ("compare", "--trace", path, "--split", "vc", "--cluster", sizes, "--policy", "fifo", "--policy", "srtf")
    done = fairlead(*words, "--workers", 1, "--json", "--out", tmp_path / "out")
    runs = json.loads(done.stdout)["runs"]
    assert [run["name"] for run in runs] == ["fifo", "srtf"]
    assert {name: part["gpus"] for name, part in runs[0]["parts"].items()} == {"vc1": 8, "vc2": 16}
    assert (tmp_path / "out" / "report.html").is_file()
    assert "mean JCT by vc" in fairlead(*words, "--workers", 1).stdout


QUIET = "job_id,submit_s,gpus,duration_s,vc\na,0,8,60,x\nb,5,2,60,y\n"
"""A trace of which its reader has nothing to say."""


def test_jobs_that_are_too_wide_are_left_out_when_told(fairlead: Fairlead, written: Fairlead) -> None:
    path = written(QUIET)
    done = fairlead("simulate", "--trace", path, "--cluster", "1x4")
    assert_a_clear_error(done, "can never fit")
    assert "--drop-too-wide" in done.stderr
    done = fairlead("simulate", "--trace", path, "--cluster", "1x4", "--drop-too-wide", "--json")
    assert json.loads(done.stdout)["jobs"] == 1
    assert "note: jobs that can never fit on 1 nodes x 4 V100, 4 GPUs: 1 left out" in done.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--split", "colour"), "can't be split by 'colour'"),
        (("--split", "group"), "does not say the group"),
        (("--split", "vc", "--cluster", "nothing.csv"), "no such file"),
    ],
)
def test_bad_splits_are_clear_errors(fairlead: Fairlead, written: Fairlead, words: tuple[str, ...], named: str) -> None:
    assert_a_clear_error(fairlead("simulate", "--trace", written(QUIET), *words), named)

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import assert_a_clear_error

Fairlead = Callable[..., Any]

HEADER = "service_name,offline_name,service_sm_activity_frac,offline_sm_activity_frac,throughput_frac,slowdown\n"
FILES = {
    "few.csv": f"{HEADER}a,b,0.1,0.2,0.5,1.1\n",
    "word.csv": f"{HEADER}a,b,0.1,0.2,fast,1.1\n",
    "above.csv": f"{HEADER}a,b,0.1,0.2,0.5,1.1\na,c,0.1,0.2,7,1.1\n",
    "columns.csv": "a,b\n1,2\n",
    "no-profile.csv": "service_name,offline_name,throughput_frac,slowdown\na,b,0.5,1.1\n",
    "no-rows.csv": HEADER,
    "empty.csv": "",
    "bad.json": "{",
    "other.json": '{"gpus": []}',
    "two.csv": f"gpu_model,{HEADER}V100,a,b,0.1,0.2,0.5,1.1\nT4,a,b,0.1,0.2,0.5,1.1\n",
}
CASES = [
    ("train --pairs {dir}/few.csv --out {dir}/p.json", "1 pairs"),
    ("train --pairs {dir}/absent.csv --out {dir}/p.json", "absent.csv"),
    ("train --pairs {dir} --out {dir}/p.json", "directory"),
    ("train --pairs {dir}/word.csv --out {dir}/p.json", "fast"),
    ("train --pairs {dir}/above.csv --out {dir}/p.json", "row 2, column throughput_frac: found 7"),
    ("train --pairs {dir}/columns.csv --out {dir}/p.json", "service_name"),
    ("train --pairs {dir}/no-profile.csv --out {dir}/p.json", "service_*"),
    ("train --pairs {dir}/no-rows.csv --out {dir}/p.json", "no rows"),
    ("train --pairs {dir}/empty.csv --out {dir}/p.json", "empty.csv"),
    ("train --pairs {dir}/bad.json --out {dir}/p.json", "bad.json"),
    ("train --pairs {dir}/other.json --out {dir}/p.json", "v100"),
    ("train --pairs {dir}/two.csv --out {dir}/p.json", "T4, V100"),
    ("train --pairs {dir}/two.csv --gpu-model A100 --out {dir}/p.json", "A100"),
    ("train --synthetic 50 --out {dir}/p.txt", "p.txt"),
    ("train --synthetic 50 --out {dir}/absent/p.json", "absent"),
    ("train --synthetic 50 --method magic --out {dir}/p.json", "magic"),
    ("train --out {dir}/p.json", "--pairs FILE or --synthetic N"),
    ("evaluate", "--pairs FILE or --synthetic N"),
    ("evaluate --synthetic 50 --pairs {dir}/few.csv", "--pairs FILE or --synthetic N"),
    ("evaluate --synthetic 50 --predictor {dir}/absent.json", "absent.json"),
    ("evaluate --synthetic 50 --predictor {dir}/bad.json", "bad.json"),
    ("evaluate --synthetic 50 --predictor {dir}/other.json", "format"),
]


@pytest.fixture
def bad_files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("line", "named"), CASES, ids=[line for line, _ in CASES])
def test_a_mistake_gets_a_clear_error_and_status_2(line: str, named: str, fairlead: Fairlead, bad_files: Path) -> None:
    done = fairlead("predictor", *(word.format(dir=bad_files) for word in line.split()))
    assert_a_clear_error(done, named)
    assert not (bad_files / "p.json").exists()


def test_a_predictor_is_trained_and_evaluated(fairlead: Fairlead, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    done = fairlead("predictor", "train", "--synthetic", 200, "--method", "trees", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    about = json.loads(done.stdout)
    assert (about["method"], about["pairs"], about["gpu_model"]) == ("trees", 200, "synthetic")
    assert {e["held_out"] for e in about["evaluations"]} == {"pair", "application"}
    assert "wrote: " in done.stderr
    checked = fairlead("predictor", "evaluate", "--synthetic", 200, "--seed", 1, "--predictor", out, "--json")
    (score,) = json.loads(checked.stdout)["evaluations"]
    assert score["method"] == "trees"
    assert score["throughput"]["spearman"] > 0.3


def test_every_method_is_compared_in_a_table(fairlead: Fairlead) -> None:
    shown = fairlead("predictor", "evaluate", "--synthetic", 100).stdout
    assert all(word in shown for word in ("mean", "linear", "k-nn", "trees", "mlp", "Spearman", "application"))

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fairlead = Callable[..., Any]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Four GPUs on two nodes, the last one slow."""
    path = tmp_path / "runs.csv"
    rows = [f"resnet,c1,{n},{d},GPU-{n}{d},{perf}" for n, d, perf in ((1, 0, 1), (1, 1, 2), (2, 0, 2), (2, 1, 6))]
    path.write_text("\n".join(["exp,cabinet,node,device,uuid,perf", *rows]) + "\n")
    return path


@pytest.fixture
def counters(tmp_path: Path) -> Path:
    path = tmp_path / "apps.csv"
    path.write_text("application,dram_frac,fma_frac\nresnet,0.3,0.7\nvgg,0.35,0.65\npagerank,0.85,0.05\nspmv,0.8,0.1\n")
    return path


def test_measurements_become_a_profile_that_can_be_described(
    fairlead: Fairlead, measured: Path, tmp_path: Path
) -> None:
    out = tmp_path / "v.json"
    done = fairlead("measure", "variability", "--import", measured, "--class", "B=resnet", "--out", out, "--json")
    assert done.exit_code == 0
    assert done.stderr == f"wrote: {out} (4 GPUs, classes A, B)\n"
    about = json.loads(done.stdout)
    assert about["classes"]["A"]["from"] == "resnet"
    assert (about["classes"]["A"]["max"], about["classes"]["A"]["runs"]) == (3.0, 4)
    assert about["skipped_rows"] == 0
    again = json.loads(fairlead("measure", "variability", "--describe", out, "--cluster", "2x2", "--json").stdout)
    assert again["classes"]["A"]["between_nodes_frac"] == about["classes"]["A"]["between_nodes_frac"]
    table = fairlead("measure", "variability", "--describe", out, "--cluster", "2x2").stdout
    assert "between nodes" in table
    assert "Spearman" in table


def test_a_profile_from_measurements_can_be_simulated(
    fairlead: Fairlead, measured: Path, trace_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "v.csv"
    fairlead("measure", "variability", "--import", measured, "--out", out)
    run = fairlead("simulate", "--trace", trace_file, "--cluster", "2x2", "--variability", out, "--json")
    assert json.loads(run.stdout)["jobs"] == 4


def test_bad_rows_are_an_error_or_counted(fairlead: Fairlead, measured: Path, tmp_path: Path) -> None:
    measured.write_text(measured.read_text() + "resnet,c1,2,2,GPU-x,fast\n")
    call = ("measure", "variability", "--import", measured, "--out", tmp_path / "v.json", "--json")
    refused = fairlead(*call)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"error: {measured} line 6, column perf: found 'fast', expected a time above 0" in refused.stderr
    done = fairlead(*call, "--skip-bad-rows")
    assert json.loads(done.stdout)["skipped_rows"] == 1
    assert "note: skipped 1 bad rows" in done.stderr


def test_the_same_seed_invents_the_same_profile(fairlead: Fairlead, tmp_path: Path) -> None:
    for name, seed in (("a.json", 1), ("b.json", 1), ("c.json", 2)):
        done = fairlead("measure", "variability", "--synthetic", "4x4", "--seed", seed, "--out", tmp_path / name)
        assert done.exit_code == 0
    first, second, third = ((tmp_path / name).read_bytes() for name in ("a.json", "b.json", "c.json"))
    assert first == second != third


def test_an_invented_profile_is_as_wished(fairlead: Fairlead, tmp_path: Path) -> None:
    wishes = ("--between", 0, "--within", 0, "--outliers", 0.1, "--outlier-factor", 4, "--classes", "A,X2")
    call = ("measure", "variability", "--synthetic", "5x4", *wishes, "--sensitivity", "1,0.5")
    about = json.loads(fairlead(*call, "--out", tmp_path / "v.json", "--json").stdout)
    assert about["classes"]["A"]["max"] == pytest.approx(4.0)
    assert about["classes"]["X2"]["max"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "expected one of --import, --here, --synthetic and --describe, found none of them"),
        (("--synthetic", "2x2", "--describe", "x.json"), "found --synthetic and --describe"),
        (("--synthetic", "2x2"), "--synthetic makes a profile"),
        (("--synthetic", "2x2", "--cluster", "2x2", "--out", "x.json"), "names the cluster already"),
        (("--synthetic", "2x2", "--out", "x.txt"), "ends in .json or .csv"),
        (("--synthetic", "2x2", "--out", "x.json", "--classes", "A"), "expected one number for each class"),
        (("--synthetic", "2x2", "--out", "x.json", "--sensitivity", "a,b,c,d"), "expected numbers, by commas"),
        (("--synthetic", "2x2", "--out", "x.json", "--outliers", "2"), "outliers is 2"),
        (("--describe", "x.json"), "--describe needs the cluster"),
        (("--describe", "missing.json", "--cluster", "2x2"), "missing.json: no such file"),
        (("--import", "missing.csv", "--out", "x.json"), "missing.csv: no such file"),
        (("--import", "x.csv", "--out", "x.json", "--class", "A"), "--class A: expected NAME=APPLICATION"),
        (("--import", "x.csv", "--out", "x.json", "--class", "A=x", "--class", "A=y"), "was given twice"),
    ],
)
def test_a_wrong_call_is_explained(fairlead: Fairlead, args: tuple[str, ...], message: str) -> None:
    done = fairlead("measure", "variability", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_applications_get_classes_and_new_ones_join(fairlead: Fairlead, counters: Path, tmp_path: Path) -> None:
    out = tmp_path / "classes.json"
    done = fairlead("measure", "classes", counters, "--out", out, "--json")
    found = json.loads(done.stdout)
    assert [set(c["members"]) for c in found["classes"]] == [{"resnet", "vgg"}, {"pagerank", "spmv"}]
    assert set(found["silhouettes"]) == {"2", "3"}
    new = ("--assign", "odd:dram=0.0:fma=1.0", "--assign", counters)
    joined = fairlead("measure", "classes", "--classes", out, *new, "--json")
    assert [(j["application"], j["app_class"], j["far"]) for j in json.loads(joined.stdout)["assigned"]] == [
        ("odd", "A", True),
        ("resnet", "A", False),
        ("vgg", "A", False),
        ("pagerank", "B", False),
        ("spmv", "B", False),
    ]
    assert joined.stderr.startswith("note: odd is ")
    assert "the class may not describe it" in joined.stderr


def test_classes_print_as_tables(fairlead: Fairlead, counters: Path) -> None:
    shown = fairlead("measure", "classes", counters, "--k", 2, "--assign", "x:dram=0.3:fma=0.7").stdout
    assert all(word in shown for word in ("pagerank, spmv", "silhouette", "joins"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "expected either a TABLE of applications or --classes FILE"),
        (("--classes", "x.json", "--k", "2"), "--k and --out go with a TABLE"),
        (("--classes", "missing.json"), "missing.json: no such file"),
        (("missing.csv",), "missing.csv: no such file"),
    ],
)
def test_a_wrong_call_for_classes_is_explained(fairlead: Fairlead, args: tuple[str, ...], message: str) -> None:
    done = fairlead("measure", "classes", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_without_scikit_learn_clustering_says_what_to_install(
    fairlead: Fairlead, counters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    done = fairlead("measure", "classes", counters)
    assert done.exit_code == 1
    assert "pip install 'fairlead[measure]'" in done.stderr


def test_help_needs_no_heavy_library(process: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = process("measure", "variability", "--help")
    assert done.returncode == 0
    assert "--outlier-factor" in done.stdout
    heavy = "'numpy', 'sklearn', 'fairlead.measure'"
    code = f"import sys, fairlead.cli.measure; print([m for m in ({heavy}) if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

"""Clusters and variability profiles as files, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.files import load_cluster, load_variability


def test_a_shape_is_nodes_times_gpus() -> None:
    cluster = load_cluster("3x4:A100")
    assert cluster.describe() == "3 nodes x 4 A100, 12 GPUs"
    assert cluster.gpu_name(5) == "n1:1"
    assert load_cluster("1x2+2x8:H100").describe() == "1 nodes x 2 V100 + 2 nodes x 8 H100, 18 GPUs"


def test_a_file_can_define_its_own_gpus(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[[nodes]]\ncount = 2\ngpus = 4\nmodel = "X1"\nprefix = "gpu-"\nbase_w = 150\n'
        '[[nodes]]\ngpus = 1\nmodel = "T4"\n'
        "[gpu_models.X1]\nmemory_mib = 1000\nidle_w = 5\npeak_w = 50\nprice_usd_per_h = 0.1\n"
    )
    cluster = load_cluster(str(file))
    assert [n.name for n in cluster.nodes] == ["gpu-0", "gpu-1", "n2"]
    assert cluster.gpu_model(0).peak_w == 50
    assert cluster.least_memory_mib == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("16", "neither NODESxGPUS"),
        ("0x4", "both must be at least 1"),
        ("4x4:V1000", "did you mean 'V100'"),
        ("99999x99999", "at most 10,000,000"),
        ("missing.toml", "no such file"),
    ],
)
def test_a_wrong_shape_is_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_cluster(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nodes = 4", r"nodes: .* found 4"),
        ("[[nodes]]\ngpus = 0", r"nodes\.0\.gpus: .* found 0"),
        ("[[nodes]]\ngpus = 2\ncolour = 'red'", r"nodes\.0\.colour: extra inputs"),
        ("[[nodes]\n", "not valid TOML"),
        ("", r"nodes: field required"),
    ],
)
def test_a_wrong_cluster_file_names_the_field(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        load_cluster(str(file))


@pytest.fixture
def cluster() -> Cluster:
    return parse_shape("1x3")


def test_gpus_without_a_score_get_the_median_and_are_listed(tmp_path: Path, cluster: Cluster) -> None:
    file = tmp_path / "v.json"
    file.write_text(json.dumps({"gpus": [{"gpu": 0, "A": 1.0, "sf_A": 7}, {"gpu": 2, "A": 3.0}]}))
    scores = load_variability(file, cluster)
    assert list(scores.of_class("A")) == [1.0, 2.0, 3.0]
    assert scores.unscored == (1,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "an object with a list 'gpus'"),
        ("{", "not valid JSON"),
        ('{"gpus": [{"gpu": 0}]}', "no scores"),
        ('{"gpus": [7]}', "no GPU number"),
        ('{"gpus": [{"gpu": 0, "A": -1}]}', "class A: found -1, expected a number above 0"),
        ('{"gpus": [{"gpu": 7, "A": 1}]}', "scores 8 GPUs, the cluster has 3"),
        ('{"gpus": [{"gpu": -1, "A": 1}]}', "scores GPU -1"),
    ],
)
def test_a_wrong_variability_file_is_explained(tmp_path: Path, cluster: Cluster, content: str, message: str) -> None:
    file = tmp_path / "v.json"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        load_variability(file, cluster)

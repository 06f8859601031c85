"""Clusters and variability profiles as files, right and wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster, Rental, parse_rental, parse_shape
from fairlead.model.files import load_cluster, load_variability, save_variability
from fairlead.model.variability import Variability


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


@pytest.mark.parametrize(
    ("text", "rental"),
    [
        ("default", Rental()),
        ("boot=300", Rental(boot_s=300.0)),
        (" step = 3600 , minimum=0", Rental(minimum_s=0.0, step_s=3600.0)),
        ("boot_s=1,minimum_s=2,step_s=3", Rental(1.0, 2.0, 3.0)),
    ],
)
def test_rental_terms_are_read_and_may_be_left_out(text: str, rental: Rental) -> None:
    assert parse_rental(text) == rental


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"unknown term ''\nhint: default, or some of boot=120,minimum=60,step=1"),
        ("yes", "unknown term 'yes'"),
        ("boot=1,price=2", "unknown term 'price'"),
        ("boot", "boot is '', expected seconds"),
        ("boot=1,boot_s=2", "twice"),
        ("boot=nan", "boot_s=nan"),
        ("step=inf", "step_s=inf"),
    ],
)
def test_wrong_rental_terms_are_explained(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rental(text)


NODES = '[[nodes]]\ncount = 2\ngpus = 2\nnames = ["left", "right"]\nuuids = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]\n'


@pytest.fixture
def named(tmp_path: Path) -> Cluster:
    """Two nodes of two GPUs with names and UUIDs."""
    file = tmp_path / "named.toml"
    file.write_text(NODES)
    return load_cluster(str(file))


def test_a_cluster_file_may_name_nodes_and_gpus(named: Cluster) -> None:
    assert [node.name for node in named.nodes] == ["left", "right"]
    assert [named.gpu_uuid(gpu) for gpu in range(4)] == ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
    assert parse_shape("1x1").gpu_uuid(0) == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (', "GPU-d"', "", r"nodes\.0\.uuids: found 3, expected 4"),
        ('"GPU-d"', '"GPU-a"', "GPU-a stands twice"),
        (', "right"', "", r"nodes\.0\.names: found 1, expected 2"),
        ('"right"', '"left"', "two nodes are called 'left'"),
    ],
)
def test_wrong_names_in_a_cluster_file_are_explained(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(NODES.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_cluster(str(file))


def profile(tmp_path: Path, *entries: object) -> Path:
    file = tmp_path / "v.json"
    file.write_text(json.dumps({"gpus": entries}))
    return file


def test_an_entry_names_its_gpu_by_number_by_node_and_index_or_by_uuid(tmp_path: Path, named: Cluster) -> None:
    file = profile(
        tmp_path,
        {"uuid": "GPU-d", "A": 4.0},
        {"node": "right", "index": 0, "A": 3.0},
        {"gpu": 1, "node": 7, "A": 2.0},
        {"gpu": 0, "node": "elsewhere", "index": 9, "uuid": "GPU-z", "A": 1.0},
    )
    assert list(load_variability(file, named).of_class("A")) == [1.0, 2.0, 3.0, 4.0]


def test_without_a_name_an_entry_counts_by_its_place(tmp_path: Path, named: Cluster) -> None:
    assert list(load_variability(profile(tmp_path, {"A": 1.0}, {"A": 3.0}), named).of_class("A")) == [1, 3, 2, 2]


def test_classes_have_names_in_capitals_and_the_rest_is_left_alone(tmp_path: Path, named: Cluster) -> None:
    entry = {"gpu": 0, "A": 1, "C2": 1.5, "sf_A": 7, "note": "x", "Temp": "hot", "2B": 0}
    assert set(load_variability(profile(tmp_path, entry), named).scores) == {"A", "C2"}


def test_gpus_without_a_score_get_the_median_and_are_listed(tmp_path: Path, named: Cluster) -> None:
    file = profile(tmp_path, {"gpu": 0, "A": 1.0, "B": 1.0}, {"gpu": 2, "A": 3.0}, {"gpu": 3, "A": 9.0, "B": 2.0})
    scores = load_variability(file, named)
    assert list(scores.of_class("A")) == [1.0, 3.0, 3.0, 9.0]
    assert scores.unscored == (1, 2)
    assert (scores.unscored_in("A"), scores.unscored_in("B")) == ((1,), (1, 2))


def test_a_score_that_is_only_assumed_has_no_say_in_the_median(tmp_path: Path, named: Cluster) -> None:
    file = profile(tmp_path, {"gpu": 0, "A": 1.0}, {"gpu": 1, "A": 8.0, "unscored": ["A"]})
    scores = load_variability(file, named)
    assert list(scores.of_class("A")) == [1.0, 8.0, 1.0, 1.0]
    assert scores.unscored_in("A") == (1, 2, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "an object with a list 'gpus'"),
        ('{"gpus": 3}', "an object with a list 'gpus'"),
        ("{", "not valid JSON"),
        ('{"gpus": []}', "no scores"),
        ('{"gpus": [{"gpu": 0}]}', "no scores"),
        ('{"gpus": [7]}', "entry 0: found 7, expected an object"),
        ('{"gpus": [{"gpu": true, "A": 1}]}', "gpu: found True, expected a whole number"),
        ('{"gpus": [{"gpu": 0, "A": -1}]}', "entry 0: class A: found -1, expected a number above 0"),
        ('{"gpus": [{"gpu": 0, "A": NaN}]}', "class A: found nan"),
        ('{"gpus": [{"gpu": 7, "A": 1}]}', "gpu: found 7, expected a whole number from 0 to 3"),
        ('{"gpus": [{"gpu": -1, "A": 1}]}', "gpu: found -1"),
        ('{"gpus": [{"node": "lift", "index": 0, "A": 1}]}', "node: found 'lift', .*\n.*did you mean 'left'"),
        ('{"gpus": [{"node": 0, "index": 0, "A": 1}]}', "node: found 0, expected the name"),
        ('{"gpus": [{"node": "left", "index": 2, "A": 1}]}', "index: found 2, expected a whole number from 0 to 1"),
        ('{"gpus": [{"node": "left", "A": 1}]}', "index: found None"),
        ('{"gpus": [{"uuid": "GPU-z", "A": 1}]}', "uuid: found 'GPU-z', no GPU of the cluster has it"),
        ('{"gpus": [{"uuid": ["GPU-a"], "A": 1}]}', "no GPU of the cluster has it"),
        ('{"gpus": [{"gpu": 0, "A": 1}, {"uuid": "GPU-a", "A": 1}]}', "entry 1: GPU left:0 was scored .* entry 0"),
        ('{"gpus": [{"gpu": 0, "uuid": "GPU-b", "A": 1}]}', "gpu 0 is left:0, but the entry also names left:1"),
        ('{"gpus": [{"gpu": 0, "node": "right", "index": 0, "A": 1}]}', "but the entry also names right:0"),
    ],
)
def test_a_wrong_variability_file_is_explained(tmp_path: Path, named: Cluster, content: str, message: str) -> None:
    file = tmp_path / "v.json"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        load_variability(file, named)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("gpu,A\n0,1,2\n", "line 2: found 3 cells, expected 2"),
        ("gpu,A\n0,1\n\nx,1\n", "line 4: gpu: found 'x'"),
        ("gpu,A\n0,fast\n", "line 2: class A: found 'fast', expected a number above 0"),
        ("gpu,A\n0,1\n0,1\n", "line 3: GPU left:0 was scored before, in line 2"),
        ("", "the file is empty"),
    ],
)
def test_a_wrong_csv_profile_names_the_line(tmp_path: Path, named: Cluster, content: str, message: str) -> None:
    file = tmp_path / "v.csv"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        load_variability(file, named)


def test_a_csv_profile_may_name_gpus_in_any_way(tmp_path: Path, named: Cluster) -> None:
    file = tmp_path / "v.csv"
    file.write_text("gpu,node,index,uuid,A,B\n3,,,,4,1\n,right,0,,3,\n,,,GPU-b,2,1\n,left,0,,1,1\n")
    scores = load_variability(file, named)
    assert list(scores.of_class("A")) == [1.0, 2.0, 3.0, 4.0]
    assert scores.unscored_in("B") == (2,)


@given(
    scores=st.dictionaries(
        st.from_regex(r"[A-Z][A-Z0-9]{0,2}", fullmatch=True),
        st.lists(st.floats(1e-6, 1e6), min_size=6, max_size=6),
        min_size=1,
        max_size=4,
    ),
    unscored=st.sets(st.integers(0, 5)),
    ending=st.sampled_from(["json", "csv"]),
)
@settings(deadline=None)
def test_a_profile_that_was_saved_reads_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, scores: dict[str, list[float]], unscored: set[int], ending: str
) -> None:
    cluster = parse_shape("1x2+1x4:T4")
    path = tmp_path_factory.mktemp("round-trip") / f"v.{ending}"
    before = Variability(scores, tuple(sorted(unscored)))
    save_variability(before, cluster, path, about={"A": "resnet"})
    after = load_variability(path, cluster)
    assert after.scores == before.scores
    assert after.unscored == before.unscored
    assert all(after.unscored_in(name) == before.unscored_in(name) for name in scores)


def test_a_saved_profile_says_where_its_classes_come_from(tmp_path: Path, named: Cluster) -> None:
    save_variability(Variability({"A": [1.0] * 4}), named, tmp_path / "v.json", about={"A": "resnet"})
    saved = json.loads((tmp_path / "v.json").read_text())
    assert saved["classes"] == {"A": {"from": "resnet"}}
    assert saved["gpus"][3] == {"gpu": 3, "node": "right", "index": 1, "uuid": "GPU-d", "A": 1.0}


@pytest.mark.parametrize(
    ("scores", "name", "message"),
    [
        ({"A": [1.0]}, "v.json", "has 1 GPUs, the cluster has 4"),
        ({"A": [1.0] * 4}, "v.txt", "ends in .json or .csv"),
        ({"a": [1.0] * 4}, "v.json", "class name 'a': expected capital letters"),
        ({"A": [1.0] * 4}, "missing/v.json", "cannot be written"),
    ],
)
def test_a_profile_that_cannot_be_saved_is_explained(
    tmp_path: Path, named: Cluster, scores: dict[str, list[float]], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        save_variability(Variability(scores), named, tmp_path / name)


def test_the_published_profile_of_64_gpus_reads_as_before(shared_data: Path) -> None:
    scores = load_variability(shared_data / "pal" / "profile64_seed42.json", parse_shape("16x4"))
    assert set(scores.scores) == set("ABCD")
    assert scores.unscored == ()
    assert scores.of_class("A")[35] == pytest.approx(2.83, abs=0.01)

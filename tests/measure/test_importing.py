"""Profiles from raw measurements: the public formats, joining GPUs over files, bad rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.measure import Imported, import_runs, summarise
from fairlead.measure.importing import _joined
from fairlead.measure.runs import Run, read_runs
from fairlead.model.cluster import parse_shape
from fairlead.model.files import load_cluster, load_variability, save_variability
from tests.measure.conftest import Write, frontera


def score(imported: Imported, app_class: str, name: str) -> float:
    return imported.variability.of_class(app_class)[imported.cluster.gpu_numbered(name)]


def test_a_score_is_the_median_of_a_gpu_over_the_median_of_the_medians(write: Write) -> None:
    head = "exp,cabinet,node,device,perf,uuid"
    perfs = {0: (10, 10, 90), 1: (20, 20, 21), 2: (30, 40, 35)}
    rows = [f"resnet,c1,1,{device},{perf},GPU-{device}-a" for device, runs in perfs.items() for perf in runs]
    imported = import_runs([write("r.csv", head, *rows)])
    assert list(imported.variability.of_class("A")) == [0.5, 1.0, 1.75]
    assert imported.runs == {"A": 9}
    assert imported.cluster.describe() == "1 nodes x 3 V100, 3 GPUs"


def test_applications_stand_for_their_classes(write: Write) -> None:
    files = [write(f"{app}.csv", *frontera(app, [[1, 2], [3, 4]])) for app in ("resnet", "bert", "pagerank")]
    assert import_runs(files).applications == {"A": "resnet", "B": "bert", "C": "bert", "D": "pagerank"}
    chosen = import_runs(files, classes={"A": "bert", "E2": "PageRank"}).applications
    assert chosen == {"A": "bert", "B": "bert", "C": "bert", "D": "pagerank", "E2": "pagerank"}


def test_sgemm_stands_in_for_resnet_only_where_that_is_missing(write: Write) -> None:
    sgemm, resnet = (write(f"{app}.csv", *frontera(app, [[1, 2], [3, 4]])) for app in ("sgemm", "resnet50"))
    alone = import_runs([sgemm])
    assert alone.applications == {"A": "sgemm"}
    assert "class A is measured by sgemm: no resnet among the files" in alone.notes
    both = import_runs([sgemm, resnet])
    assert both.applications == {"A": "resnet50"}
    assert "the runs of sgemm are not used: class A has resnet50" in both.notes


def test_gpus_are_one_over_files_by_uuid_or_else_by_node_and_device(write: Write) -> None:
    resnet = write(
        "r.csv", "exp,cabinet,node,device,uuid,perf", "resnet,c002,4,0,c002-4-0,1", "resnet,c002,4,1,c002-4-1,3"
    )
    pagerank = write(
        "p.csv",
        "model,cabinet,node,device,uuid,perf",
        "pagerank,c002,004,1,GPU-b,5",
        "pagerank,c002,004,0,GPU-a,4",
        "pagerank,c002,010,0,GPU-c,6",
    )
    bert = write("b.csv", "exp,cabinet,node,dev_id,uuid,perf", "bert,-1,-1,0,GPU-b,1", "bert,-1,-1,0,GPU-c,1")
    imported = import_runs([resnet, pagerank, bert])
    assert [node.name for node in imported.cluster.nodes] == ["c002-4", "c002-10"]
    assert imported.cluster.nodes[0].uuids == ("GPU-a", "GPU-b")
    assert score(imported, "A", "c002-4:1") == 1.5
    assert score(imported, "D", "c002-4:1") == 1.0
    about = summarise(imported.variability, imported.cluster)
    assert about["classes"]["A"]["unscored"] == ["c002-10:0"]
    assert about["classes"]["B"]["unscored"] == ["c002-4:0"]
    assert about["classes"]["D"]["unscored"] == []


def test_a_place_in_the_uuid_column_is_enough(write: Write) -> None:
    file = write("r.csv", "exp,uuid,perf", "resnet,c2-004-1,1", "resnet,c2-4-0,3")
    assert list(import_runs([file]).variability.of_class("A")) == [1.5, 0.5]


def test_device_numbers_that_say_nothing_are_not_believed(write: Write) -> None:
    head = "exp,uuid,cabinet,node,perf,dev_id"
    rows = [f"sgemm,GPU-{u},c1,1,{perf},0" for u, perf in (("d", 4), ("a", 1), ("c", 3))]
    imported = import_runs([write("s.csv", head, *rows, "sgemm,GPU-z,-1,-1,9,0")])
    assert [node.name for node in imported.cluster.nodes] == ["GPU-z", "c1-1"]
    assert imported.cluster.nodes[1].uuids == ("GPU-a", "GPU-c", "GPU-d")
    assert any("same device number" in note for note in imported.notes)
    assert any("node of 1 GPUs is unknown" in note for note in imported.notes)


def test_a_gpu_that_was_swapped_is_two(write: Write) -> None:
    head = "exp,uuid,cabinet,node,device,perf"
    rows = ["resnet,GPU-a,c1,1,0,1", "resnet,GPU-b,c1,1,1,2", "resnet,GPU-b,c1,1,1,2", "resnet,GPU-c,c1,1,1,3"]
    imported = import_runs([write("r.csv", head, *rows)])
    assert imported.cluster.nodes[0].uuids == ("GPU-a", "GPU-b", "GPU-c")


def test_a_device_that_was_never_measured_is_listed(write: Write) -> None:
    file = write("r.csv", "exp,cabinet,node,device,perf", "resnet,c1,1,0,1", "resnet,c1,1,2,3")
    imported = import_runs([file])
    assert list(imported.variability.of_class("A")) == [0.5, 1.0, 1.5]
    assert imported.variability.unscored == (1,)


def test_measurements_can_be_laid_onto_a_cluster_file(write: Write) -> None:
    resnet = write("r.csv", *frontera("resnet", [[1, 2], [3, 4]]))
    named = write("c.toml", "[[nodes]]", "count = 2", "gpus = 2", 'names = ["c1-2", "c1-1"]')
    imported = import_runs([resnet], cluster=load_cluster(str(named)))
    assert list(imported.variability.of_class("A")) == [1.2, 1.6, 0.4, 0.8]
    with pytest.raises(InputError, match="a measured GPU is not in the cluster: node: found 'c1-1'"):
        import_runs([resnet], cluster=parse_shape("2x2"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("9,resnet,0,c1,1,0,slow,GPU-a", r"line 6, column perf: found 'slow', expected a time above 0"),
        ("9,resnet,0,c1,1,0,0,GPU-a", r"column perf: found '0'"),
        ("9,resnet,0,c1,1,0,inf,GPU-a", r"column perf: found 'inf'"),
        ("9,resnet,0,c1,1,0,,GPU-a", r"column perf: found nothing"),
        ("9,,0,c1,1,0,1,GPU-a", r"column exp: found nothing, expected the name of an application"),
        ("9,resnet,0,c1,1,x,1,GPU-a", r"column device: found 'x', expected a whole number from 0 to 63"),
        ("9,resnet,0,c1,1,64,1,GPU-a", r"column device: found '64'"),
        ("9,resnet,0,c1,1,0.5,1,GPU-a", r"column device: found '0.5'"),
        ("9,resnet,0,-1,-1,0,1,", r"column uuid: found nothing, expected a UUID, or else a node and a device"),
        ("9,resnet", r"line 6: found 2 cells, expected 8"),
    ],
)
def test_a_bad_row_is_named_or_counted(write: Write, row: str, message: str) -> None:
    file = write("r.csv", *frontera("resnet", [[1, 2], [3, 4]]), row)
    with pytest.raises(InputError, match=message) as caught:
        import_runs([file])
    assert caught.value.hint is not None
    assert "--skip-bad-rows" in caught.value.hint
    imported = import_runs([file], skip_bad_rows=True)
    assert imported.skipped_rows == 1
    assert "skipped 1 bad rows of r.csv" in imported.notes[0]
    assert imported.runs == {"A": 4}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["exp,uuid,time", "resnet,GPU-a,1"], "no column for the measured time: expected perf, found exp, uuid, time"),
        (["app,uuid,perf", "resnet,GPU-a,1"], "no column for the application: expected exp or model"),
        (["exp,perf", "resnet,1"], "no column for the GPU"),
        (["exp,uuid,perf"], "no runs found"),
        (["exp,uuid,perf", "vgg,GPU-a,1"], "no class is known for vgg"),
    ],
)
def test_a_file_of_another_kind_is_explained(write: Write, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_runs([write("r.csv", *lines)])


def test_a_class_that_makes_no_sense_is_explained(write: Write) -> None:
    file = write("r.csv", *frontera("resnet", [[1, 2], [3, 4]]))
    with pytest.raises(InputError, match=r"class A: no runs of 'resnett'.*\n.*did you mean 'resnet'"):
        import_runs([file], classes={"A": "resnett"})
    with pytest.raises(InputError, match="class 'x': expected capital letters"):
        import_runs([file], classes={"x": "resnet"})


def test_files_in_other_units_are_refused(write: Write) -> None:
    seconds, millis = write("s.csv", *frontera("bert", [[0.2, 0.2]])), write("m.csv", *frontera("bert", [[200, 201]]))
    with pytest.raises(InputError, match=r"typically takes 201, in .*s\.csv 0\.2"):
        import_runs([seconds, millis])


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_renaming_gpus_and_the_order_of_rows_change_no_score(names: list[int], order: list[int]) -> None:
    runs = [Run("resnet", 1.0 + i, f"GPU-{i}", f"c1-{i // 2}", i % 2) for i in range(6)]
    renamed = [Run("resnet", r.perf, f"GPU-{names[i]}", r.node, r.index) for i, r in enumerate(runs)]
    places = [(gpu.node, gpu.index) for gpu in _joined([renamed[i] for i in order])]
    assert places == [(runs[i].node, runs[i].index) for i in order]


def shared(data: Path, cluster: str, *apps: str) -> list[Path]:
    return [path for path in sorted((data / "pal" / cluster).glob("*.csv")) if any(app in path.name for app in apps)]


@pytest.fixture(scope="module")
def frontera_data(shared_data: Path) -> Imported:
    return import_runs(shared(shared_data, "frontera", "resnet", "bert", "pagerank"))


def test_frontera_has_its_gpus(frontera_data: Imported) -> None:
    about = summarise(frontera_data.variability, frontera_data.cluster, runs=frontera_data.runs)
    assert (about["gpus"], about["nodes"]) == (296, 74)
    assert [(one["gpus"], one["runs"]) for one in about["classes"].values()] == [
        (296, 1480),
        (276, 1656),
        (276, 1656),
        (248, 1240),
    ]
    assert len(about["classes"]["D"]["unscored"]) == 48


def test_frontera_varies_between_nodes_not_within_them(frontera_data: Imported) -> None:
    # docs/papers/pal.md says 99 %. Medians per GPU give 97.6 % of the variance, 98.8 % of the standard deviation.
    about = summarise(frontera_data.variability, frontera_data.cluster)["classes"]["A"]
    assert about["between_nodes_frac"] == pytest.approx(0.976, abs=0.001)
    assert about["between_nodes_frac"] ** 0.5 == pytest.approx(0.99, abs=0.005)
    assert {slow["gpu"].split(":")[0] for slow in about["outliers"]} == {"c196-112", "c197-91", "c198-32"}


def test_classes_rank_the_gpus_of_frontera_each_in_its_own_way(frontera_data: Imported) -> None:
    correlations = summarise(frontera_data.variability, frontera_data.cluster)["correlations"]
    assert all(abs(correlations[pair]) <= 0.09 for pair in ("A-B", "A-D", "B-D"))
    assert correlations["B-C"] == pytest.approx(1.0)


def test_longhorn_is_joined_over_files_with_and_without_uuids(shared_data: Path) -> None:
    imported = import_runs(shared(shared_data, "longhorn", "resnet", "bert", "pagerank", "sgemm"))
    about = summarise(imported.variability, imported.cluster)
    assert [one["gpus"] for one in about["classes"].values()] == [336, 136, 136, 172]
    assert (about["gpus"], about["nodes"]) == (384, 96)
    assert max(imported.variability.of_class("A")) == pytest.approx(1.120, abs=0.001)


def test_longhorns_sgemm_is_told_apart_by_uuid(shared_data: Path) -> None:
    imported = import_runs(shared(shared_data, "longhorn", "sgemm"))
    assert (imported.cluster.gpus, len(imported.cluster.nodes)) == (392, 80 + 72)
    assert read_runs(shared(shared_data, "longhorn", "sgemm")).skipped_rows == 0


def test_an_imported_profile_reads_back_by_number_and_by_name(frontera_data: Imported, tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    save_variability(frontera_data.variability, frontera_data.cluster, path)
    assert load_variability(path, frontera_data.cluster) == frontera_data.variability
    assert load_variability(path, parse_shape("74x4")) == frontera_data.variability

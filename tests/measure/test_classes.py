"""Classes of applications. The numbers are made up, in the shape of PAL's figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.measure import Counters, cluster_applications, load_classes, read_counters, save_classes
from fairlead.measure.counters import parse_counters
from tests.measure.conftest import Write

TABLE = [
    Counters("resnet", 0.35, 0.62),
    Counters("vgg", 0.38, 0.66),
    Counters("sgemm", 0.30, 0.70),
    Counters("bert", 0.45, 0.35),
    Counters("gpt", 0.48, 0.38),
    Counters("pagerank", 0.85, 0.03),
    Counters("pointnet", 0.80, 0.05),
]


def members(found: object) -> dict[str, set[str]]:
    return {c.name: set(c.members) for c in found.classes}  # type: ignore[attr-defined]


def test_classes_go_from_compute_bound_to_memory_bound() -> None:
    found = cluster_applications(TABLE)
    assert members(found) == {"A": {"resnet", "vgg", "sgemm"}, "B": {"bert", "gpt"}, "C": {"pagerank", "pointnet"}}
    assert max(found.silhouettes, key=lambda k: found.silhouettes[k]) == 3
    assert list(found.silhouettes) == [2, 3, 4, 5, 6]
    leaning = [c.fma_frac - c.dram_frac for c in found.classes]
    assert leaning == sorted(leaning, reverse=True)


def test_the_number_of_classes_can_be_fixed() -> None:
    assert len(cluster_applications(TABLE, 2).classes) == 2
    with pytest.raises(InputError, match="k is 7, expected a number from 2 to 6 for 7 applications"):
        cluster_applications(TABLE, 7)


@given(order=st.permutations(range(7)), names=st.permutations(range(7)))
@settings(deadline=None, max_examples=15)
def test_neither_names_nor_order_decide(order: list[int], names: list[int]) -> None:
    renamed = [Counters(f"app{names[i]}", TABLE[i].dram_frac, TABLE[i].fma_frac) for i in order]
    found, plain = cluster_applications(renamed), cluster_applications(TABLE)
    assert [(c.dram_frac, c.fma_frac, c.radius) for c in found.classes] == [
        (c.dram_frac, c.fma_frac, c.radius) for c in plain.classes
    ]
    back = {f"app{names[i]}": TABLE[i].application for i in range(7)}
    assert {n: {back[m] for m in found} for n, found in members(found).items()} == members(plain)


def test_a_new_application_joins_the_nearest_class_and_is_told_when_it_is_far() -> None:
    found = cluster_applications(TABLE)
    near = found.join(Counters("new", 0.36, 0.63))
    assert (near.app_class, near.far) == ("A", False)
    far = found.join(Counters("odd", 0.05, 0.99))
    assert (far.app_class, far.far) == ("A", True)
    assert far.distance > far.radius
    for old in TABLE:
        joined = found.join(old)
        assert old.application in members(found)[joined.app_class]
        assert not joined.far


def test_applications_that_measure_alike_share_a_class() -> None:
    found = cluster_applications([*TABLE[:1], Counters("twin", 0.35, 0.62), TABLE[5]])
    assert members(found) == {"A": {"resnet", "twin"}, "B": {"pagerank"}}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TABLE[:2], "found 2 applications, expected at least 3"),
        ([Counters(n, 0.5, f) for n, f in (("a", 0.1), ("b", 0.2), ("c", 0.3))], "dram_frac is 0.5 for all"),
        ([Counters(n, f, 0.0) for n, f in (("a", 0.1), ("b", 0.2), ("c", 0.3))], "fma_frac is 0 for all"),
        ([*TABLE, Counters("x", 1.5, 0.1)], "dram_frac: found 1.5, expected a fraction"),
    ],
)
def test_a_table_that_cannot_be_clustered_is_explained(table: list[Counters], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_applications(table)


def test_classes_read_back_as_they_were_saved(tmp_path: Path) -> None:
    found = cluster_applications(TABLE)
    save_classes(found, tmp_path / "classes.json")
    assert load_classes(tmp_path / "classes.json") == found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "invalid json"),
        ("{}", "classes: field required"),
        (
            json.dumps({"classes": [{"name": "A", "dram_frac": 2, "fma_frac": 0, "radius": 0}]}),
            r"classes\.0\.dram_frac",
        ),
    ],
)
def test_a_wrong_file_of_classes_is_explained(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        load_classes(file)
    with pytest.raises(InputError, match="cannot be written"):
        save_classes(cluster_applications(TABLE), tmp_path / "no" / "c.json")


def test_counters_may_be_fractions_or_percentages(write: Write) -> None:
    fractions = write("f.csv", "application,dram_frac,fma_frac", "x,0.25,0.5")
    percent = write("p.csv", "application,note,dram_util,sm_util", "x,hello,25,50")
    assert read_counters(fractions) == read_counters(percent) == [Counters("x", 0.25, 0.5)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["application,dram_frac,fma_frac", "x,25,0.5"], "line 2, column dram_frac: found '25', expected a fraction"),
        (["application,dram_util,fma_util", "x,25,101"], "column fma_util: found '101', expected a percentage"),
        (["application,dram_frac,fma_frac", "x,0.1,?"], "column fma_frac: found '\\?'"),
        (["application,dram_frac,fma_frac", ",0.1,0.1"], "column application: found nothing"),
        (["application,dram_frac,fma_frac", "x,0.1,0.1", "x,0.2,0.1"], "line 3, column application: found 'x'"),
        (["application,dram_frac,fma_frac", "x,0.1"], "line 2: found 2 cells, expected 3"),
        (["application,dram_frac,fma_frac"], "no applications found"),
        (["application,dram_frac"], "no column for FMA utilisation: expected fma_frac or fma_util"),
        (["app,dram_frac,fma_frac"], "no column for the application"),
    ],
)
def test_a_wrong_table_of_counters_names_the_cell(write: Write, lines: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_counters(write("t.csv", *lines))


def test_an_application_can_be_given_in_words() -> None:
    assert parse_counters("x:fma=0.7:dram=0.4") == Counters("x", 0.4, 0.7)


@pytest.mark.parametrize("text", ["x", "x:dram=0.4", ":dram=0.1:fma=0.2", "x:dram=0.1:fma=0.2:l2=1", "x:dram:fma"])
def test_words_that_do_not_say_an_application_are_explained(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        parse_counters(text)


def test_fractions_in_words_have_bounds() -> None:
    with pytest.raises(InputError, match="fma: found '70', expected a fraction from 0 to 1"):
        parse_counters("x:dram=0.4:fma=70")

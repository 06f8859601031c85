"""What jobs keep of their speed beside each other: the order of prediction, the files, and the shipped tables."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.model.cluster import parse_shape
from fairlead.model.interference import (
    BUILT_IN,
    EMPTY,
    Interference,
    Measured,
    built_in,
    load_interference,
    prior,
    save_interference,
)
from fairlead.model.job import Job
from fairlead.model.profile import Profile, profile_named
from fairlead.model.speed import speed
from fairlead.model.tables import derive
from fairlead.model.tables.entry import FORMAT

A, B, C, D = (Profile(name, activity_frac=0.45) for name in "abcd")


def table_of(*sets: tuple[str, tuple[float, ...], float | None]) -> Interference:
    table = Interference()
    for names, speeds, utilisation_frac in sets:
        table.record([*names], speeds, utilisation_frac)
    return table


PAIRS = table_of(("ab", (0.9, 0.8), 0.7), ("ac", (0.7, 0.95), None), ("bc", (1.1, 0.6), None))


def test_nobody_beside_it_costs_exactly_nothing() -> None:
    assert PAIRS.predict(A, []) == EMPTY.predict(A, ()) == 1.0


def test_a_measured_set_is_taken_as_it_is() -> None:
    table = PAIRS.copy()
    table.record([*"cab"], (0.3, 0.1, 0.2))
    assert [table.predict(x, y) for x, y in ((A, [B, C]), (B, [C, A]), (C, [A, B]))] == [0.1, 0.2, 0.3]
    assert table.source(A, [C, B]) == "set"


def test_a_set_of_measured_pairs_is_their_product() -> None:
    assert PAIRS.predict(A, [B, C]) == pytest.approx(0.9 * 0.7)
    assert PAIRS.predict(C, [A, B]) == pytest.approx(0.95 * 0.6)
    assert PAIRS.predict(A, [B, B]) == pytest.approx(0.9 * 0.9)
    assert PAIRS.source(A, [B, C]) == "pairs"
    assert PAIRS.predict(B, [A]) == 0.8
    assert PAIRS.source(B, [A]) == "set"


def test_a_set_with_an_unmeasured_pair_is_the_smaller_of_pairs_and_prior() -> None:
    assert PAIRS.predict(A, [B, D]) == pytest.approx(min(0.9, prior(3 * 0.45)))
    assert PAIRS.predict(A, [C, D]) == pytest.approx(0.7)
    assert PAIRS.predict(D, [A, B]) == prior(3 * 0.45)
    assert {PAIRS.source(A, [B, D]), PAIRS.source(A, [C, D]), PAIRS.source(D, [A])} == {"prior"}


def test_a_pair_that_helped_does_not_lift_the_prior() -> None:
    assert PAIRS.predict(B, [C, D]) == prior(3 * 0.45)


def test_neighbours_are_free_until_the_gpu_is_full() -> None:
    light, heavy = Profile(activity_frac=0.4), Profile(activity_frac=0.9)
    assert EMPTY.predict(light, [light]) == 1.0
    assert EMPTY.predict(heavy, [light]) == pytest.approx(0.87)
    assert EMPTY.predict(heavy, [heavy, heavy]) == pytest.approx(0.68 * 1.9 / 2.7)


@given(a=st.floats(0, 1), b=st.floats(0, 1), c=st.floats(0, 1))
def test_one_more_neighbour_never_helps_where_nothing_was_measured(a: float, b: float, c: float) -> None:
    profile, others = Profile(activity_frac=a), [Profile(activity_frac=b)]
    assert EMPTY.predict(profile, [*others, Profile(activity_frac=c)]) <= EMPTY.predict(profile, others) + 1e-12


@given(low=st.floats(0, 5), more=st.floats(0, 5))
def test_the_prior_falls_with_activity_and_stays_a_share(low: float, more: float) -> None:
    assert 0.0 < prior(low + more) <= prior(low) <= 1.0


@given(st.permutations([A, B, C, D]), st.lists(st.sampled_from("abcd"), min_size=2, max_size=2))
def test_the_order_of_neighbours_changes_nothing(order: list[Profile], pair: list[str]) -> None:
    table = PAIRS.copy()
    table.record(pair, [0.31, 0.77])
    others = [p for p in order if p is not A]
    assert table.predict(A, others) == table.predict(A, [B, C, D])
    assert table.utilisation(order) == table.utilisation([A, B, C, D])


def test_names_are_the_same_in_any_case_and_shown_as_given() -> None:
    table = Interference()
    table.record(["VGG", "Alex"], [0.5, 0.6])
    assert table.predict(Profile("vgg"), [Profile("ALEX")]) == 0.5
    assert [names for names, _ in table] == [("Alex", "VGG")]


def test_jobs_of_one_name_share_their_mean() -> None:
    table = Interference()
    table.record(["x", "y", "X"], [0.4, 0.9, 0.6])
    assert [m for _, m in table] == [Measured((0.5, 0.5, 0.9), None)]
    assert table.predict(Profile("X"), [Profile("y"), Profile("x")]) == 0.5


def test_repeated_measurements_are_averaged() -> None:
    table = Interference()
    for mine, used in ((0.9, None), (0.6, 0.5), (0.6, 0.8)):
        table.record([*"ab"], (mine, 0.5), used)
    ((_, measured),) = table
    assert measured.speeds == pytest.approx((0.7, 0.5))
    assert measured.samples == 3
    # The first of the three saw no utilisation; the second then stands for both.
    assert measured.utilisation_frac == pytest.approx(0.6)


def test_what_is_recorded_is_predicted_at_once() -> None:
    table = Interference()
    assert table.predict(A, [B]) == table.predict(A, [B]) == 1.0
    assert table.utilisation([A, B]) == pytest.approx(0.9)
    table.record([*"ab"], (0.5, 0.6), 0.99)
    assert table.predict(A, [B]) == 0.5
    assert table.utilisation([A, B]) == 0.99
    table.record([*"ab"], (0.7, 0.6), 0.97)
    assert table.predict(A, [B]) == pytest.approx(0.6)


def test_profiles_of_one_name_that_differ_in_activity_are_not_confused() -> None:
    light, heavy = Profile("x", activity_frac=0.2), Profile("x", activity_frac=0.9)
    assert EMPTY.predict(light, [light]) == 1.0
    assert EMPTY.predict(heavy, [heavy]) == prior(1.8)
    assert EMPTY.utilisation([light, light]) == pytest.approx(0.4)
    assert EMPTY.utilisation([heavy, heavy]) == 1.0


def test_the_cache_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.model.interference._CACHE_LIMIT", 10)
    table = Interference()
    for number in range(100):
        assert table.predict(Profile(f"job{number}"), [A]) == 1.0
    assert len(table._predicted) <= 10


def test_utilisation_is_measured_or_the_sum_of_activities_up_to_one() -> None:
    assert PAIRS.utilisation([B, A]) == 0.7
    assert PAIRS.utilisation([A, C]) == pytest.approx(0.9)
    assert PAIRS.utilisation([A, B, C]) == 1.0
    assert PAIRS.utilisation([A]) == 0.45
    assert PAIRS.utilisation([]) == 0.0


def test_the_shared_empty_table_stays_empty() -> None:
    with pytest.raises(TypeError, match="stays empty"):
        EMPTY.record([*"ab"], (1.0, 1.0))
    own = EMPTY.copy()
    own.record([*"ab"], (0.5, 0.5))
    assert (len(own), len(EMPTY)) == (1, 0)


def test_a_copy_learns_apart_and_both_can_be_sent_to_another_process() -> None:
    twin = pickle.loads(pickle.dumps(PAIRS.copy()))
    twin.record([*"ad"], (0.5, 0.5))
    assert (len(PAIRS), len(twin)) == (3, 4)


def test_speed_takes_the_table() -> None:
    job = Job(0, "j", 0.0, 1, A)
    cluster = parse_shape("1x2")
    assert speed(job, (0,), cluster, [B], PAIRS) == 0.9
    assert speed(job, (0,), cluster, [B]) == 1.0
    assert speed(job, (0,), cluster, (), PAIRS) == 1.0


# Files


NAMES = st.lists(st.sampled_from(["a", "B", "c", "ResNet-18 bs16", "é"]), min_size=2, max_size=4)


@given(st.lists(st.tuples(NAMES, st.floats(0.01, 1.5), st.none() | st.floats(0, 1)), max_size=8))
def test_a_table_comes_back_as_it_was(measured: list[tuple[list[str], float, float | None]]) -> None:
    table = Interference(does_not_fit=[["c", "B"]])
    for names, first, used in measured:
        table.record(names, [first / (1 + i) for i in range(len(names))], used)
    back = Interference.from_dict(json.loads(json.dumps(table.to_dict())))
    assert [*back] == [*table]
    assert back.to_dict() == table.to_dict()


def test_a_saved_table_loads(tmp_path: Path) -> None:
    save_interference(PAIRS, tmp_path / "h.json")
    assert [*load_interference(tmp_path / "h.json")] == [*PAIRS]
    save_interference(Interference(), tmp_path / "empty.json")
    assert len(load_interference(tmp_path / "empty.json")) == 0


def entry(**changes: Any) -> dict[str, Any]:
    return {"names": ["a", "b"], "speeds": [0.5, 0.6], "utilisation_frac": None, "samples": 1, **changes}


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ({"a": 1}, "sets is {'a': 1}, expected a list"),
        ([3], "sets[0]: found 3, expected names and speeds"),
        ([entry(), entry(names=["a"])], "sets[1]: names has 1, expected a list of at least 2 names"),
        ([entry(names="ab")], "sets[0]: names is 'ab', expected a list"),
        ([entry(names=["a", 3])], "sets[0]: names is ['a', 3], expected a list"),
        ([entry(speeds=None)], "sets[0]: speeds is missing, expected a list of 2 numbers"),
        ([entry(speeds=[0.5])], "sets[0]: 1 speeds for 2 names; expected one each"),
        ([entry(speeds=[0.5, 0.0])], "sets[0]: speed of b is 0.0, expected more than 0 and at most 1.5"),
        ([entry(speeds=[1.6, 0.5])], "sets[0]: speed of a is 1.6, expected"),
        ([entry(speeds=[math.nan, 0.5])], "sets[0]: speed of a is nan, expected"),
        ([entry(speeds=[True, 0.5])], "sets[0]: speed of a is True, expected"),
        ([entry(utilisation_frac=1.2)], "sets[0]: utilisation_frac is 1.2, expected 0 to 1, or null"),
        ([entry(samples=0)], "sets[0]: samples is 0, expected a whole number, at least 1"),
        ([entry(), entry(names=["B", "a"])], "sets[1]: B + a stands twice"),
    ],
)
def test_a_bad_entry_is_named(sets: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"format": FORMAT, "sets": sets}))
    with pytest.raises(InputError) as raised:
        load_interference(path)
    assert str(raised.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "format is 'list', expected 'fairlead-interference-1'"),
        ("{}", "format is None, expected"),
        ('{"format": "fairlead-interference-2", "sets": []}', "format is 'fairlead-interference-2', expected"),
        (f'{{"format": "{FORMAT}"}}', "sets is missing, expected a list"),
        (f'{{"format": "{FORMAT}", "sets": [], "does_not_fit": 3}}', "does_not_fit is 3, expected"),
        (f'{{"format": "{FORMAT}", "sets": [], "does_not_fit": [["a"]]}}', "does_not_fit[0]: names has 1"),
        ("\xff", "not UTF-8"),
    ],
)
def test_a_file_that_is_no_table_says_so(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as raised:
        load_interference(path)
    assert str(path) in str(raised.value)
    assert said in str(raised.value)


def test_a_file_that_is_not_there_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        load_interference(tmp_path / "nope.json")
    with pytest.raises(InputError, match=r"cannot write .*nowhere"):
        save_interference(PAIRS, tmp_path / "nowhere" / "h.json")


def test_a_measurement_is_checked_as_a_file_is() -> None:
    with pytest.raises(InputError, match=r"^speed of b is 2.0"):
        Interference().record(["a", "b"], (0.5, 2.0))


# The shipped tables


def test_built_in_tables_are_named_and_everybody_gets_their_own() -> None:
    assert {name: len(built_in(name)) for name in BUILT_IN} == {"eaco": 6, "gavel-v100": 330, "none": 0}
    built_in("none").record([*"ab"], (0.5, 0.5))
    assert len(built_in("none")) == 0
    with pytest.raises(InputError, match="did you mean 'eaco'"):
        built_in("ecao")


EACO_SETS = {  # W, JCT in h: tables 1 to 4 of the paper
    "AlexNet": (712, 34.76),
    "ResNet-18": (959, 35.13),
    "ResNet-50": (1330, 36.01),
    "VGG-16": (1533, 36.13),
    "AlexNet+ResNet-50": (1390, 36.63),
    "AlexNet+VGG-16": (1506, 36.51),
    "ResNet-18+VGG-16": (1644, 37.01),
    "AlexNet+ResNet-18+ResNet-50": (1541, 38.28),
    "AlexNet+ResNet-18+VGG-16": (1713, 38.26),
    "AlexNet+ResNet-18+ResNet-50+VGG-16": (1944, 44.21),
}


@pytest.mark.parametrize("joined", EACO_SETS)
def test_eaco_speeds_give_the_completion_times_and_utilisations_the_power(joined: str) -> None:
    table = built_in("eaco")
    node_w, jct_h = EACO_SETS[joined]
    profiles = [profile_named(name) for name in joined.split("+")]
    fit_w = 359.8 + 176.57 * (100 * table.utilisation(profiles)) ** 0.48
    assert fit_w == pytest.approx(node_w, rel=1e-3)
    # 90 epochs each; whoever is left when the others end goes on alone.
    ends_h = []
    for own in profiles:
        rate = table.predict(own, [p for p in profiles if p is not own])
        ends_h.append(90 * own.epoch_s / 3600 / rate)
    if len(profiles) == 4:
        first_h = min(ends_h)
        vgg_rate = table.predict(profiles[3], profiles[:3])
        ends_h[3] = first_h + 90 * profiles[3].epoch_s / 3600 - vgg_rate * first_h
        assert ends_h[3] == pytest.approx(93_660 / 1944, rel=1e-4)
    else:
        assert ends_h == pytest.approx([jct_h] * len(profiles), rel=1e-4)
    assert math.fsum(ends_h) / len(ends_h) == pytest.approx(jct_h, rel=1e-4)


def test_eaco_profiles_are_those_of_the_paper(shared_data: Path) -> None:
    tables = json.loads((shared_data / "eaco" / "tables.json").read_text())
    for name, row in tables["exclusive"].items():
        profile = profile_named(name)
        assert profile.name == name
        assert profile.activity_frac == pytest.approx(derive.utilisation_of(row["power_w"]), abs=1e-6)
        assert profile.memory_mib == pytest.approx(row["mem_avg"] / 100 * 32_768)
        assert profile.epoch_s == pytest.approx(row["jct_h"] * 3600 / tables["epochs_derived"])
    rows = {**tables["exclusive"], **tables["colocated"]}
    assert {name: (row["power_w"], row["jct_h"]) for name, row in rows.items()} == EACO_SETS


def test_the_name_that_pal_uses_keeps_its_profile() -> None:
    assert profile_named("resnet50").activity_frac == 0.37
    assert profile_named("resnet50").epoch_s == Profile().epoch_s


def test_gavel_pairs_are_shares_of_the_solo_speed_or_do_not_fit() -> None:
    table = built_in("gavel-v100")
    assert len(table) + len(table.does_not_fit) == 26 * 27 / 2
    assert all(0 < s <= 1 for _, measured in table for s in measured.speeds)
    assert not {names for names, _ in table} & {*table.does_not_fit}
    big, small = Profile("ResNet-50 bs128"), Profile("ResNet-18 bs16")
    assert table.fits([small, small]) is True
    assert table.fits([big, small]) is True
    assert table.fits([big, small, big]) is False
    assert table.copy().fits([big, big]) is False


def test_gavel_speeds_are_those_of_the_data(shared_data: Path) -> None:
    rows = json.loads((shared_data / "gavel" / "simulation_throughputs.json").read_text())["v100"]
    table = built_in("gavel-v100")
    types = [key for key in rows if key.endswith(", 1)")]
    for own, other in itertools.product(types, types):
        names = [derive.short_name(key) or "" for key in (own, other)]
        beside, alone = rows[own][other][0], rows[own]["null"]
        profiles = [Profile(name) for name in names]
        assert table.fits(profiles) == (beside > 0)
        if beside > 0:
            assert table.predict(profiles[0], profiles[1:]) == pytest.approx(min(1, beside / alone), abs=1e-6)


def test_the_shipped_tables_are_what_the_script_derives(shared_data: Path, tmp_path: Path) -> None:
    for made in derive.derive(shared_data, tmp_path):
        assert made.read_bytes() == (Path(derive.__file__).parent / made.name).read_bytes()


def test_the_script_says_what_it_misses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*tables.json"):
        derive.derive(tmp_path, tmp_path)

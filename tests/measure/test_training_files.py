"""How applications train, read from a folder or a csv."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.measure.training_files import load_training
from fairlead.model.training import read_goodput_tables, whole_job_s

HEADER = "app,epoch,gpus,goodput_samples_per_s,samples\n"


def written(tmp_path: Path, rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "goodputs.csv"
    path.write_text(header + rows)
    return path


def test_a_csv_gives_goodputs_and_samples_by_epoch(tmp_path: Path) -> None:
    rows = "a,0,1,10,1000\na,0,4,40,1000\na,1,4,20,600\na,1,1,10,600\nb,0,1,5,\nb,0,2,8,50\n"
    known = load_training(written(tmp_path, rows))
    assert sorted(known) == ["a", "b"]
    assert known["a"].samples == (1000.0, 600.0)
    assert whole_job_s(known["a"], 4, 1) == pytest.approx(1000 / 40 + 600 / 20)
    assert known["a"].goodput_at(1, 2, 1) == pytest.approx(10 + 10 / 3)
    # One cell of an epoch is enough.
    assert known["b"].samples == (50.0,)


def test_samples_given_as_an_argument_win_over_the_files(tmp_path: Path) -> None:
    path = written(tmp_path, "a,0,1,10,1000\nb,0,1,10,70\n")
    tables = read_goodput_tables(path, {"a": (5.0, 6.0)})
    assert (tables["a"].samples, tables["b"].samples) == ((5.0,), (70.0,))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "no rows"),
        ("a,0,1,10\n", "nothing is known of the epochs of a"),
        ("a,0,1\n", "line 2"),
        ("a,0,one,10,5\n", "line 2.*'one'"),
        ("a,0,1,10,5\na,0,2,fast,5\n", "line 3.*'fast'"),
        ("a,0,1,-1,5\n", "line 2.*goodput -1"),
        ("a,0,1,nan,5\n", "line 2.*goodput nan"),
        ("a,0,0,1,5\n", "line 2.*gpus 0"),
        (",0,1,1,5\n", "line 2.*app ''"),
        ("a,0,1,10,0\n", "line 2.*samples 0"),
        ("a,0,1,10,5\na,0,2,20,6\n", "line 3.*6 samples here and 5 before"),
        ("a,0,1,10,5\na,0,1,20,5\n", "line 3.*there before"),
        ("a,1,1,10,5\n", "not 0 to 0"),
        ("a,0,2,10,5\n", "not measured on one GPU"),
        ("a,0,1,0,5\n", "not measured on one GPU"),
    ],
)
def test_a_wrong_csv_is_explained(rows: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_training(written(tmp_path, rows))


@pytest.mark.parametrize("header", ["", "app,epoch,gpus\n", "app,epoch,gpus,goodput_samples_per_s\n"])
def test_missing_columns_are_named(header: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"it lacks .*samples\nhint: a csv with the columns app"):
        load_training(written(tmp_path, "a,0,1,10\n", header))


def test_a_path_that_holds_no_applications_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nosuch: no such file or folder\nhint: a folder in the layout"):
        load_training(tmp_path / "nosuch")
    with pytest.raises(InputError, match=r"no perf_params_t4\.json\nhint: a folder in the layout"):
        load_training(tmp_path)
    fitted = tmp_path / "perf_params_t4.json"
    for content in ("{", '{"bert": {}}', "[]", json.dumps({"bert": {"epochs": 1, "init": 1}})):
        fitted.write_text(content)
        with pytest.raises(InputError, match="hint: "):
            load_training(tmp_path)


def test_pollux_measurements_are_read_from_their_folder(shared_data: Path) -> None:
    known = load_training(shared_data / "pollux")
    assert sorted(known) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    assert whole_job_s(known["cifar10"], 1, 1) == pytest.approx(3723, rel=0.1)

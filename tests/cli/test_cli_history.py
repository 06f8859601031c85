from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.interference import Interference, built_in, save_interference

Fairlead = Callable[..., Any]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    table = Interference()
    table.record(["B[x]", "a"], [0.5, 0.75], 0.8)
    table.record(["a", "a"], [0.9, 0.9])
    table.record(["a", "a"], [0.9, 0.9])
    save_interference(table, tmp_path / "history.json")
    return tmp_path / "history.json"


def test_a_saved_history_is_shown_sorted_by_names(fairlead: Fairlead, saved: Path) -> None:
    done = fairlead("history", "show", saved)
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["a", "+", "a", "0.900", "0.900", "–", "2"],
        ["a", "+", "B[x]", "0.750", "0.500", "80.0%", "1"],
    ]


@pytest.mark.parametrize("name", ["eaco", "gavel-v100"])
def test_json_is_the_whole_table(fairlead: Fairlead, name: str) -> None:
    value = json.loads(fairlead("history", "show", name, "--json").stdout)
    assert value["table"] == name
    assert Interference.from_dict(value).to_dict() == built_in(name).to_dict()


def test_eaco_is_shown_where_nothing_is_named(fairlead: Fairlead) -> None:
    assert fairlead("history", "show").stdout == fairlead("history", "show", "eaco").stdout


def test_only_sets_with_the_wanted_jobs_are_shown(fairlead: Fairlead, saved: Path) -> None:
    def names(*args: object) -> list[list[str]]:
        return [one["names"] for one in json.loads(fairlead("history", "show", *args, "--json").stdout)["sets"]]

    assert names("eaco", "--with", "resnet-50", "--with", "VGG-16") == [["AlexNet", "ResNet-18", "ResNet-50", "VGG-16"]]
    assert names(saved, "--with", "A", "--with", "a") == [["a", "a"]]
    text = fairlead("history", "show", "gavel-v100", "--with", "ResNet-50 bs128").stdout
    assert "does not fit" in text
    assert all("ResNet-50 bs128" in line for line in text.splitlines()[1:])


def test_an_empty_history_says_so_on_stderr(fairlead: Fairlead) -> None:
    done = fairlead("history", "show", "none")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "note: nothing was measured\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["ecao"], "error: no history 'ecao': neither a file nor a built-in table\nhint: did you mean 'eaco'?"),
        (["eaco", "--with", "VGG-19"], "error: eaco has no set with 'VGG-19'\nhint: did you mean 'VGG-16'?"),
        (["eaco", "--with", "VGG-16", "--with", "vgg-16"], "error: eaco has no set with VGG-16 + vgg-16 together\n"),
    ],
)
def test_a_mistake_is_told_and_exits_2(fairlead: Fairlead, args: list[str], said: str) -> None:
    done = fairlead("history", "show", *args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(said)


def test_a_broken_file_is_named_and_exits_2(fairlead: Fairlead, tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text('{"format": "fairlead-interference-1", "sets": [{"names": ["a", "b"], "speeds": [2, 1]}]}')
    for where, said in ((path, "sets[0]: speed of a is 2"), (tmp_path, "cannot read")):
        done = fairlead("history", "show", where)
        assert done.exit_code == 2
        assert said in done.stderr

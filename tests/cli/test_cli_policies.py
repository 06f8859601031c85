from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fairlead.policy import registry

Fairlead = Callable[..., Any]


def test_the_list_names_every_policy_and_preset(fairlead: Fairlead) -> None:
    text = fairlead("policies").stdout
    for stage, entries in registry.stages().items():
        assert stage in text
        assert all(entry.name in text for entry in entries)
    assert all(name in text for name in registry.presets())


def test_json_lists_the_same(fairlead: Fairlead) -> None:
    listed = json.loads(fairlead("policies", "--json").stdout)
    assert listed["presets"] == registry.presets()
    assert {stage: [e["name"] for e in entries] for stage, entries in listed["stages"].items()} == {
        stage: [entry.name for entry in entries] for stage, entries in registry.stages().items()
    }


def test_every_page_shows_what_it_does_and_its_options(fairlead: Fairlead) -> None:
    for stage, entries in registry.stages().items():
        for entry in entries:
            text = fairlead("policies", f"{stage}={entry.name}").stdout
            assert " ".join(entry.summary.split()) in " ".join(text.split())
            assert all(f"{option}=" in text for option in entry.options)
            page = json.loads(fairlead("policies", f"{stage}={entry.name}", "--json").stdout)["stages"][0]
            assert page["doc"]
            assert set(page["options"]) == set(entry.options)


def test_a_preset_says_what_it_stands_for(fairlead: Fairlead) -> None:
    for name, spec in registry.presets().items():
        assert spec in fairlead("policies", name).stdout
        assert json.loads(fairlead("policies", name, "--json").stdout)["preset"] == spec

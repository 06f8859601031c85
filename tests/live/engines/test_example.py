"""The engine that the documentation shows is one that a controller can be started with."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.live.engines import registry
from fairlead.live.engines.registry import ControlledEngine, Site

EXAMPLE = Path(__file__).parents[3] / "examples" / "engines"


def test_an_engine_of_ones_own_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    entry = importlib.metadata.EntryPoint("bare", "bare:make", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == registry.GROUP else [])
    site = cast(Site, SimpleNamespace(home=SimpleNamespace(path=tmp_path)))
    engine: Any = registry.build("bare", site)
    asked = [name for name in dir(ControlledEngine) if not name.startswith("_")]
    assert [name for name in asked if not hasattr(engine, name)] == []
    assert engine.cluster.gpus == 2
    sys.modules.pop("bare", None)

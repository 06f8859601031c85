"""Engines by name: the built-in ones, and those of third parties (entry points `fairlead.engines`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from fairlead.errors import InputError, did_you_mean
from fairlead.live.engines.engine import Engine

if TYPE_CHECKING:
    from fairlead.live.config import Config
    from fairlead.live.engines.remote.places import Door, Facts
    from fairlead.live.home import Home
    from fairlead.live.storage.store import Store
    from fairlead.model.cluster import Cluster

# A new engine is one function and one line here: it gets a `Site` and gives a `ControlledEngine`.
BUILT_IN = {
    "local": "fairlead.live.engines.local:make",
    "join": "fairlead.live.engines.remote.joined:make",
    "slurm": "fairlead.live.engines.slurm.engine:make",
}
GROUP = "fairlead.engines"


class ControlledEngine(Engine, Protocol):
    """What a controller starts with."""

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of on any node that answers."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """What an engine may need to know of the controller that it is for."""

    config: Config
    home: Home
    store: Store
    """Says which attempts on the nodes are its own."""
    facts: Facts
    door: Door
    terms: Callable[[Cluster], Cluster]
    """Adds to the nodes what policies go by: rental terms, scores."""
    guard: dict[str, Any]
    """Settings that differ from the guard's own."""
    limits: dict[str, Any]
    wake_s: float


def names() -> dict[str, str]:
    """All engines, with what makes them."""
    return BUILT_IN | {entry.name: entry.value for entry in entry_points(group=GROUP)}


def check(name: str) -> None:
    """An error where there is no such engine."""
    if name not in names():
        raise InputError(f"unknown engine {name!r:.80}", hint=did_you_mean(name, names()))


def build(name: str, site: Site) -> ControlledEngine:
    """The engine of that name."""
    check(name)
    module, _, function = names()[name].partition(":")
    make: Callable[[Site], ControlledEngine] = getattr(importlib.import_module(module), function)
    return make(site)

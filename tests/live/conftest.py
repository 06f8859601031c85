"""Worlds for the tests of the live controller; see `scripted`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.live.scripted import Hands, World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Worlds over one database: each begins where the one before was closed. Takes the arguments of `World`."""
    made: list[World] = []

    def make(policy: str = "fifo", cluster: str = "1x4", **options: object) -> World:
        made.append(World(tmp_path, policy, cluster, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def hands() -> Hands:
    """Of a virtual clock."""
    return Hands()


@pytest.fixture
def world(make_world: MakeWorld, hands: Hands) -> World:
    """FIFO on four GPUs of one node, on a virtual clock, stepped by hand."""
    return make_world(hands=hands)

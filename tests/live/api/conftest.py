"""A controller that runs and is served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import World


@pytest.fixture
def site(make_world: MakeWorld) -> Iterator[Served]:
    """FIFO on four GPUs, running, on loopback."""
    with served(make_world()) as made:
        yield made


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same for all tests of a file that only send what is refused."""
    world = World(tmp_path_factory.mktemp("world"))
    try:
        with served(world) as made:
            yield made
    finally:
        world.close()

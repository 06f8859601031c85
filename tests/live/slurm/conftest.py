"""One Slurm for all tests of this folder: it takes seconds to come up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.live.slurm.cluster import SlurmCluster, missing
from tests.live.slurm.site import SlurmSite

NODES, GPUS = 8 if int(os.environ.get("SLURM_STREAM_JOBS", "0")) >= 200 else 4, 4


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(why)
    with SlurmCluster(NODES, GPUS) as made:
        yield made


@pytest.fixture
def make_site(slurm: SlurmCluster) -> Iterator[Callable[..., SlurmSite]]:
    made: list[SlurmSite] = []

    def make(policy: str, **settings: Any) -> SlurmSite:
        given = {"nodes": NODES, "gpus": GPUS, **settings}
        made.append(SlurmSite(slurm, policy=policy, **given))
        made[-1].up()
        return made[-1]

    yield make
    for site in made:
        site.close()
    slurm.run("scancel", "-u", "root")
    for number in range(NODES):
        if f"n{number}" not in slurm._daemons:
            slurm.start_slurmd(number)
    slurm.until_idle()

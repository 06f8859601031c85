"""Faults on a real Slurm; `SLURM_FAULTS=200` plays the long form."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.conftest import GPUS, NODES
from tests.live.slurm.faults import FAULTS, Story

pytestmark = pytest.mark.slow
_FAULTS = int(os.environ.get("SLURM_FAULTS", len(FAULTS)))
_SEED = int(os.environ.get("SLURM_FAULTS_SEED", "1"))


@pytest.fixture
def story(slurm: SlurmCluster) -> Iterator[Story]:
    made = Story(slurm, seed=_SEED, nodes=NODES, gpus=GPUS)
    yield made
    made.close()
    slurm.until_idle()


def test_whatever_breaks_every_job_finishes_and_none_runs_twice_at_a_time(story: Story) -> None:
    story.play(_FAULTS)

"""Pilots on a real Slurm: nodes come with them and go with them, and jobs run there as anywhere."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.faults import assert_apart, assert_none_ran_twice
from tests.live.slurm.site import SlurmSite

pytestmark = pytest.mark.slow
Make = Callable[..., SlurmSite]
_JOBS = int(os.environ.get("SLURM_STREAM_JOBS", "10"))
"""200 is the long form, under all presets."""
_PRESETS = ("eaco", "pal", "boa:budget=12", "muxflow", "fair") if _JOBS >= 200 else ("eaco",)


def test_jobs_run_on_pilots_also_on_two_nodes_at_once(make_site: Make, slurm: SlurmCluster) -> None:
    site = make_site("fifo-greedy", nodes=2)
    small, wide = site.submit(2, gpus=1), site.submit(2, gpus=8)
    site.until(lambda: set(site.states().values()) == {"finished"}, "both jobs to finish")
    assert {path.name for path in site.notes.glob(f"{wide}.*.epochs")} == {f"{wide}.0.epochs", f"{wide}.1.epochs"}
    assert site.runs().keys() == {(small, 0), (wide, 0), (wide, 1)}
    assert sorted(slurm.jobs().values()) == ["RUNNING", "RUNNING"]


def test_jobs_leave_a_pilot_before_its_time_limit_and_go_on_from_where_they_were(make_site: Make) -> None:
    site = make_site("fifo-greedy", nodes=1, time_limit="1", handover_s=54.0)
    job = site.submit(20, 0.5, gpus=1)
    site.until(lambda: site.states()[job] == "finished", "the job to finish on its second pilot")
    assert len(site.runs()[job, 0]) >= 2
    assert_none_ran_twice(site)
    reasons = [event["about"] for event in site.client.events(job_id=job, after=0)]
    assert "node-leaving" in reasons


def test_pilots_are_rented_for_jobs_and_given_back_after_them(make_site: Make, slurm: SlurmCluster) -> None:
    site = make_site("boa:budget=8", nodes=3, rent='rent = "boot=3,minimum=1,step=1"')
    assert slurm.jobs() == {}
    jobs = [site.submit(6, 0.5, gpus=2, estimate_s=10.0) for _ in range(4)]
    site.until(lambda: slurm.jobs(), "a pilot to be rented")
    site.until(lambda: set(site.states().values()) == {"finished"}, "all jobs to finish")
    site.until(lambda: not slurm.jobs(), "all pilots to be given back")
    assert site.runs().keys() == {(job, 0) for job in jobs}


@pytest.mark.parametrize("policy", _PRESETS)
def test_a_mixed_stream_runs_to_its_end_under_each_preset(make_site: Make, policy: str) -> None:
    rents = policy.startswith("boa")
    site = make_site(policy, rent='rent = "boot=3,minimum=1,step=1"' if rents else "")
    rng = random.Random(7)
    for number in range(_JOBS):
        about: dict[str, Any] = {"gpus": rng.choice((1, 1, 2, 4, 8)), "estimate_s": 2.0}
        about["profile"] = rng.choice(("AlexNet", "ResNet-18"))
        if number % 5 == 4:
            about |= {"gpus": 1, "kind": "service"}
        site.submit(rng.randint(1, 4), 0.2, **about)
    site.until(
        lambda: all(state == "finished" for state in site.states().values()), "all jobs to finish", _JOBS * 5.0 + 180.0
    )
    assert len(site.states()) == _JOBS
    assert_none_ran_twice(site)
    if policy not in ("eaco", "muxflow"):
        assert_apart(site.on_gpus())

"""What a member sees of others, and what listings cost."""

from __future__ import annotations

import gc
import json
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import whatif
from fairlead.live.control.controller import Controller
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.request import JobRequest
from fairlead.model.catalogue import Catalogue
from fairlead.model.profile import Profile
from fairlead.model.snapshot import Snapshot
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import wait_for

SECRET = "skunkworks-llm"
FACELESS = {
    "name": "", "user": "", "profile": "generic", "memory_mib": 0.0, "priority": 0, "deadline_s": None, "batch": 0,
}  # fmt: skip


def numbers_in(value: Any) -> Iterator[float]:
    """Every number anywhere inside a JSON value."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(one)
    elif isinstance(value, int | float):
        yield float(value)


@pytest.mark.parametrize("policy", ["fifo", "eaco", "muxflow"])
def test_a_member_sees_others_jobs_as_load_without_a_face(make_world: MakeWorld, policy: str) -> None:
    declared = Catalogue([Profile(SECRET, memory_mib=31337.0)])
    hidden = {"name": SECRET, "profile": SECRET, "memory_mib": 31337.0, "deadline_s": 86399.0, "priority": 77}
    with served(make_world(policy, "1x2", catalogue=declared)) as site:
        theirs = [
            site.submit("bob", **hidden, estimate_s=900.0, batch=4242),
            site.submit("bob", kind="service", slo_s=0.05, profile=SECRET, name=SECRET),
            site.submit("bob", **hidden, gpus=2),
        ]
        own = site.submit("alice", gpus=2, name="mine", deadline_s=7200.0, estimate_s=60.0, priority=3)
        wait_for(lambda: len(site.world.engine.running) >= 1)
        found = site.call("GET", "/v1/snapshot", who="alice")
        for leak in (SECRET, "bob"):
            assert leak.encode() not in found.data, leak
        # As whole values: digits of a time of day may hold any short number.
        assert not {31337.0, 86399.0, 4242.0} & set(numbers_in(found.json))
        jobs = {job["id"]: job for job in found.json["jobs"]}
        assert jobs.keys() == {*theirs, own}
        for job_id in theirs:
            assert {name: jobs[job_id][name] for name in FACELESS} == FACELESS
        assert (jobs[own]["name"], jobs[own]["deadline_s"], jobs[own]["priority"]) == ("mine", 7200.0, 3)
        assert SECRET.encode() in site.call("GET", "/v1/snapshot", who="olga").data
        # What is left is still enough to say when one's own job starts, or that nobody knows.
        predicted = whatif.predict(Snapshot.from_dict(found.json))
        assert own in [job.id for job in predicted.jobs]
        explained = site.call("GET", f"/v1/jobs/{own}/explain", who="alice")
        assert SECRET.encode() not in explained.data


def test_what_was_measured_of_others_is_not_told(make_world: MakeWorld) -> None:
    with served(make_world("eaco", "1x2")) as site:
        site.submit("alice", profile="resnet50", hold=True)
        everything = site.call("GET", "/v1/snapshot", who="olga").json["history"]
        assert everything is not None
        found = site.call("GET", "/v1/snapshot", who="alice").json["history"]
        names = {name for one in (found or {"sets": []})["sets"] for name in one["names"]}
        assert names <= {"resnet50"}


# ---- what listings cost ----

JOBS, LARGE = 200, 120_000


def fill(site: Served) -> None:
    """Held jobs with large environments."""
    for _ in range(JOBS):
        asked = {"command": ["train", "x" * 1000], "env": {"BIG": "y" * LARGE}, "hold": True}
        request = JobRequest.model_validate(asked)
        job_id, _ = site.world.store.submit(request, "alice", 0.0, 0.0).result()
        site.world.controller.submitted(LiveJob(request.job(job_id, "alice", 0.0), request, 0.0))


def test_listings_cost_little_however_large_the_jobs_are(make_world: MakeWorld) -> None:
    with served(make_world()) as site:
        fill(site)
        site.call("GET", "/v1/jobs?limit=1000")
        gc.collect()
        tracemalloc.start()
        try:
            lists = [threading.Thread(target=site.call, args=("GET", "/v1/jobs?limit=1000")) for _ in range(4)]
            for one in lists:
                one.start()
            for one in lists:
                one.join()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 0.5 * JOBS * LARGE, f"{peak:,} bytes"
        found = site.call("GET", "/v1/jobs?limit=1000")
        assert len(found.json["jobs"]) == JOBS
        assert len(found.data) < JOBS * 2000
        assert not {"command", "cwd", "detail", "env"} & found.json["jobs"][0].keys()
        whole = site.call("GET", f"/v1/jobs/{JOBS}").json
        assert whole["command"] == ["train", "x" * 1000]


def test_jobs_that_wait_are_kept_without_their_environments(make_world: MakeWorld) -> None:
    with served(make_world()) as site:
        gc.collect()
        tracemalloc.start()
        try:
            fill(site)
            wait_for(
                lambda: len(site.world.controller.lifecycle.aside) + len(site.world.controller.driver.jobs) == JOBS
            )
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert kept < 0.2 * JOBS * LARGE, f"{kept:,} bytes"


def test_a_job_starts_with_all_that_was_asked_for_also_after_a_restart(make_world: MakeWorld, hands: Any) -> None:
    asked = {"command": ["python", "-c", "print('ü')"], "env": {"A": "b c"}, "cwd": "/tmp"}
    world = make_world(hands=hands)
    first, held = world.submit(**asked), world.submit(**asked, hold=True)
    world.settle()
    world.close()
    again = make_world(hands=hands, engine=world.engine)
    again.wish(held, "release")
    again.settle()
    for job_id in (first, held):
        order = again.engine.orders[job_id, 1]
        assert (list(order.argv), dict(order.env), order.cwd) == (asked["command"], asked["env"], "/tmp")
    named = [job.job.name for job in again.controller.driver.jobs.values()]
    assert named == ["python", "python"]


def test_a_name_that_looks_like_json_stays_a_name(make_world: MakeWorld) -> None:
    with served(make_world()) as site:
        name = '{"command": ["rm"]}'
        site.submit(name=name, hold=True)
        assert site.call("GET", "/v1/jobs").json["jobs"][0]["name"] == name
        assert json.loads(site.call("GET", "/v1/jobs/1").data)["command"] == ["train"]


def test_a_controller_keeps_no_command(make_world: MakeWorld) -> None:
    world = make_world()
    job_id = world.submit(command=["train", "secret"])
    world.settle()
    controller: Controller = world.controller
    assert "secret" not in repr(controller.driver.jobs[job_id].request)

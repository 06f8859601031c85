"""The four presets with real processes on fake GPUs: what each is known for happens, and nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fairlead.live.jobs.states import State
from fairlead.model.catalogue import Catalogue
from fairlead.model.cluster import Cluster, Rental
from fairlead.model.interference import Interference, built_in
from fairlead.model.profile import Amdahl, Profile
from fairlead.model.variability import Variability
from tests.live.rig import EXAMPLES, Rig

Make = Callable[..., Rig]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Rig] = []

    def rig(*args: Any, **more: Any) -> Rig:
        made.append(Rig(*args, **more))
        return made[-1]

    yield rig
    for one in made:
        one.close()


def bad_company() -> Interference:
    """Two that nobody has seen together, and that can hardly move side by side."""
    found = built_in("none").copy()
    found.record(["AlexNet", "ResNet-18"], [0.05, 0.05], 0.2)
    return found


def test_eaco_undoes_a_trial_at_the_end_of_an_epoch_and_nothing_is_lost(make: Make) -> None:
    rig = make("eaco", fake_gpus=2, interference=bad_company())
    host = rig.train(60, 0.5, profile="AlexNet")
    rig.until_state(host, State.RUNNING)
    guest = rig.train(8, 1.0, profile="ResNet-18", estimate_s=8.0, deadline_s=120.0)
    rig.until(lambda: rig.job(guest)["shared"] and rig.job(guest)["state"] == "running", "the guest beside its host")
    rig.until(lambda: "preempted" in rig.reasons(guest), "the undo")
    rig.until_state(guest, State.FINISHED)
    attempts = rig.attempts(guest)
    assert attempts[0]["gpus"] == rig.attempts(host)[0]["gpus"]
    assert attempts[1]["gpus"] != attempts[0]["gpus"]
    log = rig.log(guest)
    resumed = log[log.index("stopped in epoch") :]
    assert "done: 0 of 8" not in resumed, "it left when an epoch was done"
    assert log.count(" of 8, loss") == 8, "every epoch was done once"
    assert rig.job(host)["attempt"] == 1


def test_eaco_lets_a_node_sleep_and_wakes_it(make: Make) -> None:
    rig = make("eaco,powering=sleep:after_s=1", fake_gpus=1, fake_nodes=2, wake_s=0.5)
    rig.until(lambda: "node-asleep" in rig.events(), "an idle node to sleep")
    jobs = [rig.train(2, 0.5, profile="VGG-16", priority=1) for _ in range(2)]
    for job_id in jobs:
        rig.until_state(job_id, State.FINISHED)
    assert {"node-waking", "node-awake"} <= set(rig.events())


def test_pal_gives_the_fast_gpus_to_who_feels_it(make: Make) -> None:
    def with_scores(cluster: Cluster) -> Cluster:
        return cluster.with_variability(Variability({name: [2.0, 1.6, 1.0, 1.6] for name in "ABCD"}))

    rig = make("pal", fake_gpus=4, change=with_scores)
    job_id = rig.train(1, 0.2, profile="resnet50")
    rig.until_state(job_id, State.FINISHED)
    assert rig.attempts(job_id)[0]["gpus"] == "[2]"


def test_boa_rents_resizes_with_a_checkpoint_and_gives_back(make: Make) -> None:
    rig = make(
        "sizing=boa:budget=12:every_s=2,powering=rent:linger_s=1",
        catalogue=Catalogue([Profile("scales-badly", speedup=Amdahl(0.8))]),
        fake_gpus=4,
        fake_nodes=2,
        wake_s=0.2,
        change=lambda cluster: cluster.rented(Rental(boot_s=0.2, minimum_s=0.0, step_s=1.0)),
    )
    elastic = {"min_gpus": 1, "max_gpus": 4, "profile": "scales-badly"}
    job_id = rig.train(40, 1.0, **elastic)
    rig.until(lambda: "epoch 2 of" in rig.log(job_id), "two epochs")
    others = [rig.train(3, 0.5, **elastic) for _ in range(3)]
    rig.until(lambda: "resized" in rig.events(job_id), "the budget to be shared by more")
    for one in (job_id, *others):
        rig.until_state(one, State.FINISHED)
    log = rig.log(job_id)
    assert "stopped in epoch" in log
    assert log.count(" of 40, loss") == 40, "every epoch was done once"
    assert len({attempt["gpus"] for attempt in rig.attempts(job_id)}) > 1
    assert "node-rented" in rig.events()
    rig.until(lambda: "node-given-back" in rig.events(), "the nodes to be given back")


def test_muxflow_puts_work_beside_a_service_and_evicts_it_in_a_burst(make: Make) -> None:
    guard = {"window_s": 1.0, "sample_s": 0.2, "gap_s": 1.0, "init_s": 1.0}
    rig = make("muxflow", fake_gpus=1, guard=guard)
    service = rig.submit(
        sys.executable, EXAMPLES / "service.py", "--latency-ms", 20, "--requests-per-s", 50, "--burst-every-s", 12,
        "--burst-s", 6, kind="service", slo_s=0.05, env={"PYTHONPATH": str(EXAMPLES.parent / "src")},
    )  # fmt: skip
    rig.until(lambda: "serving" in rig.log(service), "the service")
    offline = rig.train(200, 0.5, profile="AlexNet")
    rig.until(lambda: rig.job(offline)["shared"] and rig.job(offline)["attempt"] == 1, "work beside the service")
    rig.until(lambda: any(why.startswith("evicted-") for why in rig.reasons(offline)), "an eviction")
    assert rig.job(service)["state"] == "running"
    assert rig.job(service)["attempt"] == 1
    assert "stopped in epoch" in rig.log(offline)
    assert rig.job(offline)["state"] in ("waiting", "running")

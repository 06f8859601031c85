"""Snapshots as data: what is written is read again, and what cannot be is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.model.adaptive_batch import AdaptiveBatch
from fairlead.model.cluster import Cluster, GpuModel, Node, Rental
from fairlead.model.contention import Solo
from fairlead.model.goodput import BatchLimits, PerfParams
from fairlead.model.interference import Interference
from fairlead.model.profile import Amdahl, Power, Profile, Table, profile_named
from fairlead.model.profile_json import profile_as_dict, profile_from_dict
from fairlead.model.service import Burst, DailyLoad, Service, TableLoad
from fairlead.model.snapshot import Snapshot, SnapshotJob, load_snapshot
from fairlead.model.variability import Variability

SOLO = Solo(0.9, 0.5, 0.4, 0.3, 0.2, 0.01)
OWN = GpuModel("Z9", 4096.0, 3.5, 77.7, 0.1, floor_w=2.0, context_w=1.25)


def whole() -> Snapshot:
    """Everything that a snapshot can hold."""
    nodes = (
        Node("a", 2, OWN, base_w=99.0, sleep_w=3.0, wake_s=7.0, uuids=("GPU-1", "GPU-2")),
        Node("b", 4, replace(OWN, name="Y8")),
        Node("c", 1, OWN),
    )
    scores = Variability({"A": [1.0, 1.1, 0.9, 1.0, 1.0, 1.3, 0.1 + 0.2]}, (3,), {"A": (3,)})
    history = Interference([("AlexNet", "VGG-16")])
    history.record(["AlexNet", "ResNet-18"], [0.9, 0.8], 0.3)
    service = Service(DailyLoad(0.3, 0.5, 13.0, (Burst(1.0, 2.0, 3.0),)), SOLO, 0.5)
    own = Profile("mine", "C2", Table((1.0, 2.0), (1.0, 1.9)), 1.2, 9.0, 600.0, 0.4, 100.0, 60.0, solo=SOLO)
    return Snapshot(
        1234.5,
        "ordering=las:queues=2,sharing=eaco",
        Cluster(nodes, scores, Rental(1.0, 2.0, 3.0)),
        (
            SnapshotJob(
                4, "train", "ann", 3.0, 2, 1, 4, 12.0, "mine", "training", -1, 99.0, 64, "running", (0, 1), True, 0.5,
                1000.0, 77.0, 3, 123.456, 10.0,
            ),
            SnapshotJob(5, "serve", "bob", 3.0, 1, 1, 1, profile="web", kind="service", state="running",
                        placement=(0,), shared=True, starts=1),
            SnapshotJob(9, "later", "ann", 1234.5, 7, 7, 7),
            SnapshotJob(8, "kept", "", 1.0, 1, 1, 1, state="held"),
        ),
        waking=((1, 1300.0),),
        asleep=(2,),
        rented=((0, 5.0),),
        drained=(1, 6),
        history=history.to_dict(),
        profiles=(profile_as_dict(own), profile_as_dict(Profile("web", service=service))),
        is_fake=True,
    )  # fmt: skip


def test_a_snapshot_survives_json_to_the_last_bit() -> None:
    snapshot = whole()
    again = Snapshot.from_dict(json.loads(json.dumps(snapshot.to_dict())))
    assert again == snapshot
    assert again.to_dict() == snapshot.to_dict()
    assert again.profile("mine").speedup(2.0) == 1.9
    assert again.profile("web").service == snapshot.profile("web").service
    assert again.profile("BERT") is profile_named("BERT")


def test_a_snapshot_needs_little() -> None:
    nodes = [{"name": "n0", "gpus": 1, "gpu_model": whole().to_dict()["cluster"]["nodes"][0]["gpu_model"]}]
    found = Snapshot.from_dict({"version": 1, "now_s": 0, "policy": "fifo", "cluster": {"nodes": nodes}})
    assert (found.jobs, found.cluster.gpus, found.is_fake) == ((), 1, False)


def _job(number: int, **fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda snapshot: snapshot["jobs"][number].update(fields)


def _top(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda snapshot: snapshot.update(fields)


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (_top(version=2), "version is 2, expected 1"),
        (lambda s: s.pop("version"), "expected an object with a version"),
        (lambda s: s.pop("cluster"), "cluster: field required"),
        (_top(bogus=1), "bogus"),
        (_top(now_s=-1.0), "now_s: found -1.0"),
        (_top(now_s="soon"), "now_s: input should be a valid number"),
        (_top(now_s=float("nan")), "now_s: input should be a finite number"),
        (_top(jobs={}), "jobs"),
        (_top(down=[3]), "down: found 3, expected the number of a node, 0 to 2"),
        (_top(down=[2]), "node 2 is in both down and asleep"),
        (_top(down=[0]), r"job 4 \('train'\) runs on GPU 0, of a node that is in down"),
        (_top(rented=[[2, 1.0]]), "node 2 is in both asleep and rented"),
        (_top(drained=[7]), "drained: found 7, expected the number of a GPU, 0 to 6"),
        (_top(waking=[[1]]), "waking"),
        (_top(history={"sets": []}), "history: format is None"),
        (_top(profiles=[{"name": "x", "speedup": {"f": 2.0}}]), "profiles.0: speedup.f: found 2"),
        (_top(profiles=[{"locality": 1.0}]), "profiles.0: name: field required"),
        (lambda s: s["cluster"].update(nodes=[]), "at least one node"),
        (lambda s: s["cluster"]["nodes"][0].update(gpus="x"), "cluster.nodes.0.gpus"),
        (
            lambda s: s.update(cluster={"nodes": [{**s["cluster"]["nodes"][2], "gpus": 0}]}),
            "cluster.nodes.0.gpus: found 0",
        ),
        (lambda s: s["cluster"]["variability"]["scores"].update(A=[1.0]), "the variability profile has 1 GPUs"),
        (lambda s: s["jobs"].append(s["jobs"][3]), "job 8 stands twice"),
        (_job(0, gpus=0), r"job 4 \('train'\), gpus: found 0, expected 1 or more"),
        (_job(0, min_gpus=3), "min_gpus: found 3"),
        (_job(0, max_gpus=1), "max_gpus: found 1"),
        (_job(0, submit_s=2000.0), "submit_s: found 2000.0, expected a moment up to now_s"),
        (_job(0, since_s=2000.0), "since_s"),
        (_job(0, started_s=2000.0), "started_s"),
        (_job(0, placement=[]), "placement: found .*expected GPUs of a job that runs"),
        (_job(0, placement=[1, 0]), "ascending, each once"),
        (_job(0, placement=[0, 7]), "numbers of GPUs, 0 to 6"),
        (_job(2, placement=[0]), "none of one that does not"),
        (_job(1, placement=[0, 1]), "1 to 1 GPUs"),
        (_job(0, shared=False), "GPU 0 has job 4 .* and job 5 .*, but not all on it are shared"),
        (_job(0, kind="service"), "two services"),
        (_job(0, kind="batch"), "jobs.0.kind"),
        (_job(0, state="asleep"), "jobs.0.state"),
        (_job(0, left_s=-1.0), "left_s: found -1.0"),
        (_job(0, sm_share=0.0), "sm_share: found 0.0"),
        (_job(0, starts=0), "starts: found 0"),
        (_job(0, deadline_s=0.0), "deadline_s"),
        (_job(0, banked_gpu_s=-1.0), "banked_gpu_s"),
        (_job(0, memory_mib=-1.0), "memory_mib"),
        (_job(0, typo=1), "jobs.0.typo"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_named(spoil: Callable[[dict[str, Any]], object], named: str) -> None:
    value = json.loads(json.dumps(whole().to_dict()))
    spoil(value)
    with pytest.raises(InputError, match=named) as caught:
        Snapshot.from_dict(value, "state.json")
    assert caught.value.message.startswith("state.json: ")


@pytest.mark.parametrize("value", [None, [], "snapshot", 3])
def test_what_is_no_object_is_no_snapshot(value: object) -> None:
    with pytest.raises(InputError, match="expected an object with a version"):
        Snapshot.from_dict(value)


def test_a_snapshot_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(whole().to_dict()), encoding="utf-8")
    assert load_snapshot(path) == whole()
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"state\.json: not valid JSON"):
        load_snapshot(path)
    with pytest.raises(InputError, match="no such file"):
        load_snapshot(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "profile",
    [
        Profile("p", speedup=Power(0.7)),
        Profile("p", speedup=Amdahl(0.9), solo=SOLO),
        Profile("p", service=Service(TableLoad((0.0, 5.0), (0.1, 0.2)), SOLO, 0.2)),
        profile_named("VGG-16"),
    ],
)
def test_a_profile_is_read_as_it_was_written(profile: Profile) -> None:
    assert profile_from_dict(json.loads(json.dumps(profile_as_dict(profile)))) == profile


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"locality": 0.5}, "locality: found 0.5"),
        ({"activity_frac": 1.5}, "activity_frac 1.5"),
        ({"epoch_s": 0.0}, "epoch_s 0"),
        ({"speedup": {"widths": [2, 1], "speedups": [1, 2]}}, "widths that rise"),
        ({"restart_s": -1}, "restart_s"),
    ],
)
def test_what_is_wrong_with_a_profile_is_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        profile_from_dict({"name": "p", **fields})


def test_a_profile_that_trains_by_goodput_cannot_be_written() -> None:
    limits = BatchLimits(initial=32, max_total=64, local_min=8, local_max=64)
    training = AdaptiveBatch("t", PerfParams(0.1, 0.01, 0.02, 0.003, 0.08, 0.005, 2.0), limits, ())
    with pytest.raises(InputError, match="'t': its training cannot be written down"):
        profile_as_dict(Profile("t", training=training))

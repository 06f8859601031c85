"""Orders of a controller, and what they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.node.order import Order
from fairlead.node.spec import JobSpec, Restart, Role

REPORTS = Path("/run/reports")


def order(**about: Any) -> Order:
    return Order(**{"job_id": 17, "attempt": 2, "argv": ("train",), "gpus": ("GPU-a", "GPU-b"), **about})


def spec(**about: Any) -> JobSpec:
    return order(**about).spec(REPORTS, beside_service=False)


def test_an_order_survives_its_way_over_the_wire() -> None:
    made = order(env={"A": "1"}, slo_s=0.1, kind="service", nodes=(3, 4), rank=1)
    assert Order.from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"gpus": ()}, "at least one GPU"),
        ({"rank": 1}, "rank 1 of 1"),
        ({"kind": "batch"}, "known: training, service"),
        ({"sm_share": 0.0}, "SM share of 0"),
        ({"job_id": -1}, "from 0 on"),
    ],
)
def test_a_wrong_order_is_refused_with_what_is_wrong(about: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        order(**about)


def test_an_order_with_something_unknown_says_what_was_meant() -> None:
    with pytest.raises(InputError, match="did you mean 'gpus'"):
        Order.from_dict({**order().to_dict(), "gpu": "x"})


def test_torchrun_finds_what_it_needs() -> None:
    env = spec(nodes=(0, 4), rank=1, num_gpus=6, master_addr="n0").own_env
    shape = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2", "MASTER_ADDR": "n0"}
    for name, value in shape.items():
        assert env[name] == env[f"PET_{name}"] == value
    assert 1024 < int(env["MASTER_PORT"]) < 32768
    assert env["MASTER_PORT"] == env["PET_MASTER_PORT"]
    assert (env["FAIRLEAD_JOB_ID"], env["FAIRLEAD_ATTEMPT"], env["FAIRLEAD_NUM_GPUS"]) == ("17", "2", "6")
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "FAIRLEAD_FAKE"} & env.keys()


def test_all_parts_of_an_attempt_meet_at_one_port_and_attempts_at_others() -> None:
    ports = [spec(nodes=(0, 1), rank=rank).own_env["MASTER_PORT"] for rank in (0, 1)]
    assert ports[0] == ports[1]
    assert spec(attempt=3).own_env["MASTER_PORT"] != ports[0]
    assert spec(job_id=18).own_env["MASTER_PORT"] != ports[0]


def test_python_writes_line_by_line_unless_the_user_says_otherwise() -> None:
    assert spec().env["PYTHONUNBUFFERED"] == "1"
    assert spec(env={"PYTHONUNBUFFERED": ""}).env["PYTHONUNBUFFERED"] == ""


def test_a_job_alone_has_neither_mps_nor_a_quota() -> None:
    made = spec(gpus=("GPU-a",), memory_mib=100.0)
    assert not made.is_shared
    assert not made.is_mps_client
    assert made.quota_mib is None


def test_sharing_on_one_gpu_is_under_mps_and_on_several_is_not() -> None:
    assert spec(gpus=("GPU-a",), shared=True, sm_share=0.4).is_mps_client
    assert spec(gpus=("GPU-a",), shared=True, sm_share=0.4).share_pct == pytest.approx(40.0)
    assert not spec(shared=True).is_mps_client


def test_a_quota_is_for_a_job_beside_a_service() -> None:
    made = order(memory_mib=100.0, shared=True)
    assert made.spec(REPORTS, beside_service=True).quota_mib == 100.0
    assert made.spec(REPORTS, beside_service=False).quota_mib is None


def test_only_a_service_on_one_node_is_restarted_by_its_agent() -> None:
    assert (spec(kind="service").role, spec(kind="service").restart) == (Role.SERVICE, Restart.ON_FAULT)
    assert spec(kind="service", nodes=(0, 1)).restart is Restart.NEVER
    assert (spec().role, spec().restart) == (Role.OFFLINE, Restart.NEVER)

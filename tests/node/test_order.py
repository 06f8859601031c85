"""Orders of a controller, and what they become."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from fairlead.errors import InputError, RunError
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.order import Order
from fairlead.node.process import environment, ports
from fairlead.node.process.ports import free_port


def order(**about: Any) -> Order:
    return Order(**{"id": AttemptId(17, 2), "argv": ("train",), "gpus": ("GPU-a", "GPU-b"), **about})


def test_an_order_survives_its_way_over_the_wire() -> None:
    made = order(env={"A": "1"}, slo_s=0.1, kind="service", nodes=(3, 4), rank=1)
    assert Order.from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"gpus": ("GPU-a", "GPU-a")}, "each once"),
        ({"rank": 1}, "rank 1 of 1"),
        ({"kind": "batch"}, "known: training, service"),
        ({"sm_share": 0.0}, "SM share of 0"),
        ({"grace_s": -1.0}, "grace of -1"),
        ({"argv": ("a\0b",)}, "no process can be given"),
        ({"env": {"A=B": "c"}}, "no process can be given"),
    ],
)
def test_a_wrong_order_is_refused_with_what_is_wrong(about: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        order(**about)


def test_an_order_with_something_unknown_says_what_was_meant() -> None:
    with pytest.raises(InputError, match="did you mean 'gpus'"):
        Order.from_dict({**order().to_dict(), "gpu": "x"})


@pytest.mark.parametrize(
    ("about", "says"),
    [({"gpus": []}, "at least one"), ({"argv": []}, "command is empty"), ({"argv": [""]}, "command is empty")],
)
def test_a_node_takes_no_order_without_a_command_or_gpus(about: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Order.from_dict({**order().to_dict(), **about})


def test_torchrun_finds_what_it_needs() -> None:
    env = order(nodes=(0, 4), rank=1, num_gpus=6, master_addr="n0", master_port=12345).environment()
    shape = {"NNODES": "2", "NODE_RANK": "1", "NPROC_PER_NODE": "2", "MASTER_ADDR": "n0"}
    for name, value in shape.items():
        assert env[name] == env[f"PET_{name}"] == value
    assert env["MASTER_PORT"] == env["PET_MASTER_PORT"] == "12345"
    assert (env["FAIRLEAD_JOB_ID"], env["FAIRLEAD_ATTEMPT"], env["FAIRLEAD_NUM_GPUS"]) == ("17", "2", "6")
    assert not {"RANK", "LOCAL_RANK", "WORLD_SIZE", "FAIRLEAD_FAKE"} & env.keys()


@pytest.mark.parametrize("epoch", ["", "9f3c01ab"])
def test_an_identity_is_parsed_as_it_is_printed(epoch: str) -> None:
    made = LaunchId(AttemptId(17, 2, epoch), 3)
    assert AttemptId.parse(str(made.attempt)) == made.attempt
    assert LaunchId.parse(str(made)) == made
    assert made.attempt != AttemptId(17, 2, "other")
    assert made.next == LaunchId(made.attempt, 4)


@pytest.mark.parametrize("name", ["", "17", "17.", ".2", "a.2", "17.b", "-1.2", "17.2@0", f"{10**20}.1", "²."])
def test_other_names_are_no_attempts(name: str) -> None:
    with pytest.raises(InputError):
        AttemptId.parse(name)
    with pytest.raises(InputError):
        LaunchId.parse(name if name != "17.2@0" else "17.2")


@pytest.mark.parametrize("epoch", ["../x", "a.b", "é", "a b"])
def test_an_epoch_that_could_lead_out_of_a_folder_is_refused(epoch: str) -> None:
    with pytest.raises(InputError, match="letters and digits"):
        AttemptId(17, 2, epoch)
    with pytest.raises(InputError):
        Order.from_dict({**order().to_dict(), "id": f"17.2.{epoch}"})


def test_a_port_is_free_not_given_out_and_hard_to_guess() -> None:
    first = free_port(())
    with socket.create_server(("127.0.0.1", first)):
        chosen = {free_port({first}) for _ in range(50)}
    assert first not in chosen
    assert len(chosen) > 40
    assert all(1024 < port < 32768 for port in chosen)


def test_without_a_free_port_the_error_names_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(RunError, match="no free port from 12000"):
        free_port(())


def test_python_writes_line_by_line_unless_the_user_says_otherwise() -> None:
    assert environment.composed({}, {}, {})["PYTHONUNBUFFERED"] == "1"
    assert environment.composed({}, {"PYTHONUNBUFFERED": ""}, {})["PYTHONUNBUFFERED"] == ""


def test_a_job_alone_has_neither_mps_nor_a_quota() -> None:
    made = order(gpus=("GPU-a",), memory_mib=100.0)
    assert not made.is_mps_client
    assert made.quota_mib is None


def test_sharing_on_one_gpu_is_under_mps_and_on_several_is_not() -> None:
    assert order(gpus=("GPU-a",), shared=True, sm_share=0.4).is_mps_client
    assert not order(shared=True).is_mps_client


def test_what_a_job_that_shares_has_declared_is_its_quota() -> None:
    assert order(memory_mib=100.0, shared=True).quota_mib == 100.0
    assert order(memory_mib=0.0, shared=True).quota_mib is None
    assert order(memory_mib=100.0, shared=True, kind="service").quota_mib is None


def test_only_a_service_on_one_node_is_restarted_by_its_agent() -> None:
    assert order(kind="service").is_restarted
    assert not order(kind="service", nodes=(0, 1)).is_restarted
    assert not order().is_restarted

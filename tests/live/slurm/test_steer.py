"""Steering on a real Slurm: users keep sbatch, and when nobody steers any more Slurm goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from fairlead.errors import InputError
from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.slurm import commands
from fairlead.live.engines.slurm.steer import Steering, _expanded, _scontrol
from fairlead.policy import registry
from tests.live.slurm.cluster import SlurmCluster
from tests.live.slurm.conftest import GPUS, NODES
from tests.patience import PATIENCE_S


@pytest.fixture
def steered(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    yield slurm
    slurm.run("scancel", "-u", "root")
    slurm.until_idle()


def _held(slurm: SlurmCluster, gpus: int, run_s: float, minutes: int = 60) -> int:
    line = ["sbatch", "--parsable", "--hold", "--requeue", f"--gpus={gpus}", f"--time={minutes}", "-o", "/dev/null"]
    return int(slurm.run(*line, "--wrap", f"sleep {run_s}"))


def _until(steering: Steering | None, holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s
        if steering is not None:
            steering.step()
        time.sleep(0.2)


@pytest.mark.slow
def test_held_jobs_are_started_and_a_shorter_one_preempts_a_longer_one(steered: SlurmCluster) -> None:
    steering = Steering(registry.build("srtf"), "main", failsafe_s=600.0)
    long = _held(steered, NODES * GPUS, 600.0, minutes=600)
    _until(steering, lambda: steered.jobs().get(long) == "RUNNING")
    short = _held(steered, GPUS, 1.0, minutes=2)
    _until(steering, lambda: steered.jobs().get(short) == "RUNNING")
    assert steered.jobs()[long] != "RUNNING"
    _until(steering, lambda: short not in steered.jobs() and steered.jobs().get(long) == "RUNNING")
    assert steering.preempted == 1


@pytest.mark.slow
def test_when_nobody_steers_any_more_slurm_goes_on_by_itself(steered: SlurmCluster) -> None:
    steering = Steering(registry.build("fifo"), "main", failsafe_s=6.0)
    blocking = _held(steered, NODES * GPUS, 8.0)
    _until(steering, lambda: steered.jobs().get(blocking) == "RUNNING")
    waiting = _held(steered, 1, 600.0)
    for _ in range(3):
        steering.step()
    assert steered.jobs()[waiting] == "PENDING"
    _until(None, lambda: steered.jobs().get(waiting) == "RUNNING")
    after = Steering(registry.build("fifo"), "main", failsafe_s=600.0)
    after.step()
    assert after.driver.view.running.keys() == {waiting}


@pytest.mark.parametrize("said", ["Job is no longer pending execution for job 16", "Invalid job id specified"])
def test_a_job_that_started_meanwhile_stops_nobody(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    def refuse(command: list[str], text: str = "") -> str:
        raise EngineError(f"{command[0]}: {said}")

    monkeypatch.setattr(commands, "run", refuse)
    _scontrol(["update JobId=16 StartTime=now"])


def test_a_slurm_that_is_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(command: list[str], text: str = "") -> str:
        raise EngineError("scontrol: Unable to contact slurm controller (connect failure)")

    monkeypatch.setattr(commands, "run", refuse)
    with pytest.raises(EngineError, match="Unable to contact"):
        _scontrol(["update JobId=16 StartTime=now"])


def test_policies_that_slurm_cannot_follow_are_refused() -> None:
    with pytest.raises(InputError, match="shares GPUs"):
        Steering(registry.build("eaco"), "main", failsafe_s=1.0)


def test_names_of_nodes_are_expanded() -> None:
    assert _expanded("n[0-2,5],m1") == ["n0", "n1", "n2", "n5", "m1"]
    assert _expanded("gpu[08-10]") == ["gpu08", "gpu09", "gpu10"]
    assert _expanded("") == []

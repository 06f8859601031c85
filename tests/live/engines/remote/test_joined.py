"""Machines that join over the stream: their jobs, their restarts, being cut off, and going for good."""

from __future__ import annotations

import sys
import time

import pytest

from fairlead.errors import InputError
from fairlead.live.engines.agent_engine import AgentEngine
from fairlead.live.engines.engine import AttemptState, EngineError
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from tests.live.engines.remote.conftest import Yard

pytestmark = pytest.mark.slow
ONE, TWO = AttemptId(1, 1, "e"), AttemptId(2, 1, "e")


def _order(attempt: AttemptId, program: str) -> Order:
    return Order(attempt, argv=(sys.executable, "-c", program), cwd="/", grace_s=2.0)


SLEEP = "import time; print('up', flush=True); time.sleep(600)"


def _state(engine: AgentEngine, attempt: AttemptId) -> AttemptState | None:
    found = engine.poll().attempts.get(attempt)
    return None if found is None else found.state


def test_a_job_runs_on_machines_that_have_joined_and_its_log_is_read(yard: Yard) -> None:
    engine = yard.open()
    yard.join("a")
    yard.join("b", first=2)
    assert [node.name for node in engine.cluster.nodes] == ["a", "b"]
    tell = "import os; print(*(os.environ.get(n) for n in ('MASTER_ADDR', 'NNODES', 'NCCL_SOCKET_IFNAME')))"
    engine.start(_order(ONE, tell), (0, 1, 2, 3))
    yard.until(lambda: _state(engine, ONE) is AttemptState.ENDED, "both parts to end")
    assert engine.read_log(ONE, "stdout", 0, 1000).decode() == "127.0.0.1 2 lo\n"
    engine.forget(ONE)
    assert ONE not in engine.poll().attempts


def test_an_order_that_comes_twice_starts_once(yard: Yard) -> None:
    engine = yard.open()
    yard.join("a")
    for _ in range(3):
        engine.start(_order(ONE, "print('once')"), (0,))
    yard.until(lambda: _state(engine, ONE) is AttemptState.ENDED, "it to end")
    assert engine.read_log(ONE, "stdout", 0, 1000) == b"once\n"


def test_jobs_go_on_while_the_controller_and_then_the_agent_are_away(yard: Yard) -> None:
    engine = yard.open()
    yard.join("a")
    engine.start(_order(ONE, SLEEP), (0,))
    engine.close()
    engine = yard.open()
    yard.until(lambda: _state(engine, ONE) is AttemptState.RUNNING, "the job to be told of again")
    yard.kill("a")
    yard.until(lambda: engine.poll().unreachable == {0}, "the agent to be missed")
    with pytest.raises(EngineError):
        engine.stop(ONE, 0.0, gpus=(0,))
    yard.start("a")
    yard.until(lambda: _state(engine, ONE) is AttemptState.RUNNING, "the job to be told of again")
    engine.stop(ONE, 0.0, gpus=(0,))
    yard.until(lambda: _state(engine, ONE) is AttemptState.ENDED, "it to end")


def test_who_hears_nothing_until_its_lease_ends_has_ended_its_jobs_before_it_is_given_up(yard: Yard) -> None:
    engine = yard.open(lease_s=3.0)
    yard.join("a")
    engine.start(_order(ONE, SLEEP), (0,))
    yard.until(lambda: _state(engine, ONE) is AttemptState.RUNNING, "the job to run")
    job = yard.folder / "a" / "jobs"
    yard.kill("a")  # nobody is left but the supervisor, who looks at the lease
    yard.until(lambda: engine.poll().absent == {0}, "the node to be given up")
    assert list(job.glob("*/exit.json")), "it was given up while its job may have run"
    assert ONE not in engine.poll().attempts


def test_another_machine_takes_a_free_place_only_when_all_is_accounted_for(yard: Yard) -> None:
    engine = yard.open(lease_s=3.0)
    yard.join("a")
    engine.start(_order(ONE, SLEEP), (0,))
    yard.kill("a")
    yard.until(lambda: engine.poll().absent == {0}, "the node to be given up")
    yard.start("a")
    time.sleep(1.0)
    assert engine.poll().absent == {0}
    engine.vacated(frozenset({0}))
    yard.until(lambda: engine.poll().awake == {0}, "it to come back")
    yard.until(lambda: _state(engine, ONE) is not AttemptState.RUNNING, "what it had to be over")


def test_an_operator_removes_a_node_once_nothing_runs_there(yard: Yard) -> None:
    engine = yard.open()
    yard.join("a")
    yard.join("b", first=2)
    engine.start(_order(ONE, SLEEP), (0,))
    yard.until(lambda: _state(engine, ONE) is AttemptState.RUNNING, "the job to run")
    with pytest.raises(InputError, match="a runs 1 jobs"):
        yard.source.remove("a")
    yard.source.remove("a", force=True)
    poll = engine.poll()
    assert (poll.absent, poll.hidden) == ({0}, {0})
    with pytest.raises(InputError, match="no node 'a'"):
        yard.source.remove("a")
    yard.join("c", first=4)
    assert [node.name for node in engine.cluster.nodes] == ["c", "b"]


def test_a_machine_that_claims_what_is_anothers_is_refused(yard: Yard) -> None:
    yard.open()
    yard.join("a")
    with pytest.raises(Exception, match=r"there is a node a already|another node's already"):
        yard.join("b")

"""The controller's core under attack: random stories of users, jobs, agents, disks and kills, on a virtual clock.

A story is a list of moves. Calls to the engine are made at once, or wait in a queue and are made in any order, or are
lost with the controller that made them. After every turn the laws are checked; at the end the world is left alone, and
everything must come to rest. What such stories have found is told below, one by one.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead import whatif
from fairlead.live.control.snapshots import snapshot
from fairlead.live.engines.engine import AttemptState, GpuReading, Progress
from fairlead.live.storage import recovery
from fairlead.model.cluster import parse_shape
from fairlead.policy import registry
from tests.live.storm import POLICIES, Storm

OFTEN = {"turn": 12, "submit": 6, "call": 5, "pass_time": 4, "finish": 2, "kill": 2, "hold": 2, "release": 2, "fail": 2}
MOVES = (
    "submit", "cancel", "hold", "release", "finish", "fail", "vanish", "be_unknown", "be_evicted", "give_in", "report",
    "be_stubborn", "lose_parts", "go_away", "come_back", "drain", "resume", "boot_slowly", "fill", "err", "call",
    "call_late", "kill", "boot", "reconfigure", "meter", "guard", "look", "pass_time", "turn",
)  # fmt: skip
STORIES = st.lists(
    st.tuples(st.sampled_from([m for m in MOVES for _ in range(OFTEN.get(m, 1))]), st.integers(0, 1000)),
    min_size=20,
    max_size=120,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(story=STORIES, is_slow=st.booleans())
def test_whatever_happens_nothing_is_lost_or_runs_twice_and_all_come_to_rest(
    policy: str, story: list[tuple[str, int]], is_slow: bool
) -> None:
    tell(policy, story, is_slow=is_slow)


STACKS = random.Random(14).sample(registry.every_stack(), 40)
TOLD = int(os.environ.get("FAIRLEAD_STORIES", "2"))
"""Stories of each of them; more by hand."""


@pytest.mark.parametrize("number", range(len(STACKS)))
def test_so_it_is_with_stacks_drawn_at_random(number: int) -> None:
    for seed in range(TOLD):
        rng = random.Random(1000 * number + seed)
        moves = rng.choices(MOVES, [OFTEN.get(move, 1) for move in MOVES], k=rng.randrange(20, 120))
        tell(STACKS[number], [(move, rng.randrange(1000)) for move in moves], is_slow=seed % 2 == 1)


def tell(policy: str, story: list[tuple[str, int]], *, is_slow: bool) -> None:
    """A story, to its end."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        storm = Storm(Path(folder), policy, is_slow=is_slow)
        try:
            for move, n in story:
                getattr(storm, move)(n)
            taken = snapshot(storm.controller)
            storm.calm()
            storm.kill(0)
            assert not storm.controller.store.database.read("SELECT * FROM events WHERE what = 'knowledge-lost'")
            if len(story) % 8 == 0 and "reconfigure" not in {move for move, _ in story}:
                whatif.predict(taken)
        finally:
            storm.close()


# ---- what was found ----

JOB, WIDE, WIDEST, NO_RETRIES, SERVICE = 0, 1, 3, 9, 11
"""Numbers of `storm.JOBS`."""
MakeStorm = Callable[..., Storm]


@pytest.fixture
def make_storm(tmp_path: Path) -> Iterator[MakeStorm]:
    made: list[Storm] = []

    def make(policy: str = "fifo", *, is_slow: bool = False, save_s: float = 0.0) -> Storm:
        made.append(Storm(tmp_path, policy, is_slow=is_slow, save_s=save_s))
        return made[-1]

    yield make
    for storm in made:
        storm.close()


def state(storm: Storm, job_id: int) -> str:
    row = storm.store.job_row(job_id)
    assert row is not None
    return str(row["state"])


def place_behind_one_that_stays(storm: Storm) -> None:
    """A second job is placed where the first, which was cancelled, has not left yet."""
    storm.engine.stubborn = True
    storm.submit(WIDEST)
    turns(storm)
    storm.cancel(0)
    storm.submit(JOB)
    turns(storm)


def turns(storm: Storm, count: int = 3, passing_s: float = 0.0) -> None:
    for _ in range(count):
        storm.hands.now_s += passing_s
        storm.turn()


def test_a_service_may_report_epochs_where_widths_change(make_storm: MakeStorm) -> None:
    storm = make_storm("boa")
    storm.submit(WIDE)
    storm.submit(SERVICE)
    turns(storm, passing_s=10.0)
    for number in range(2):
        storm.report(number)
        storm.turn()
        assert storm.controller.trouble == ""


@pytest.mark.parametrize("end", ["fail", "vanish", "be_evicted"])
@pytest.mark.parametrize("wishes", [["hold"], ["hold", "release"], ["cancel"]], ids=" ".join)
def test_a_job_may_fail_in_the_turn_in_which_it_is_held(make_storm: MakeStorm, end: str, wishes: list[str]) -> None:
    storm = make_storm()
    storm.submit(JOB)
    turns(storm)
    for wish in wishes:
        storm.wish(0, wish)
    getattr(storm, end)(0)
    storm.turn()
    assert storm.controller.trouble == ""
    turns(storm)
    assert state(storm, 1) == {"hold": "held", "release": "running", "cancel": "cancelled"}[wishes[-1]]


def test_who_is_cancelled_is_not_released_by_what_the_disk_has_not_heard_of(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.submit(NO_RETRIES)
    turns(storm)
    storm.fail(0)
    turns(storm)
    assert state(storm, 1) == "parked"
    for wish in ("release", "cancel", "release"):
        storm.wish(0, wish)
    turns(storm)
    assert state(storm, 1) == "cancelled"
    assert not storm.engine.running


def test_a_policy_whose_plan_was_refused_does_not_go_on_believing_in_it(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.submit(JOB)
    storm.err(0)
    turns(storm, 5, 1.0)
    assert state(storm, 1) == "running"


def test_a_node_does_not_sleep_before_everybody_has_left(make_storm: MakeStorm) -> None:
    storm = make_storm("sleep")
    storm.engine.stubborn = True
    storm.submit(JOB)
    turns(storm)
    storm.cancel(0)
    turns(storm, 20, 5.0)
    (key,) = storm.engine.running
    assert storm.engine.awake == {storm.engine.cluster.node_of[storm.engine.gpus[key][0]]}
    storm.give_in(0)
    turns(storm)
    assert not storm.engine.awake


def test_a_node_that_is_being_sent_to_sleep_is_not_taken_for_awake(make_storm: MakeStorm) -> None:
    storm = make_storm("sleep", is_slow=True)
    turns(storm)
    assert len(storm.workers.calls) == 3
    storm.submit(JOB)
    turns(storm, 3, 6.0)
    assert state(storm, 1) == "waiting"
    for _ in range(3):
        storm.workers.make_all()
        turns(storm)
    assert state(storm, 1) == "running"


def test_nodes_that_sleep_are_woken_by_a_policy_that_lets_none_sleep(make_storm: MakeStorm) -> None:
    storm = make_storm("sleep")
    turns(storm)
    assert not storm.engine.awake
    storm.policy = "fifo"
    storm.kill_all(0)
    storm.submit(WIDEST)
    turns(storm)
    assert len(storm.engine.awake) == 3
    assert storm.engine.running == {(1, 1)}


@pytest.mark.parametrize("policy", ["sleep", "rent"])
def test_a_policy_that_comes_back_finds_the_nodes_as_the_other_left_them(make_storm: MakeStorm, policy: str) -> None:
    storm = make_storm(policy)
    turns(storm)
    storm.policy = "fifo"
    storm.kill_all(0)
    storm.submit(JOB)
    turns(storm)
    storm.policy = policy
    storm.kill_all(0)
    turns(storm)
    assert (state(storm, 1), storm.engine.running) == ("running", {(1, 1)})
    storm.calm()


def test_offline_work_does_not_join_a_service_that_another_policy_has_put_alone(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.submit(SERVICE)
    turns(storm)
    storm.policy = "muxflow"
    storm.kill_all(0)
    storm.submit(JOB)
    turns(storm, 5, 5.0)
    assert not storm.store.database.read("SELECT * FROM events WHERE what = 'plan-refused'")


@pytest.mark.parametrize("policy", ["fifo", "tiresias"])
def test_jobs_that_share_are_separated_under_a_policy_that_knows_no_sharing(make_storm: MakeStorm, policy: str) -> None:
    storm = make_storm("muxflow")
    for _ in range(6):
        storm.submit(SERVICE)
    storm.submit(JOB)
    turns(storm, 5, 300.0)
    assert (7, 1) in storm.engine.running
    storm.policy = policy
    storm.kill_all(0)
    turns(storm)
    assert storm.engine.running == {(service, 1) for service in range(1, 7)}
    storm.cancel(0)
    turns(storm)
    assert (7, 2) in storm.engine.running


def test_who_has_not_started_leaves_a_node_that_is_drained(make_storm: MakeStorm) -> None:
    storm = make_storm()
    place_behind_one_that_stays(storm)
    assert storm.controller.driver.jobs[2].gpus == (0,)
    storm.drain(0)
    turns(storm)
    storm.give_in(0)
    turns(storm)
    assert storm.engine.gpus[2, 1] == (2,)


def test_who_has_not_started_leaves_a_node_that_does_not_answer(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.go_away(0)
    storm.submit(JOB)
    turns(storm)
    assert not storm.store.open_attempts()
    turns(storm, 5, 4.0)
    assert storm.engine.gpus[1, 1] == (2,)


def test_epochs_forgive_failures_but_not_the_same_epochs_again(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.submit(JOB)
    for epochs in (2, 4, 6, 8, 10, 3, 10):
        turns(storm, 3, 100.0)
        (key,) = storm.engine.running
        for done in range(epochs):
            storm.engine.report(key, Progress(done + 1, 20))
            storm.turn()
        storm.fail(0)
        storm.turn()
    assert storm.controller.lifecycle.aside[1].failures == 3


@pytest.fixture
def learns_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What policies learn is not saved with each plan."""
    monkeypatch.setattr(recovery, "_SELDOM", 1e12)


def test_an_order_that_has_reached_one_of_its_nodes_only_is_given_again(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.lose_parts(0)
    storm.submit(WIDEST)
    turns(storm)
    assert storm.engine.attempts[1, 1].state is AttemptState.STARTING
    turns(storm, 3, 3.0)
    assert storm.engine.attempts[1, 1].state is AttemptState.RUNNING
    assert storm.engine.started == [(1, 1)]


@pytest.mark.usefixtures("learns_slowly")
def test_what_was_paid_is_what_was_rented(make_storm: MakeStorm) -> None:
    storm = make_storm("rent", save_s=1e4)
    storm.submit(WIDE)
    turns(storm, 4, 10.0)
    assert len(storm.controller.driver.view.rented_s) == 1
    storm.hands.now_s += 60.0
    storm.finish(0)
    turns(storm)
    storm.kill_all(0)
    storm.hands.now_s += 500.0
    turns(storm)
    assert not storm.controller.driver.view.rented_s
    assert storm.controller.observations.paid_gpu_s() == pytest.approx(2 * 90.0)


@pytest.mark.usefixtures("learns_slowly")
def test_the_clock_does_not_go_back_behind_what_was_saved_whatever_the_time_of_day_does(make_storm: MakeStorm) -> None:
    storm = make_storm(save_s=1e4)
    storm.turn()
    storm.hands.now_s += 20.0
    storm.submit(JOB)
    turns(storm)
    storm.boot(0)
    job = storm.controller.driver.jobs[1]
    assert job.since_s <= storm.controller.clock.now_s()


def test_a_snapshot_takes_jobs_that_came_before_the_clock_was_saved(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.hands.now_s += 3.0
    storm.submit(JOB)
    storm.kill_all(0)
    assert snapshot(storm.controller).jobs[0].since_s == storm.controller.driver.view.now_s == 0.0


@pytest.mark.parametrize("busy_frac", [None, 0.2])
def test_work_beside_a_service_is_foreseen_by_what_is_metered_of_it(
    make_storm: MakeStorm, busy_frac: float | None
) -> None:
    storm = make_storm("muxflow")
    storm.engine.cluster = parse_shape("1x1")
    storm.kill_all(0)
    storm.submit(SERVICE)
    storm.engine.read(GpuReading(0, accepts_offline=False))
    turns(storm)
    storm.submit(JOB)
    storm.submit(JOB)
    known = GpuReading(
        0, accepts_offline=False, service_utilisation_frac=busy_frac, service_sm_activity_frac=busy_frac
    )  # fmt: skip
    storm.engine.read(known)
    turns(storm)
    assert state(storm, 2) == state(storm, 3) == "waiting"
    found = {job.id: job for job in whatif.predict(snapshot(storm.controller)).jobs}
    assert found[2].wait_s is not None
    assert found[3].start_s is not None
    assert found[2].end_s is not None
    assert found[3].start_s >= found[2].end_s, "one at a time beside a service"

    storm.engine.read(replace(known, accepts_offline=True))
    turns(storm, 8, 30.0)
    assert state(storm, 2) == "running"
    share = storm.controller.driver.view.running[2].sm_share
    assert share == pytest.approx(0.5 if busy_frac is None else 1.0 - 0.2 - 0.05), "as metered since"


def test_who_was_evicted_beside_a_service_comes_back_when_its_back_off_ends(make_storm: MakeStorm) -> None:
    storm = make_storm("muxflow")
    storm.engine.cluster = parse_shape("1x1")
    storm.kill_all(0)
    storm.submit(SERVICE)
    storm.engine.read(GpuReading(0))
    turns(storm)
    storm.submit(JOB)
    turns(storm)
    assert state(storm, 2) == "running"
    storm.be_evicted(sorted(storm.engine.running).index((2, 1)))
    turns(storm)
    assert state(storm, 2) == "waiting"
    storm.hands.now_s += 30.0
    storm.submit(JOB)
    turns(storm)
    assert state(storm, 3) == "running"
    storm.finish(sorted(storm.engine.running).index((3, 1)))
    storm.hands.now_s += 28.0
    turns(storm)
    assert (state(storm, 2), state(storm, 3)) == ("waiting", "finished")
    storm.hands.now_s += 3.0
    turns(storm)
    assert state(storm, 2) == "running"


def test_who_is_displaced_and_worth_more_as_one_that_waits_displaces_in_turn() -> None:
    story = [
        ("go_away", 667), ("turn", 0), ("submit", 433), ("pass_time", 193), ("turn", 179), ("submit", 977),
        ("report", 747), ("turn", 453), ("submit", 343), ("turn", 725), ("report", 745), ("submit", 691), ("turn", 776),
    ]  # fmt: skip
    tell("srtf", story, is_slow=False)


def test_a_cluster_that_has_shrunk_goes_on_without_the_nodes_that_are_gone(make_storm: MakeStorm) -> None:
    storm = make_storm()
    for _ in range(3):
        storm.submit(WIDE)
    storm.drain(2)
    turns(storm)
    storm.resume(2)
    turns(storm)
    storm.drain(5)
    turns(storm)
    storm.engine.cluster = parse_shape("2x2")
    del storm.engine.attempts[3, 1], storm.engine.orders[3, 1]
    storm.kill_all(0)
    turns(storm)
    assert storm.controller.trouble == ""
    assert [state(storm, j) for j in (1, 2, 3)] == ["running", "running", "waiting"]
    assert [a.reason for a in storm.store.attempts_of(3)] == ["node-gone"]


def test_who_no_longer_wants_the_answer_does_not_stop_the_loop(make_storm: MakeStorm) -> None:
    storm = make_storm()
    asked: list[int] = []
    assert storm.controller.ask(lambda: asked.append(1)).cancel()
    storm.turn()
    assert (storm.controller.trouble, asked) == ("", [])


def test_an_end_is_not_forgotten_before_it_is_on_the_disk_whatever_comes_between(make_storm: MakeStorm) -> None:
    storm = make_storm(is_slow=True)
    storm.submit(JOB)
    storm.turn()
    storm.workers.make_all()
    storm.turn()
    storm.finish(0)
    storm.submit(JOB)
    storm.err(1)
    storm.turn()
    assert "a bug" in storm.controller.trouble
    storm.go_away(0)
    storm.turn()
    storm.come_back(0)
    storm.workers.make_all()
    assert storm.engine.forgotten == []
    turns(storm, 3, 10.0)
    assert state(storm, 1) == "finished"


def test_a_turn_that_broke_is_not_saved_when_the_controller_closes(make_storm: MakeStorm) -> None:
    storm = make_storm()
    storm.submit(JOB)
    storm.err(1)
    storm.turn()
    before = storm.store.last_event()
    storm.controller.work.tell("half-done")
    storm.controller.close()
    assert storm.store.last_event() == before
    storm.kill_all(0)
    turns(storm)
    assert state(storm, 1) == "running"


def test_who_loses_its_gpus_before_it_started_is_not_said_to_be_starting(make_storm: MakeStorm) -> None:
    storm = make_storm()
    place_behind_one_that_stays(storm)
    storm.hold(1)
    turns(storm)
    row = storm.store.job_row(2)
    assert row is not None
    assert (row["state"], row["phase"]) == ("held", "")

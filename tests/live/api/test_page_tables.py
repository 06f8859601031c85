"""The table of jobs, neighbours, usage, history and what-ifs, as the page asks for them."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError, RunError
from fairlead.live import forecasts
from fairlead.live.api.schemas.accounts import UserUsageView
from fairlead.live.engines.engine import GpuReading
from fairlead.live.forecasts import BusyError, Forecasts, Simulator
from fairlead.live.history import HistoryRecorder
from fairlead.live.storage import history
from fairlead.live.storage.database import Database
from fairlead.live.usage import Usage
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import AtOnce, Hands, wait_for

SHARES = "ordering=priority:preempt=false,sharing=eaco:history=eaco"


def rows(site: Served, query: str = "", who: str = "olga") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.call("GET", f"/v1/job-table?{query}", who=who).json["rows"]
    return found


def names(site: Served, query: str, who: str = "olga") -> list[str]:
    return [row["name"] for row in rows(site, query, who)]


def test_any_part_of_the_table_in_any_order(make_world: MakeWorld) -> None:
    with served(make_world(), runs=False) as site:
        for name, user, gpus in (("b", "alice", 1), ("A", "bob", 4), ("c_1%", "alice", 2)):
            site.submit(user, name=name, gpus=gpus, hold=name == "A")
        assert names(site, "") == ["c_1%", "A", "b"]
        assert names(site, "sort=name&descending=false") == ["A", "b", "c_1%"]
        assert names(site, "sort=gpus") == ["A", "c_1%", "b"]
        assert names(site, "offset=1&limit=1") == ["A"]
        assert names(site, "state=held,running") == ["A"]
        assert names(site, "text=_1%25") == ["c_1%"]
        assert names(site, "text=%25") == ["c_1%"], "a per cent sign is one"
        assert names(site, "text=2") == ["A"], "by number"
        assert names(site, "user=alice") == ["c_1%", "b"]
        assert names(site, "", "bob") == ["A"]
        assert names(site, "user=alice", "bob") == []
        assert site.call("GET", "/v1/job-table", who="bob").json["total"] == 1
        assert site.call("GET", "/v1/job-table?sort=nonsense").status == 422
        assert site.call("GET", "/v1/job-table?state=nonsense").status == 422
        assert rows(site, "text=%27%3B%20DROP%20TABLE%20jobs%3B--") == []
        assert site.call("GET", "/v1/job-table?offset=999999999999").json["rows"] == []


def test_rows_tell_why_jobs_wait_when_they_start_and_what_they_cost(make_world: MakeWorld) -> None:
    with served(make_world(cluster="1x4")) as site:
        first = site.submit(gpus=4, estimate_s=600.0)
        second = site.submit(gpus=4, estimate_s=60.0)
        wait_for(lambda: (first, 1) in site.world.engine.running)
        wait_for(lambda: rows(site, "state=waiting")[0]["expected_start_at_s"] is not None, 120.0)
        (waits,) = rows(site, "state=waiting")
        assert (waits["id"], waits["why"]) == (second, "no free GPUs suit it now")
        assert waits["expected_start_at_s"] - waits["submitted_at_s"] == pytest.approx(600.0, abs=60.0)
        assert names(site, "sort=start&descending=false") == ["train", "train"]
        (runs,) = rows(site, "state=running")
        assert runs["cost_usd"] == pytest.approx(runs["gpu_s"] / 3600.0 * 2.5)
        site.world.engine.end((first, 1))
        wait_for(lambda: (second, 1) in site.world.engine.running)
        (over,) = rows(site, "state=finished")
        assert (over["expected_start_at_s"], over["expected_end_at_s"]) == (None, None)
        assert over["gpu_s"] > 0.0


def test_neighbours_are_named_to_those_who_may_know(make_world: MakeWorld) -> None:
    with served(make_world(SHARES, "1x2")) as site:
        mine = site.submit("alice", gpus=2, profile="AlexNet", name="mine")
        theirs = site.submit("bob", gpus=1, profile="ResNet-18", name="theirs")
        wait_for(lambda: {(mine, 1), (theirs, 1)} <= site.world.engine.running)
        found = site.call("GET", f"/v1/jobs/{mine}/beside", who="alice").json
        assert found["neighbours"] == [{"id": theirs, "name": None, "user": None, "gpus": ["n0:0"]}]
        assert 0.0 < found["kept_speed_frac"] <= 1.0
        seen = site.call("GET", f"/v1/jobs/{mine}/beside", who="olga").json["neighbours"]
        assert (seen[0]["name"], seen[0]["user"]) == ("theirs", "bob")
        assert site.call("GET", f"/v1/jobs/{theirs}/beside", who="alice").status == 404


def test_usage_counts_what_users_hold_held_used_and_owe(make_world: MakeWorld, hands: Hands) -> None:
    world = make_world(hands=hands, workers=AtOnce())
    first, late = world.submit("ann", gpus=2), world.submit("ann", gpus=4, deadline_s=50.0)
    world.submit("ben", gpus=1)
    world.step()
    world.step(100.0)
    world.engine.meter((first, 1), 500.0)
    world.step()
    clock = [0.0]
    usage = Usage(world.controller, world.database, clock=lambda: clock[0])
    ann = usage.by_user()["ann"]
    assert (ann.gpus, ann.gpu_s, ann.energy_j, ann.late_jobs) == (2, 200.0, 500.0, 1)
    assert (ann.jobs, ann.cost_usd) == ({"running": 1, "waiting": 1}, 200.0 / 3600.0 * 2.5)
    world.engine.end((first, 1))
    world.step(100.0)
    world.wish(late, "cancel")
    world.step()
    assert usage.by_user()["ann"] is ann, "not looked at again at once"
    clock[0] = 10.0
    ann = usage.by_user()["ann"]
    assert (ann.gpus, ann.gpu_s, ann.energy_j, ann.late_jobs) == (0, 400.0, 500.0, 0)
    assert usage.by_user()["ben"].gpus == 1


def test_usage_over_http_tells_parts_of_gpus() -> None:
    shown = UserUsageView(user="ann", jobs={}, gpus=0.25, late_jobs=0, gpu_s=1.0, energy_j=0.0, cost_usd=None)
    assert shown.gpus == 0.25


def test_usage_over_http_is_everybodys_to_operators_and_ones_own_to_users(make_world: MakeWorld) -> None:
    with served(make_world(), runs=False) as site:
        site.submit("alice")
        site.submit("bob")
        users = [one["user"] for one in site.call("GET", "/v1/usage", who="olga").json["users"]]
        assert sorted(users) == ["alice", "bob"]
        assert [one["user"] for one in site.call("GET", "/v1/usage", who="bob").json["users"]] == ["bob"]


def test_history_adds_up_over_minutes_hours_and_restarts(tmp_path: Path) -> None:
    database = Database(tmp_path / "fairlead.db")
    sums = dict.fromkeys(history.SUMS, 1.0)
    start_s = 1_700_006_400  # a full hour
    for minute in range(0, 75 * 60, 7):
        history.add(database, start_s + 60 * minute, sums).result()
    count, until_s = math.ceil(75 * 60 / 7), start_s + 75 * 3600.0
    kept = database.read("SELECT min(at_s) AS first FROM history WHERE step_s = 60")[0]["first"]
    assert kept >= until_s - history.MINUTES_KEPT_S - 3600
    history.add(database, start_s, sums).result()  # a minute again, by a controller whose clock was set back
    step_s, found = history.rows(database, start_s - 86400.0 * 30, until_s, 1000)
    assert step_s == 3600
    assert sum(row["energy_j"] for row in found) == count + 1
    step_s, found = history.rows(database, until_s - 7200.0, until_s, 10)
    assert step_s == 720
    assert sum(row["energy_j"] for row in found) == pytest.approx(7200 / 60 / 7, abs=1.0)
    database.close()


def test_the_recorder_integrates_what_it_sees(make_world: MakeWorld, hands: Hands) -> None:
    world = make_world(hands=hands, workers=AtOnce())
    recorder = HistoryRecorder(world.controller, world.database, wall_s=world.clock.wall_s, clock=lambda: hands.now_s)
    world.submit(gpus=2)
    world.submit(gpus=4)
    world.step()
    for passed_s in (0.0, *[10.0] * 12):
        hands.now_s += passed_s
        energy_j = 100.0 + 5.0 * hands.now_s
        world.engine.read(GpuReading(0, power_w=50.0, energy_j=energy_j))
        world.engine.read(GpuReading(1, power_w=20.0))
        world.step()
        recorder.sample()
    recorder._write()
    _, found = history.rows(world.database, 0.0, world.clock.wall_s() + 60.0, 1000)
    totals = {name: sum(row[name] for row in found) for name in history.SUMS}
    assert (totals["covered_s"], totals["gpu_s"], totals["busy_gpu_s"]) == (120.0, 480.0, 240.0)
    assert (totals["running_job_s"], totals["waiting_job_s"]) == (120.0, 120.0)
    assert totals["energy_j"] == pytest.approx(120.0 * 5.0 + 120.0 * 20.0), "by the meter, else by the power"
    assert totals["cost_usd"] == pytest.approx(480.0 / 3600.0 * 2.5)


def test_what_if_answers_and_refuses(site: Served) -> None:
    site.submit("bob", gpus=4, estimate_s=600.0, name="secret")
    behind = site.submit("alice", gpus=4, estimate_s=60.0)
    wait_for(lambda: site.world.engine.running)
    found = site.call("POST", "/v1/whatif", {"nodes": 1, "jobs": [{"gpus": 1, "duration_s": 60.0}]}, who="alice")
    assert found.status == 200, found.data
    (moved,) = [job for job in found.json["jobs"] if job["id"] == behind]
    assert moved["start_change_s"] == pytest.approx(-600.0, abs=60.0)
    assert b"secret" not in found.data
    assert found.json["changed"] == ["1 node more", "1 job more"]
    for wrong in ({"policy": "nonsense"}, {"nodes": 10**9}, {"jobs": [{"gpus": 0}]}, {"nodes": -1}, {"extra": 1}):
        answer = site.call("POST", "/v1/whatif", wrong)
        assert answer.status == 422, wrong
        assert set(answer.json) == {"error", "hint"}
    site.app.state.context.asking["alice"] += 1
    assert site.call("POST", "/v1/whatif", {"nodes": 1}, who="alice").status == 429
    choices = site.call("GET", "/v1/choices").json
    assert {"eaco", "fifo", "las"} <= set(choices["policies"])


SLOW = (sys.executable, "-c", "import sys, time; sys.stdin.readline(); time.sleep(600)")
DEAD = (sys.executable, "-c", "pass")
WRONG = (
    sys.executable,
    "-c",
    'import sys\nfor line in sys.stdin: print(\'{"error": "no", "hint": null}\', flush=True)',
)


def test_a_simulator_that_hangs_dies_or_refuses_holds_nobody_up() -> None:
    for worker, error in ((SLOW, RunError), (DEAD, RunError), (WRONG, InputError)):
        simulator = Simulator(worker, longest_s=0.5 if worker is SLOW else 60.0)
        try:
            with pytest.raises(error):
                simulator.ask({"ask": "predict"}).result(60.0)
        finally:
            simulator.close()


def test_too_many_questions_are_refused_and_closing_waits_for_none() -> None:
    simulator = Simulator(SLOW)
    for _ in range(forecasts.MOST_WAITING + 1):
        simulator.ask({})
    with pytest.raises(BusyError, match="wait for the simulator"):
        simulator.ask({})
    simulator.close()
    with pytest.raises(BusyError):
        simulator.ask({})


def test_predictions_rest_twenty_times_as_long_as_they_took() -> None:
    clock = [0.0]
    made = Forecasts(clock=lambda: clock[0])
    assert made.try_begin()
    assert not made.try_begin(), "one at a time"
    job = {"id": 7, "start_s": 110.0, "end_s": None, "is_guess": True}
    made.keep({"now_s": 100.0, "jobs": [job], "cpu_s": 3.0}, 1000.0, "of this")
    made.finish()
    assert (made.expected[7].start_at_s, made.expected[7].end_at_s, made.made_of) == (1010.0, None, "of this")
    clock[0] = 59.0
    assert not made.try_begin()
    clock[0] = 60.0
    assert made.try_begin()
    made.close()

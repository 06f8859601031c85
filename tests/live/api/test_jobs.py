"""Jobs over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.live.engines.engine import Progress
from fairlead.live.jobs.request import JobRequest
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import wait_for


def test_a_job_is_submitted_runs_and_is_shown_with_its_attempt(site: Served) -> None:
    job_id = site.submit(name="resnet", gpus=2, command=["python", "train.py"], cwd="/tmp", priority="high")
    engine = site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    engine.report((job_id, 1), Progress(3, 10, 12.5, loss=float("nan")))
    engine.meter((job_id, 1), 500.0)
    wait_for(lambda: site.call("GET", f"/v1/jobs/{job_id}").json["epochs_done"] == 3)
    wait_for(lambda: site.call("GET", f"/v1/jobs/{job_id}").json["energy_j"] == 500.0)
    shown = site.call("GET", f"/v1/jobs/{job_id}").json
    assert shown["state"] == "running"
    assert shown["user"] == "alice"
    assert shown["placement"] == ["n0:0", "n0:1"]
    assert (shown["gpus"], shown["min_gpus"], shown["max_gpus"], shown["priority"]) == (2, 2, 2, 1)
    assert (shown["epochs"], shown["epoch_s"], shown["loss"]) == (10, 12.5, None)
    assert shown["is_fake"] is True
    assert [a["attempt"] for a in shown["attempts"]] == [1]
    assert shown["attempts"][0]["placement"] == ["n0:0", "n0:1"]
    engine.report((job_id, 1), Progress(10, 10, 12.5))
    engine.end((job_id, 1))
    wait_for(lambda: site.call("GET", f"/v1/jobs/{job_id}").json["state"] == "finished")
    shown = site.call("GET", f"/v1/jobs/{job_id}").json
    assert (shown["exit_code"], shown["energy_j"], shown["placement"]) == (0, 500.0, [])
    assert shown["attempts"][0]["is_over"]


def test_a_job_that_waits_says_why(site: Served) -> None:
    site.submit(gpus=4)
    job_id = site.submit(gpus=4)
    wait_for(lambda: site.call("GET", f"/v1/jobs/{job_id}").json["wait_reason"] == "no-free-gpu")
    explained = site.call("GET", f"/v1/jobs/{job_id}/explain")
    assert explained.status == 200
    assert explained.json["why"]


def test_a_job_that_is_over_needs_no_explanation(site: Served) -> None:
    job_id = site.submit(hold=True)
    site.call("POST", f"/v1/jobs/{job_id}/cancel")
    wait_for(lambda: site.world.state(job_id) == "cancelled")
    assert site.call("GET", f"/v1/jobs/{job_id}/explain").status == 409


def test_the_same_key_is_the_same_job_and_for_another_user_another(site: Served) -> None:
    body, headers = {"command": ["train"], "hold": True}, {"Idempotency-Key": "k1"}
    first = site.call("POST", "/v1/jobs", body, headers=headers)
    second = site.call("POST", "/v1/jobs", body, headers=headers)
    others = site.call("POST", "/v1/jobs", body, headers=headers, who="bob")
    assert (first.status, second.status, others.status) == (201, 201, 201)
    assert (first.json["is_new"], second.json["is_new"], others.json["is_new"]) == (True, False, True)
    assert first.json["id"] == second.json["id"] != others.json["id"]
    assert len(site.call("GET", "/v1/jobs", who="olga").json["jobs"]) == 2


def test_a_submission_whose_answer_was_lost_with_the_controller_is_one_job(make_world: MakeWorld) -> None:
    body, headers = {"command": ["train"], "gpus": 1}, {"Idempotency-Key": "k1"}
    world = make_world()
    with served(world, runs=False) as site:
        before = site.call("POST", "/v1/jobs", body, headers=headers).json["id"]
    engine = world.engine
    world.close()
    with served(make_world(engine=engine)) as site:
        again = site.call("POST", "/v1/jobs", body, headers=headers).json
        assert again == {"id": before, "is_new": False}
        wait_for(lambda: (before, 1) in engine.running)
        assert len(site.call("GET", "/v1/jobs").json["jobs"]) == 1
    assert engine.started == [(before, 1)]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"gpus": 5}, "gpus"),
        ({"gpus": 4, "memory_mib": 32769}, "memory_mib"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": 10**30}, "gpus"),
        ({"command": []}, "command"),
        ({"command": ["a\0b"]}, "command"),
        ({"command": [""]}, "command"),
        ({"command": "train"}, "command"),
        ({"cwd": "relative"}, "cwd"),
        ({"env": {"LD_PRELOAD": "x"}}, "env"),
        ({"name": "two\nlines"}, "name"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"priority": "urgent"}, "priority"),
        ({"nonsense": 1}, "nonsense"),
        ({"min_gpus": 3, "max_gpus": 2}, "GPUs"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name_and_not_stored(
    refusing: Served, asked: dict[str, Any], field: str
) -> None:
    found = refusing.call("POST", "/v1/jobs", {"command": ["train"], **asked})
    assert found.status == 422
    assert set(found.json) == {"error", "hint"}
    assert field in found.json["error"]
    assert refusing.call("GET", "/v1/jobs", who="olga").json["jobs"] == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"train"',
        b"\xff\xfe",
        b'{"command": ["\\ud800"]}',
        b'{"command": ["a"], "memory_mib": NaN}',
        b'{"command": ["a"], "estimate_s": Infinity}',
        b'{"command": ["a"], "estimate_s": 1e999}',
        b'{"command": ["a"], "gpus": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"command": ["a"], "env": {"\\ud800": "x"}}',
        b'{"command": ["a"], "name": "\\udfff"}',
    ],
)
def test_what_is_no_request_at_all_is_refused_in_the_same_form(refusing: Served, raw: bytes) -> None:
    found = refusing.call("POST", "/v1/jobs", raw=raw)
    assert found.status == 422, found.data
    assert set(found.json) == {"error", "hint"}
    assert refusing.call("GET", "/v1/jobs", who="olga").json["jobs"] == []


def test_malformed_json_is_said_to_be_that(refusing: Served) -> None:
    found = refusing.call("POST", "/v1/jobs", raw=b'{"command": ')
    assert (found.status, found.json["error"][:28]) == (422, "the body is no valid JSON: E")


def test_an_elastic_job_needs_only_its_least_where_the_policy_resizes(make_world: MakeWorld) -> None:
    with served(make_world("sizing=equal"), runs=False) as site:
        site.submit(gpus=8, min_gpus=2, max_gpus=16)
    with served(make_world("fifo"), runs=False) as site:
        assert site.call("POST", "/v1/jobs", {"command": ["a"], "gpus": 8, "min_gpus": 2, "max_gpus": 16}).status == 422


def test_who_serves_may_refuse_a_request_or_fill_it_in(make_world: MakeWorld) -> None:
    def admit(request: JobRequest, user: str) -> JobRequest:
        if user == "bob":
            raise InputError("bob has no account here", hint="ask for one")
        return request.model_copy(update={"retries": 7})

    with served(make_world(), runs=False, admit=admit) as site:
        refused = site.call("POST", "/v1/jobs", {"command": ["train"]}, who="bob")
        assert (refused.status, refused.json) == (422, {"error": "bob has no account here", "hint": "ask for one"})
        row = site.world.store.job_row(site.submit())
        assert row is not None
        assert json.loads(row["request"])["retries"] == 7


def test_lists_come_in_pages_filtered_and_in_either_order(site: Served) -> None:
    ids = [site.submit(hold=True) for _ in range(5)]
    running = site.submit(gpus=1)
    wait_for(lambda: site.world.state(running) == "running")

    def listed(query: str) -> list[int]:
        return [job["id"] for job in site.call("GET", f"/v1/jobs?{query}").json["jobs"]]

    assert listed("") == [running, *reversed(ids)]
    assert listed("order=oldest") == [*ids, running]
    assert listed("state=running") == [running]
    assert listed("state=running,held&limit=2") == [running, ids[-1]]
    assert listed("user=bob") == []
    first = site.call("GET", "/v1/jobs?limit=2&order=oldest&state=held").json
    assert first["next"] == ids[1]
    assert listed(f"limit=3&order=oldest&state=held&after={first['next']}") == ids[2:]
    assert site.call("GET", "/v1/jobs?limit=6").json["next"] is None
    assert listed(f"after={ids[1]}") == [ids[0]]


@pytest.mark.parametrize(
    "query", ["state=sleeping", "limit=0", "limit=1001", "after=-1", "after=9999999999999999999999", "order=random"]
)
def test_bad_queries_are_refused_and_name_the_parameter(refusing: Served, query: str) -> None:
    found = refusing.call("GET", f"/v1/jobs?{query}")
    assert found.status == 422
    assert query.partition("=")[0] in found.json["error"]


def test_users_see_their_own_jobs_and_operators_all(site: Served) -> None:
    hers, his = site.submit("alice", hold=True), site.submit("bob", hold=True)
    assert [j["id"] for j in site.call("GET", "/v1/jobs").json["jobs"]] == [hers]
    assert site.call("GET", "/v1/jobs?user=bob").json["jobs"] == []
    assert [j["id"] for j in site.call("GET", "/v1/jobs", who="olga").json["jobs"]] == [his, hers]
    assert [j["id"] for j in site.call("GET", "/v1/jobs?user=bob", who="olga").json["jobs"]] == [his]
    assert site.call("GET", f"/v1/jobs/{his}").status == 404
    assert site.call("GET", f"/v1/jobs/{his}", who="olga").status == 200


def test_hold_release_and_cancel_are_carried_out(site: Served) -> None:
    job_id, engine = site.submit(), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    held = site.call("POST", f"/v1/jobs/{job_id}/hold")
    assert (held.status, held.json) == (202, {"id": job_id, "wish": "hold"})
    wait_for(lambda: site.world.state(job_id) == "held" and not engine.running)
    assert site.call("POST", f"/v1/jobs/{job_id}/release").status == 202
    wait_for(lambda: (job_id, 2) in engine.running)
    assert site.call("POST", f"/v1/jobs/{job_id}/cancel").status == 202
    wait_for(lambda: site.world.state(job_id) == "cancelled" and not engine.running)


def test_wishes_that_make_no_sense_are_conflicts(site: Served) -> None:
    job_id, engine = site.submit(), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    assert site.call("POST", f"/v1/jobs/{job_id}/release").status == 409
    engine.end((job_id, 1))
    wait_for(lambda: site.world.state(job_id) == "finished")
    for wish in ("cancel", "hold", "release"):
        found = site.call("POST", f"/v1/jobs/{job_id}/{wish}")
        assert found.status == 409
        assert "finished" in found.json["error"]


def test_a_wish_counts_before_the_loop_has_seen_it(make_world: MakeWorld) -> None:
    with served(make_world(), runs=False) as site:
        job_id = site.submit()
        assert site.call("POST", f"/v1/jobs/{job_id}/release").status == 409
        assert site.call("POST", f"/v1/jobs/{job_id}/hold").status == 202
        assert site.call("POST", f"/v1/jobs/{job_id}/release").status == 202
        assert site.call("POST", f"/v1/jobs/{job_id}/cancel").status == 202
        assert site.call("POST", f"/v1/jobs/{job_id}/cancel").status == 202
        assert site.call("POST", f"/v1/jobs/{job_id}/hold").status == 409
        site.world.step()
        assert site.world.state(job_id) == "cancelled"


def test_a_parked_job_can_be_released(site: Served) -> None:
    job_id, engine = site.submit(retries=0), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    engine.end((job_id, 1), 1)
    wait_for(lambda: site.world.state(job_id) == "parked")
    assert site.call("POST", f"/v1/jobs/{job_id}/cancel").status == 409
    assert site.call("POST", f"/v1/jobs/{job_id}/release").status == 202
    wait_for(lambda: (job_id, 2) in engine.running)


@pytest.mark.parametrize("job_id", ["0", "-1", "99", "9223372036854775807"])
def test_a_job_that_is_not_there_is_not_found(refusing: Served, job_id: str) -> None:
    found = refusing.call("GET", f"/v1/jobs/{job_id}")
    assert found.status == (422 if job_id in ("0", "-1") else 404)


@pytest.mark.parametrize("job_id", ["x", "1e3", "9223372036854775808", "9" * 5000, "%00", "%ff", "%F0%9F%98%80"])
def test_what_is_no_number_is_no_job(refusing: Served, job_id: str) -> None:
    found = refusing.call("GET", f"/v1/jobs/{job_id}")
    assert found.status == 422
    assert "job_id" in found.json["error"]

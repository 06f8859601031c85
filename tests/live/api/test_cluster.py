"""Nodes, logs, events, the summary, snapshots and metrics."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.live.engines.engine import GpuReading
from fairlead.model.snapshot import Snapshot
from tests.live.api.serving import Served, served
from tests.live.conftest import MakeWorld
from tests.live.scripted import wait_for


def test_nodes_show_gpus_readings_and_jobs(site: Served) -> None:
    job_id = site.submit(name="secret")
    wait_for(lambda: site.world.state(job_id) == "running")
    site.world.engine.read(GpuReading(0, utilisation_frac=0.5, power_w=200.0, memory_used_mib=10.0, temperature_c=50.0))
    wait_for(lambda: site.call("GET", "/v1/nodes").json["nodes"][0]["gpus"][0]["power_w"] == 200.0)
    found = site.call("GET", "/v1/nodes").json
    assert found["is_fake"] is True
    (node,) = found["nodes"]
    assert (node["name"], node["state"], len(node["gpus"])) == ("n0", "up", 4)
    gpu = node["gpus"][0]
    assert (gpu["name"], gpu["number"], gpu["model"], gpu["is_drained"]) == ("n0:0", 0, "V100", False)
    assert (gpu["utilisation_frac"], gpu["temperature_c"]) == (0.5, 50.0)
    assert gpu["jobs"] == [{"id": job_id, "name": "secret", "user": "alice"}]
    assert node["gpus"][1]["power_w"] is None


def test_of_others_jobs_a_user_sees_the_number_only(site: Served) -> None:
    job_id = site.submit(name="secret")
    wait_for(lambda: site.world.state(job_id) == "running")
    for path in ("/v1/nodes", "/v1/snapshot", "/v1/events", "/v1/jobs"):
        found = site.call("GET", path, who="bob")
        assert found.status == 200
        assert b"secret" not in found.data
        assert b"alice" not in found.data
        assert b"alice" in site.call("GET", path, who="olga").data or path == "/v1/events"
    seen = site.call("GET", "/v1/nodes", who="bob").json["nodes"][0]["gpus"][0]["jobs"]
    assert seen == [{"id": job_id, "name": None, "user": None}]


def test_a_node_that_does_not_answer_is_unreachable(site: Served) -> None:
    site.world.engine.set_away(0)
    wait_for(lambda: site.call("GET", "/v1/nodes").json["nodes"][0]["state"] == "unreachable")


def test_an_operator_enables_the_gpus_that_guards_have_disabled(site: Served) -> None:
    site.world.engine.disabled |= {1, 3}
    assert site.call("POST", "/v1/nodes/n0:1/enable").status == 403
    found = site.call("POST", "/v1/nodes/n0:1/enable", who="olga")
    assert (found.status, found.json) == (200, {"name": "n0:1", "gpus": ["n0:1"]})
    assert site.call("POST", "/v1/nodes/n0/enable", who="olga").json["gpus"] == ["n0:3"]
    assert site.call("POST", "/v1/nodes/n0/enable", who="olga").json["gpus"] == []
    assert site.call("POST", "/v1/nodes/n7/enable", who="olga").status == 404
    acts = site.call("GET", "/v1/audit?what=enabled", who="adam").json["acts"]
    assert [one["about"] for one in acts] == ["n0:1", "n0", "n0"]


def test_drained_gpus_take_no_jobs_until_resumed(site: Served) -> None:
    found = site.call("POST", "/v1/nodes/n0/drain", who="olga")
    assert (found.status, found.json["gpus"]) == (202, ["n0:0", "n0:1", "n0:2", "n0:3"])
    assert site.call("GET", "/v1/summary").json["gpus"] == {"all": 4, "busy": 0, "drained": 4}
    job_id = site.submit()
    found = site.call("POST", "/v1/nodes/n0:2/resume", who="olga")
    assert (found.status, found.json) == (202, {"name": "n0:2", "gpus": ["n0:2"], "is_drained": False})
    wait_for(lambda: site.world.state(job_id) == "running")
    assert site.call("GET", f"/v1/jobs/{job_id}").json["placement"] == ["n0:2"]


@pytest.mark.parametrize("name", ["n1", "n0:4", "n0:", ":", "4", "9" * 5000, "%00", "..", "%ff"])
def test_nodes_that_are_not_there_are_not_found(refusing: Served, name: str) -> None:
    found = refusing.call("POST", f"/v1/nodes/{name}/drain", who="olga")
    assert found.status == 404
    assert set(found.json) == {"error", "hint"}


def test_the_summary_counts_jobs_gpus_and_watts(site: Served) -> None:
    running = site.submit(gpus=3)
    site.submit(gpus=4)
    site.submit(hold=True)
    site.world.engine.read(GpuReading(0, power_w=100.0))
    site.world.engine.read(GpuReading(1, power_w=50.0))
    wait_for(lambda: site.world.state(running) == "running")
    wait_for(lambda: site.call("GET", "/v1/summary").json["power_w"] == 150.0)
    found = site.call("GET", "/v1/summary").json
    assert found["jobs"] == {
        "waiting": 1, "held": 1, "backing-off": 0, "running": 1, "finished": 0, "parked": 0, "cancelled": 0,
    }  # fmt: skip
    assert found["gpus"] == {"all": 4, "busy": 3, "drained": 0}
    assert "ordering=fifo" in found["policy"]
    assert (found["trouble"], found["is_fake"]) == ("", True)


def test_the_snapshot_can_be_read_back(site: Served) -> None:
    job_id = site.submit(gpus=2)
    wait_for(lambda: site.world.state(job_id) == "running")
    snapshot = Snapshot.from_dict(site.call("GET", "/v1/snapshot").json)
    assert [(job.id, job.placement) for job in snapshot.jobs] == [(job_id, (0, 1))]


def test_the_configuration_is_shown_to_operators(site: Served) -> None:
    assert site.call("GET", "/v1/config", who="olga").json == {"poll_s": [5.0, "default"]}


def test_logs_are_read_in_pieces_with_where_the_next_begins(site: Served) -> None:
    job_id, engine = site.submit(), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    engine.write((job_id, 1), b"0123456789\xff\x00")
    engine.write((job_id, 1), b"oh no", "stderr")

    def read(query: str) -> tuple[bytes, int, int, str]:
        found = site.call("GET", f"/v1/jobs/{job_id}/log?{query}")
        assert found.status == 200
        assert found.headers["content-type"] == "application/octet-stream"
        numbers = [int(found.headers[f"x-fairlead-{name}"]) for name in ("next-offset", "attempt")]
        return found.data, numbers[0], numbers[1], found.headers["x-fairlead-over"]

    assert read("") == (b"0123456789\xff\x00", 12, 1, "0")
    assert read("offset=3&limit=4") == (b"3456", 7, 1, "0")
    assert read("offset=-4") == (b"89\xff\x00", 12, 1, "0")
    assert read("offset=-4&limit=2") == (b"89", 10, 1, "0")
    assert read("offset=-100") == (b"0123456789\xff\x00", 12, 1, "0")
    assert read("offset=12") == (b"", 12, 1, "0")
    assert read("offset=4611686018427387904") == (b"", 2**62, 1, "0")
    assert read("stream=stderr&attempt=1") == (b"oh no", 5, 1, "0")
    engine.end((job_id, 1))
    wait_for(lambda: site.world.state(job_id) == "finished")
    assert read("") == (b"0123456789\xff\x00", 12, 1, "1")
    assert read("limit=5") == (b"01234", 5, 1, "0")
    assert read("offset=12") == (b"", 12, 1, "1")


def test_the_end_of_a_long_log_is_found(site: Served) -> None:
    job_id, engine = site.submit(), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    engine.write((job_id, 1), bytes(range(256)) * 1024 + b"the end")
    found = site.call("GET", f"/v1/jobs/{job_id}/log?offset=-7")
    assert (found.data, found.headers["x-fairlead-next-offset"]) == (b"the end", str(256 * 1024 + 7))


def test_a_job_that_has_not_run_has_an_empty_log(site: Served) -> None:
    job_id = site.submit(hold=True)
    found = site.call("GET", f"/v1/jobs/{job_id}/log")
    assert (found.status, found.data) == (200, b"")
    assert (found.headers["x-fairlead-attempt"], found.headers["x-fairlead-over"]) == ("0", "0")
    assert site.call("GET", f"/v1/jobs/{job_id}/log?attempt=1").status == 404
    assert site.call("GET", f"/v1/jobs/{job_id}/log?stream=stdin").status == 422


def test_a_log_whose_node_does_not_answer_can_be_asked_for_later(site: Served) -> None:
    job_id, engine = site.submit(), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    engine.set_away(0)
    found = site.call("GET", f"/v1/jobs/{job_id}/log")
    assert (found.status, found.headers["retry-after"]) == (503, "2")
    engine.set_away(0, False)
    assert site.call("GET", f"/v1/jobs/{job_id}/log").status == 200


def test_events_are_those_of_ones_own_jobs_and_of_all_for_operators(site: Served) -> None:
    hers, his = site.submit("alice"), site.submit("bob")
    wait_for(lambda: len(site.world.engine.running) == 2)
    site.call("POST", "/v1/nodes/n0:3/drain", who="olga")
    own = site.call("GET", "/v1/events").json
    assert {event["job_id"] for event in own["events"]} == {hers}
    every = site.call("GET", "/v1/events", who="olga").json["events"]
    assert {event["job_id"] for event in every} == {hers, his, None}
    assert [e["what"] for e in site.call("GET", f"/v1/jobs/{hers}/events").json["events"]] == ["placed"]
    assert site.call("GET", f"/v1/events?after={own['next']}").json["events"] == []
    first = site.call("GET", "/v1/events?limit=1", who="olga").json
    assert first["next"] == first["events"][0]["id"]


def test_who_waits_for_events_gets_the_next_one(site: Served) -> None:
    found = []
    after = site.call("GET", "/v1/events").json["next"]
    waiter = threading.Thread(target=lambda: found.append(site.call("GET", f"/v1/events?after={after}&wait_s=60").json))
    waiter.start()
    job_id = site.submit()
    waiter.join()
    assert [event["job_id"] for event in found[0]["events"]] == [job_id]
    assert site.call("GET", f"/v1/events?after={found[0]['next']}&wait_s=0.1").json["events"] == []


def test_a_server_that_stops_does_not_wait_for_who_waits_for_events(make_world: MakeWorld) -> None:
    with served(make_world()) as site:
        found = []
        waiter = threading.Thread(target=lambda: found.append(site.call("GET", "/v1/events?wait_s=60")))
        waiter.start()
        wait_for(lambda: site.server._server.server_state.tasks)
        site.server.stop()
        waiter.join()
    assert [(answer.status, answer.json["events"]) for answer in found] == [(200, [])]


def scraped(site: Served) -> dict[tuple[str, str], float]:
    found = site.call("GET", "/metrics", who="olga")
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {}
    for family in text_string_to_metric_families(found.data.decode()):
        for one in family.samples:
            values[one.name, ",".join(f"{k}={v}" for k, v in sorted(one.labels.items()))] = one.value
    return values


def test_metrics_tell_jobs_gpus_energy_waits_and_evictions(make_world: MakeWorld) -> None:
    with served(make_world()) as site:
        engine = site.world.engine
        first, second = site.submit(gpus=4), site.submit(gpus=4)
        wait_for(lambda: (first, 1) in engine.running)
        engine.read(GpuReading(1, utilisation_frac=0.25, power_w=75.0, energy_j=1000.0))
        engine.meter((first, 1), 40.0)
        engine.evict((first, 1), "memory")
        wait_for(lambda: (second, 1) in engine.running or (first, 2) in engine.running)
        site.call("GET", f"/v1/jobs/{first}")
        site.call("GET", "/v1/jobs/77")
        wait_for(lambda: scraped(site)["fairlead_job_energy_joules_total", "fake=true"] == 40.0)
        found = scraped(site)
    assert found["fairlead_jobs", "state=running"] == 1
    assert found["fairlead_jobs", "state=waiting"] == 1
    assert found["fairlead_gpus", "state=busy"] == 4
    assert found["fairlead_gpu_power_watts", "fake=true,gpu=n0:1"] == 75.0
    assert found["fairlead_gpu_energy_joules_total", "fake=true,gpu=n0:1"] == 1000.0
    assert found["fairlead_gpu_utilization_ratio", "fake=true,gpu=n0:1"] == 0.25
    assert found["fairlead_submissions_total", ""] == 2
    assert found["fairlead_decisions_total", ""] == found["fairlead_decision_seconds_count", ""] >= 2
    assert found["fairlead_store_write_seconds_count", ""] >= 2
    assert found["fairlead_evictions_total", "why=memory"] == 1
    assert found["fairlead_job_wait_seconds_count", ""] >= 1
    assert found["fairlead_controller_trouble", ""] == 0
    assert found["fairlead_api_request_seconds_count", "code=200,method=GET,route=/v1/jobs/{job_id}"] == 1
    assert found["fairlead_api_request_seconds_count", "code=404,method=GET,route=/v1/jobs/{job_id}"] == 1


def test_metrics_follow_prometheus_conventions(site: Served) -> None:
    families = list(text_string_to_metric_families(site.call("GET", "/metrics", who="olga").data.decode()))
    names = {family.name for family in families if not family.name.endswith("_created")}
    assert all(name.startswith("fairlead_") for name in names)
    units = ("_seconds", "_joules", "_watts", "_ratio", "_bytes", "_celsius", "_dollars_per_hour")
    unitless = (
        {"fairlead_jobs", "fairlead_gpus", "fairlead_deadlines", "fairlead_controller_trouble", "fairlead_nodes"}
        | {"fairlead_guarded_gpus", "fairlead_paid_gpus", "fairlead_open_pages"}
        | {"fairlead_user_jobs", "fairlead_user_gpus", "fairlead_user_late_jobs"}
    )
    counters = {family.name for family in families if family.type == "counter"}
    assert all(name.endswith(units) or name in unitless or name in counters for name in names)
    assert all(family.documentation for family in families if family.name in names)

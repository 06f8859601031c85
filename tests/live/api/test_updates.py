"""What open pages follow: all at first, then what is new, to each what is theirs to see."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairlead.live.api.stream import MOST_STREAMS
from fairlead.live.engines.engine import GpuReading
from tests.live.api.serving import Served
from tests.live.scripted import wait_for


class Following:
    """One stream, read update by update."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer

    def next(self) -> dict[str, Any]:
        """The next update, pings left out; `{}` where the session is over."""
        kind = ""
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            if line.startswith("data: "):
                found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                return found if kind == "update" else {}


@contextmanager
def following(
    site: Served, who: str = "olga", query: str = "", headers: dict[str, str] | None = None
) -> Iterator[Following]:
    host, _, port = site.server.url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        sent = headers or {"Authorization": f"Bearer {site.token[who]}"}
        connection.request("GET", f"/v1/updates?{query}", headers=sent)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
        yield Following(answer)
    finally:
        connection.close()


def applied(known: dict[int, Any], update: dict[str, Any]) -> dict[int, Any]:
    return known | {gpu: row for gpu, *row in update["gpus"]}


def test_first_all_then_only_what_has_changed(site: Served) -> None:
    with following(site) as pages:
        first = pages.next()
        assert [gpu for gpu, *_ in first["gpus"]] == [0, 1, 2, 3]
        assert first["cluster"]["nodes"][0]["name"] == "n0"
        job_id = site.submit(gpus=2, name="train")
        known, update = applied({}, first), {"gpus": []}
        while not any(job_id in row[-1] for row in known.values()):
            update = pages.next()
            known = applied(known, update)
        assert update["labels"] == {str(job_id): ["train", "alice", "training"]}
        assert "cluster" not in update
        site.world.engine.read(GpuReading(3, utilisation_frac=0.5, power_w=70.4, temperature_c=41.0))
        while known[3][1] != 50:
            update = pages.next()
            known = applied(known, update)
        assert [gpu for gpu, *_ in update["gpus"]] == [3]
        assert known[3] == ["free", 50, None, 70, 41, "", False, []]


def test_whoever_was_away_gets_what_they_missed_and_of_another_process_everything(site: Served) -> None:
    with following(site) as pages:
        first = pages.next()
    job_id = site.submit(gpus=1)
    wait_for(lambda: (job_id, 1) in site.world.engine.running)
    query = f"epoch={first['epoch']}&version={first['version']}&event={first['last_event']}"
    with following(site, query=query) as pages:
        missed = pages.next()
    assert [gpu for gpu, *_ in missed["gpus"]] == [0]
    assert job_id in [event["job_id"] for event in missed["events"]]
    assert "cluster" not in missed
    with following(site, query=query.replace(first["epoch"], "another")) as pages:
        assert len(pages.next()["gpus"]) == 4


def test_a_user_is_told_names_and_events_of_their_own_jobs_only(site: Served) -> None:
    with following(site, "bob") as pages:
        pages.next()
        own, other = site.submit("bob", name="mine"), site.submit("alice", name="secret")
        known: dict[int, Any] = {}
        labels, events = dict[str, Any](), list[Any]()
        while {job_id for row in known.values() for job_id in row[-1]} != {own, other}:
            update = pages.next()
            known = applied(known, update)
            labels |= update["labels"]
            events += update["events"]
    assert set(labels) == {str(own)}
    assert {event["job_id"] for event in events} <= {own, None}


def test_the_stream_says_when_the_session_is_over(site: Served) -> None:
    begun = site.call("POST", "/v1/session", {"token": site.token["alice"]}, who=None)
    sent = {"Cookie": begun.headers["set-cookie"].partition(";")[0], "X-Fairlead-Session": begun.json["key"]}
    with following(site, headers=sent) as pages:
        assert pages.next()["gpus"]
        assert site.call("DELETE", "/v1/sessions", who="alice").json == {"ended": 1}
        while found := pages.next():
            assert found
    assert site.call("GET", "/v1/updates", who=None, headers=sent).status == 401


def test_nothing_is_looked_at_while_nobody_looks_and_nothing_told_while_nothing_happens(site: Served) -> None:
    updates = site.app.state.context.updates
    assert (updates.state.version, updates.pages) == (0, 0)
    with following(site) as pages:
        pages.next()
        wait_for(lambda: updates.pages == 1)
    wait_for(lambda: updates.pages == 0 and updates._ticker is None)
    version = updates.state.version
    site.submit(hold=True)
    assert updates.state.version == version
    assert updates.refresh() is True
    assert updates.refresh() is False


def test_a_user_cannot_open_pages_without_end(site: Served) -> None:
    site.app.state.context.streams["alice"] = MOST_STREAMS
    assert site.call("GET", "/v1/updates?life_s=0", who="alice").status == 429
    assert site.call("GET", "/v1/updates?life_s=0", who="bob").status == 200
    del site.app.state.context.streams["alice"]


def test_a_server_that_stops_waits_for_no_page(site: Served) -> None:
    with following(site) as pages:
        pages.next()
        site.server.stop()
        assert pages.answer.read().strip() in (b"", b": still here")

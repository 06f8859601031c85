"""Three ways for a service to tell of its latency, one interface."""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.job import service
from fairlead.node import latency
from fairlead.node.latency import HttpSource, Report, Reporter, SocketSource, Source, parse
from fairlead.node.scrape import PrometheusSource, p99_s


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="la") as made:
        yield Path(made)


def gathered(source: Source, count: int) -> list[Report]:
    found: list[Report] = []
    until_s = time.monotonic() + 5.0
    while len(found) < count and time.monotonic() < until_s:
        found += source.poll()
        time.sleep(0.005)
    return found


def test_a_call_reaches_the_agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SocketSource(folder / "s")
    monkeypatch.setenv(latency.ADDRESS, str(folder / "s"))
    monkeypatch.setenv("FAIRLEAD_JOB_ID", "web")
    monkeypatch.setattr(service, "_default", None)
    assert latency.report(0.007)
    (found,) = gathered(source, 1)
    assert (found.service, found.latency_s) == ("web", 0.007)
    service._default.close()  # type: ignore[attr-defined]
    source.close()
    assert not (folder / "s").exists()


def test_a_burst_of_reports_is_not_lost_between_two_polls(folder: Path) -> None:
    source, reporter = SocketSource(folder / "s"), Reporter(str(folder / "s"), "web")
    sent = 0
    for i in range(300):
        while not reporter.report(float(i)):
            time.sleep(0.001)  # the kernel holds only ten: a service that sends faster than we read loses some
        sent += 1
    assert [r.latency_s for r in gathered(source, sent)] == [float(i) for i in range(300)]
    reporter.close()
    source.close()


def test_without_an_agent_a_report_is_lost_and_nothing_else(folder: Path) -> None:
    reporter = Reporter(str(folder / "nobody"), "web")
    assert not reporter.report(0.1)
    reporter.close()


def test_an_http_endpoint_takes_reports_and_refuses_nonsense() -> None:
    source = HttpSource()

    def post(path: str, body: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", source.port, timeout=5)
        connection.request("POST", path, body)
        status = connection.getresponse().status
        connection.close()
        return status

    assert post("/latency", json.dumps({"service": "web", "latency_s": 0.02})) == 204
    assert post("/latency", "hello") == 400
    assert post("/other", json.dumps({"service": "web", "latency_s": 0.02})) == 400
    assert [(r.service, r.latency_s) for r in gathered(source, 1)] == [("web", 0.02)]
    source.close()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"service": "a"}', '{"service": "a", "latency_s": -1}', '{"service": "a", "latency_s": NaN}'],
)
def test_what_is_no_report_is_passed_over(text: str) -> None:
    assert parse(text, 0.0) is None


class Page:
    """A service with Prometheus metrics."""

    def __init__(self) -> None:
        self.text = ""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def histogram(*counts: int) -> str:
    bounds = ("0.005", "0.01", "0.02", "+Inf")
    return "".join(f'req_bucket{{le="{b}",path="/"}} {c}\n' for b, c in zip(bounds, counts, strict=True))


def test_a_scrape_gives_the_p99_of_what_is_new() -> None:
    page = Page()
    page.text = "# HELP req x\n" + histogram(100, 100, 100, 100)
    source = PrometheusSource(f"http://127.0.0.1:{page.server.server_port}/metrics", "web", "req", period_s=0.05)
    (first,) = gathered(source, 1)[:1]
    assert 0.0 < first.latency_s <= 0.005
    page.text = histogram(100, 100, 200, 200)
    (second,) = gathered(source, 1)[:1]
    assert 0.01 < second.latency_s <= 0.02, "the first hundred are history"
    time.sleep(0.2)
    assert source.poll() == [], "nothing new, nothing said"
    page.close()
    until_s = time.monotonic() + 5.0
    while not source.failures and time.monotonic() < until_s:
        time.sleep(0.01)
    assert source.failures
    source.close()


def test_a_summary_and_a_restart_are_understood() -> None:
    assert p99_s('req{quantile="0.99"} 0.25\nreq{quantile="0.5"} 0.1\n', "req", {})[0] == 0.25
    _, before = p99_s(histogram(100, 100, 100, 100), "req", {})
    found, _ = p99_s(histogram(0, 10, 10, 10), "req", before)
    assert found is not None
    assert 0.005 < found <= 0.01
    assert p99_s("nothing here", "req", {}) == (None, {})


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4), st.lists(st.integers(0, 1000), min_size=4, max_size=4))
def test_the_p99_lies_in_the_bucket_that_holds_it(old: list[int], new: list[int]) -> None:
    def cumulated(counts: list[int]) -> list[int]:
        return [sum(counts[: i + 1]) for i in range(4)]

    total = [a + b for a, b in zip(cumulated(old), cumulated(new), strict=True)]
    _, before = p99_s(histogram(*cumulated(old)), "req", {})
    found, _ = p99_s(histogram(*total), "req", before)
    if sum(new) == 0:
        assert found is None
        return
    assert found is not None
    edges = [0.0, 0.005, 0.01, 0.02, 0.02]
    at = next(i for i, count in enumerate(cumulated(new)) if count >= 0.99 * sum(new))
    assert edges[at] <= found <= edges[at + 1]

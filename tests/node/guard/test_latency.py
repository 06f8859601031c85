"""Two ways for a service to tell of its latency, one interface."""

from __future__ import annotations

import contextlib
import http.client
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.job import place, service
from fairlead.job.service import Reporter
from fairlead.node.guard.latency import Keys, Report, SocketSource, Source, parse
from fairlead.node.guard.scrape import Scrapes, get, p99_s, plain_s
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from tests.patience import PATIENCE_S

WEB, LOUD = AttemptId(1, 1), AttemptId(2, 1)
SECRET = "k-1.1"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="la") as made:
        yield Path(made)


def keys_of(*services: AttemptId) -> Keys:
    made = Keys()
    for one in services:
        made.add(key_of(one), one)
    return made


def key_of(one: AttemptId) -> str:
    return f"k-{one}"


def gathered(source: Source, count: int) -> list[Report]:
    found: list[Report] = []
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        found += source.poll()
        time.sleep(0.005)
    return found


def test_a_call_reaches_the_agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SocketSource(folder / "s", keys_of(WEB))
    monkeypatch.setenv(place.LATENCY, str(folder / "s"))
    monkeypatch.setenv("FAIRLEAD_LAUNCH", SECRET)
    monkeypatch.setattr(service, "_default", None)
    assert service.report(0.007)
    (found,) = gathered(source, 1)
    assert (found.service, found.latency_s) == (WEB, 0.007)
    service._default.close()  # type: ignore[attr-defined]
    source.close()
    assert not (folder / "s").exists()


def test_a_burst_of_reports_is_not_lost_between_two_polls(folder: Path) -> None:
    source, reporter = SocketSource(folder / "s", keys_of(WEB)), Reporter(str(folder / "s"), SECRET)
    sent = 0
    for i in range(300):
        while not reporter.report(float(i)):
            time.sleep(0.001)  # the kernel holds only ten: a service that sends faster than we read loses some
        sent += 1
    assert [r.latency_s for r in gathered(source, sent)] == [float(i) for i in range(300)]
    reporter.close()
    source.close()


def test_without_an_agent_a_report_is_lost_and_nothing_else(folder: Path) -> None:
    reporter = Reporter(str(folder / "nobody"), SECRET)
    assert not reporter.report(0.1)
    reporter.close()


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "7", '"x"', "null", '{"key": "k-1.1"}', '{"latency_s": 1}', '{"key": [], "latency_s": 1}',
        '{"key": "k-1.1", "latency_s": -1}', '{"key": "k-1.1", "latency_s": NaN}',
        '{"key": "k-1.1", "latency_s": Infinity}', '{"key": "k-1.1", "latency_s": 1e999}',
        '{"key": "k-1.1", "latency_s": %s}' % ("9" * 4000), '{"key": "k-1.1", "latency_s": -%s}' % ("9" * 4000),
        '{"key": "k-1.1", "latency_s": [1]}', '{"key": "other", "latency_s": 1}', "[" * 4000, '{"a":' * 700,
        '{"service": "web", "latency_s": 9}',
    ],
)  # fmt: skip
def test_what_is_no_report_is_passed_over_and_the_next_one_is_heard(folder: Path, text: str) -> None:
    keys = keys_of(WEB)
    assert parse(text, 0.0, keys) is None
    source = SocketSource(folder / "s", keys)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as anybody:
        for message in (text.encode(), b"\xff\x00" * 900, b""):
            anybody.sendto(message, str(folder / "s"))
    reporter = Reporter(str(folder / "s"), SECRET)
    assert reporter.report(0.5)
    assert [(r.service, r.latency_s) for r in gathered(source, 1)] == [(WEB, 0.5)]
    assert source.refused == 3
    reporter.close()
    source.close()


def test_a_service_that_has_gone_is_not_heard_and_a_loud_one_takes_nobodys_room(folder: Path) -> None:
    keys = keys_of(WEB, LOUD)
    source = SocketSource(folder / "s", keys)
    web, loud = Reporter(str(folder / "s"), SECRET), Reporter(str(folder / "s"), key_of(LOUD))
    assert web.report(0.5)
    for i in range(1500):
        while not loud.report(float(i)):
            time.sleep(0.001)
    found: list[Report] = []
    until_s = time.monotonic() + PATIENCE_S
    while not any(r.latency_s == 1499.0 for r in found) and time.monotonic() < until_s:
        found += source.poll()
    assert [r.latency_s for r in found if r.service == WEB] == [0.5]
    assert len(found) < 1501, "of the loud one the newest are kept"
    keys.drop(WEB)
    assert web.report(0.5)
    assert loud.report(0.1)
    assert {r.service for r in gathered(source, 1)} == {LOUD}
    for one in (web, loud):
        one.close()
    source.close()


class Page:
    """A service with Prometheus metrics."""

    def __init__(self) -> None:
        self.text = ""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(302 if self.path == "/moved" else 200)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()
                with contextlib.suppress(OSError):
                    for _ in range(10_000 if self.path in ("/long", "/slow") else 0):
                        self.wfile.write(b"x" * (1 if self.path == "/slow" else 1 << 20))
                        time.sleep(0.01 if self.path == "/slow" else 0.0)
                    self.wfile.write(page.text.encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def order(self, metric: str = "") -> Order:
        url = f"http://127.0.0.1:{self.server.server_port}/metrics"
        return Order(WEB, ("serve",), kind="service", slo_s=0.1, latency_url=url, latency_metric=metric)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def histogram(*counts: int) -> str:
    bounds = ("0.005", "0.01", "0.02", "+Inf")
    return "".join(f'req_bucket{{le="{b}",path="/"}} {c}\n' for b, c in zip(bounds, counts, strict=True))


def test_a_scrape_gives_the_p99_of_what_is_new() -> None:
    page = Page()
    page.text = "# HELP req x\n" + histogram(100, 100, 100, 100)
    source = Scrapes(period_s=0.05)
    source.add(page.order("req"))
    (first,) = gathered(source, 1)[:1]
    assert 0.0 < first.latency_s <= 0.005
    page.text = histogram(100, 100, 200, 200)
    (second,) = gathered(source, 1)[:1]
    assert 0.01 < second.latency_s <= 0.02, "the first hundred are history"
    time.sleep(0.2)
    assert source.poll() == [], "nothing new, nothing said"
    page.close()
    until_s = time.monotonic() + PATIENCE_S
    while not source.failures(WEB) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert source.failures(WEB)
    source.close()
    assert source.poll() == []


def test_a_page_may_be_just_a_number() -> None:
    page = Page()
    page.text = '{"latency_s": 0.25}'
    source = Scrapes(period_s=0.05)
    source.add(page.order())
    assert gathered(source, 1)[0].latency_s == 0.25
    page.close()
    source.close()
    assert [plain_s(text) for text in ("0.5", "0", "null", '{"latency_s": null}')] == [0.5, 0.0, None, None]


@pytest.mark.parametrize("text", ["", "x", "-1", "NaN", "[1]", '"1"', "1e999", '{"latency_s": "1"}', "9" * 400, "true"])
def test_a_page_that_tells_no_latency_is_a_failure(text: str) -> None:
    with pytest.raises(ValueError, match=r"no latency|Expecting|nvalid"):
        plain_s(text)


@pytest.mark.parametrize(("path", "said"), [("/long", "too long"), ("/slow", "too slow"), ("/moved", "status 302")])
def test_a_page_that_is_long_slow_or_elsewhere_is_given_up(path: str, said: str) -> None:
    page = Page()
    with pytest.raises(http.client.HTTPException, match=said):
        get(f"http://127.0.0.1:{page.server.server_port}{path}", 0.3)
    page.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:80/metrics", "https://127.0.0.1:80/", "file:///etc/passwd", "http://127.0.0.1/metrics", "",
        "http://user@127.0.0.1:80/", "http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:80/a b",
        "http://127.0.0.1.example.org:80/", "http://127.0.0.1:80/\r\nHost: x",
    ],
)  # fmt: skip
def test_only_pages_of_the_services_own_machine_are_asked_for(url: str) -> None:
    with pytest.raises(InputError, match="no page of the service's own machine"):
        Order(WEB, ("serve",), kind="service", slo_s=0.1, latency_url=url)


def test_a_summary_and_a_restart_are_understood() -> None:
    assert p99_s('req{quantile="0.99"} 0.25\nreq{quantile="0.5"} 0.1\n', "req", {})[0] == 0.25
    _, before = p99_s(histogram(100, 100, 100, 100), "req", {})
    found, _ = p99_s(histogram(0, 10, 10, 10), "req", before)
    assert found is not None
    assert 0.005 < found <= 0.01
    assert p99_s("nothing here", "req", {}) == (None, {})


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e999", "9" * 5000, "x", ""])
def test_a_scrape_takes_only_latencies_and_counts(value: str) -> None:
    assert p99_s(f'req{{quantile="0.99"}} {value}\n', "req", {})[0] is None
    assert p99_s(f'req_bucket{{le="0.1"}} {value}\n', "req", {}) == (None, {})
    found, _ = p99_s(f'req_bucket{{le="{value}"}} 1\nreq_bucket{{le="0.1"}} 1\n', "req", {})
    assert found is not None


def test_a_page_of_one_long_word_takes_no_time() -> None:
    words = f"req_bucket{{{'a' * 4000}}} 1\n" * 200 + "a" * (1 << 20)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(p99_s(words, "req", {})), daemon=True)
    thread.start()
    thread.join(20.0)  # it was minutes, all with the interpreter's lock held
    assert found == [(None, {})]


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

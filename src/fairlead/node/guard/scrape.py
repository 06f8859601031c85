"""A service's latency from its own web page: a number, or the p99 of a histogram or summary for Prometheus.

Only pages of this machine are asked for, by GET, without proxies or redirects, within a time and a size. What a job
could ask for itself, the agent may ask for it; nothing of an answer but a number of seconds goes any further.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from fairlead.node.guard.latency import MOST_LATENCY_S, Report
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order

_MOST_BYTES = 1 << 20
_PIECE = 1 << 16
_LONGEST_LINE = 4096
_QUANTILE = 0.99


class Scrapes:
    """A `Source`: the pages of all services here that have one, each asked by a thread of its own."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, period_s: float = 1.0, timeout_s: float = 0.5
    ) -> None:
        self._clock, self._period_s, self._timeout_s = clock, period_s, timeout_s
        self._scrapes: dict[AttemptId, _Scrape] = {}

    def add(self, order: Order) -> None:
        """A service has come: ask for its page from now on, if it has one."""
        if order.latency_url is not None and order.id not in self._scrapes:
            self._scrapes[order.id] = _Scrape(order, self._clock, self._period_s, self._timeout_s)

    def drop(self, service: AttemptId) -> None:
        """It has gone; a page that is under way is not waited for."""
        scrape = self._scrapes.pop(service, None)
        if scrape is not None:
            scrape.stop()

    def failures(self, service: AttemptId) -> int:
        """Pages of a service in a row that could not be had or said nothing."""
        return self._scrapes[service].failures

    def poll(self) -> list[Report]:
        """What the pages have said since the last time."""
        return [report for scrape in list(self._scrapes.values()) for report in scrape.take()]

    def close(self) -> None:
        """Ask for no page any more."""
        for service in list(self._scrapes):
            self.drop(service)


class _Scrape:
    """The thread that asks for one service's page."""

    def __init__(self, order: Order, clock: Callable[[], float], period_s: float, timeout_s: float) -> None:
        self.failures = 0
        self._order, self._clock, self._timeout_s = order, clock, timeout_s
        self._before: Mapping[float, float] = {}
        self._lock = threading.Lock()
        self._found: list[Report] = []
        self._stopping = threading.Event()
        threading.Thread(target=self._run, args=(period_s,), name=f"latency-{order.id}", daemon=True).start()

    def take(self) -> list[Report]:
        with self._lock:
            found, self._found = self._found, []
        return found

    def stop(self) -> None:
        self._stopping.set()

    def _run(self, period_s: float) -> None:
        while not self._stopping.is_set():
            try:
                latency_s = self._latency_s()
                self.failures = 0
            except (OSError, http.client.HTTPException, ValueError, RecursionError):
                latency_s = None
                self.failures += 1
            if latency_s is not None:
                with self._lock:
                    self._found.append(Report(self._order.id, latency_s, self._clock()))
            self._stopping.wait(period_s)

    def _latency_s(self) -> float | None:
        text = get(self._order.latency_url or "", self._timeout_s)
        if not self._order.latency_metric:
            return plain_s(text)
        latency_s, self._before = p99_s(text, self._order.latency_metric, self._before)
        return latency_s


def get(url: str, timeout_s: float) -> str:
    """The text of a page (an order takes those of this machine only); an error where it is too long or too slow."""
    parts = urlsplit(url)
    until_s = time.monotonic() + timeout_s
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("GET", parts._replace(scheme="", netloc="", fragment="").geturl() or "/")
        answer = connection.getresponse()
        if answer.status != 200:
            raise http.client.HTTPException(f"status {answer.status}")
        text = b""
        while piece := answer.read1(_PIECE):
            text += piece
            if len(text) > _MOST_BYTES or time.monotonic() > until_s:
                raise http.client.HTTPException("too long, or too slow")
    return text.decode(errors="replace")


def plain_s(text: str) -> float | None:
    """A latency in seconds, as a number or as {"latency_s": 0.006}; None where there is none yet (null)."""
    found = json.loads(text, parse_int=float)
    if isinstance(found, dict):
        found = found.get("latency_s")
    if found is None:
        return None
    if not isinstance(found, float) or not 0.0 <= found <= MOST_LATENCY_S:
        raise ValueError("no latency")
    return found


def p99_s(text: str, metric: str, before: Mapping[float, float]) -> tuple[float | None, Mapping[float, float]]:
    """The p99 in a page of metrics, and the buckets to compare the next page with; None where nothing is new.

    Of a histogram the buckets' growth since the page before counts, so the p99 is of recent requests, to within a
    bucket (linear inside it, as Prometheus does). A summary's quantile is taken as it is, however old.
    """
    from prometheus_client.parser import text_string_to_metric_families

    # A page may be long, and all but a few lines of it are about something else.
    lines = [line for line in text.splitlines() if line.startswith(metric) and len(line) <= _LONGEST_LINE]
    buckets: dict[float, float] = {}
    told: float | None = None
    for line in lines:
        try:
            samples = [one for family in text_string_to_metric_families(line + "\n") for one in family.samples]
        except ValueError:
            continue  # a line that is none costs nobody the others
        for sample in samples:
            if not 0.0 <= sample.value < math.inf:
                continue  # no count and no latency is that
            if sample.name == f"{metric}_bucket":
                bound = _number(sample.labels.get("le", ""))
                if bound is not None and bound >= 0.0:
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value  # several label sets are one service
            elif sample.name == metric and _number(sample.labels.get("quantile", "")) == _QUANTILE:
                told = sample.value
    if not buckets:
        return told, before
    grown = {bound: count - before.get(bound, 0.0) for bound, count in buckets.items()}
    if any(count < 0.0 for count in grown.values()):
        grown = buckets  # the service was restarted
    return _quantile_of(grown), buckets


def _quantile_of(buckets: Mapping[float, float]) -> float | None:
    bounds = sorted(buckets)
    total = buckets[bounds[-1]]
    if total <= 0.0:
        return None
    wanted, low_s, below = _QUANTILE * total, 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if math.isinf(bound):
                return low_s
            inside = buckets[bound] - below
            return low_s + (bound - low_s) * ((wanted - below) / inside if inside > 0.0 else 1.0)
        low_s, below = bound, buckets[bound]
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

"""A service's latency from its own Prometheus metrics: the p99 of a histogram or a summary, scraped every so often."""

from __future__ import annotations

import math
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from urllib.error import URLError

from fairlead.node.latency import Report

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_MOST_BYTES = 8 << 20


class PrometheusSource:
    """Scrapes one service. `metric` is the histogram's or summary's name, in seconds and without `_bucket`.

    Of a histogram the buckets' growth since the scrape before counts, so the p99 is of recent requests, to within a
    bucket (linear inside it, as Prometheus does). A summary's quantile is taken as it is, however old.
    """

    def __init__(
        self,
        url: str,
        service: str,
        metric: str,
        *,
        period_s: float = 1.0,
        timeout_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = 0
        """Scrapes in a row that failed."""
        self._url, self._service, self._metric = url, service, metric
        self._timeout_s, self._clock = timeout_s, clock
        self._before: Mapping[float, float] = {}
        self._lock = threading.Lock()
        self._found: list[Report] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(period_s,), name="latency-scrape", daemon=True)
        self._thread.start()

    def poll(self) -> list[Report]:
        """What the scrapes have found."""
        with self._lock:
            found, self._found = self._found, []
        return found

    def close(self) -> None:
        """Scrape no more."""
        self._stopping.set()
        self._thread.join(self._timeout_s + 1.0)

    def _run(self, period_s: float) -> None:
        while not self._stopping.is_set():
            self._scrape()
            self._stopping.wait(period_s)

    def _scrape(self) -> None:
        try:
            with urllib.request.urlopen(self._url, timeout=self._timeout_s) as answer:
                text = answer.read(_MOST_BYTES).decode(errors="replace")
        except (OSError, URLError, ValueError):
            self.failures += 1
            return
        self.failures = 0
        latency_s, self._before = p99_s(text, self._metric, self._before)
        if latency_s is not None:
            with self._lock:
                self._found.append(Report(self._service, latency_s, self._clock()))


def p99_s(
    text: str, metric: str, before: Mapping[float, float], quantile: float = 0.99
) -> tuple[float | None, Mapping[float, float]]:
    """The p99 in a page of metrics, and the buckets to compare the next page with; None where nothing is new."""
    buckets: dict[float, float] = {}
    told: float | None = None
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[1] not in (metric, f"{metric}_bucket"):
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        value = _number(match[3])
        if value is None:
            continue
        if match[1] != metric and "le" in labels:
            bound = _number(labels["le"])
            if bound is not None:
                buckets[bound] = buckets.get(bound, 0.0) + value  # several label sets are one service
        elif match[1] == metric and labels.get("quantile") == f"{quantile:g}" and not math.isnan(value):
            told = value
    if not buckets:
        return told, before
    grown = {bound: count - before.get(bound, 0.0) for bound, count in buckets.items()}
    if any(count < 0.0 for count in grown.values()):
        grown = buckets  # the service was restarted
    return _quantile_of(grown, quantile), buckets


def _quantile_of(buckets: Mapping[float, float], quantile: float) -> float | None:
    bounds = sorted(buckets)
    total = buckets[bounds[-1]]
    if total <= 0.0:
        return None
    wanted, low_s, below = quantile * total, 0.0, 0.0
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
        return float(text.replace("Inf", "inf"))
    except ValueError:
        return None

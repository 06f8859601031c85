"""What Prometheus scrapes: base units, ratios from 0 to 1, `_total` for what only grows.

Counters begin at 0 with the process. What is metered on made-up GPUs is marked `fake="true"`, so that nobody adds
those joules to real ones.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.live.controller import Controller
from fairlead.live.database import StoreError
from fairlead.live.livejob import State
from fairlead.live.standing import GPU_STATES, gpu_states
from fairlead.live.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MILLISECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_HOURS = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 7 * 86400.0)
_READINGS: tuple[tuple[str, str, str, type[Metric]], ...] = (
    ("fairlead_gpu_power_watts", "What a GPU draws.", "power_w", GaugeMetricFamily),
    ("fairlead_gpu_energy_joules", "What a GPU's meter has counted.", "energy_j", CounterMetricFamily),
    ("fairlead_gpu_utilization_ratio", "How busy a GPU is.", "utilisation_frac", GaugeMetricFamily),
)


class Metrics:
    """The numbers of one controller, in a registry of their own."""

    def __init__(self, controller: Controller, store: Store) -> None:
        self.registry = made = CollectorRegistry()
        self.submissions = Counter("fairlead_submissions_total", "Jobs accepted.", registry=made)
        self.requests = Histogram(
            "fairlead_api_request_seconds",
            "How long requests took to answer.",
            ("route", "method", "code"),
            buckets=_MILLISECONDS,
            registry=made,
        )
        writes = Histogram(
            "fairlead_store_write_seconds", "How long commits took.", buckets=_MILLISECONDS, registry=made
        )
        self._decisions = Counter("fairlead_decisions_total", "Decisions of the policy.", registry=made)
        self._decision_s = Histogram(
            "fairlead_decision_seconds", "How long decisions took.", buckets=_MILLISECONDS, registry=made
        )
        made.register(_Standing(controller, store, made))
        store.database.on_commit = writes.observe
        controller.on_decision = self._decided

    def text(self) -> bytes:
        """As Prometheus reads it. Asks the database: not for the event loop."""
        return generate_latest(self.registry)

    def _decided(self, took_s: float) -> None:
        self._decisions.inc()
        self._decision_s.observe(took_s)


class _Standing(Collector):
    """How things stand, looked up when asked."""

    def __init__(self, controller: Controller, store: Store, registry: CollectorRegistry) -> None:
        self._controller, self._store = controller, store
        self._fake = "true" if controller.engine.is_fake else "false"
        self._waits = Histogram(
            "fairlead_job_wait_seconds",
            "From submission until a job was first given GPUs.",
            buckets=_HOURS,
            registry=registry,
        )
        self._evictions = Counter(
            "fairlead_evictions_total", "Jobs sent back into the queue.", ("why",), registry=registry
        )
        self._told = store.last_event()
        """The last event that the two above have counted."""
        self._energy_j = 0.0

    def describe(self) -> Iterable[Metric]:
        """Nothing: then the registry does not look while it registers."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Whatever is known; a database that does not answer leaves its part out."""
        yield self._trouble()
        yield self._gpus()
        yield from self._readings()
        with suppress(StoreError):
            self._catch_up()
            yield self._jobs()
            yield self._job_energy()

    def _trouble(self) -> Metric:
        help_ = "1 while the control loop cannot do its work."
        return GaugeMetricFamily("fairlead_controller_trouble", help_, value=float(bool(self._controller.trouble)))

    def _jobs(self) -> Metric:
        found = self._store.counts()
        family = GaugeMetricFamily("fairlead_jobs", "Jobs in each state.", labels=("state",))
        for state in State:
            family.add_metric((str(state),), found.get(str(state), 0))
        return family

    def _gpus(self) -> Metric:
        family = GaugeMetricFamily("fairlead_gpus", "GPUs in each state.", labels=("state",))
        tally = Tally(gpu_states(self._controller))
        for state in GPU_STATES:
            family.add_metric((state,), tally[state])
        return family

    def _readings(self) -> Iterable[Metric]:
        readings, name_of = self._controller.poll.readings, self._controller.engine.cluster.gpu_name
        for name, help_, field, kind in _READINGS:
            family: Any = kind(name, help_, labels=("gpu", "fake"))  # type: ignore[call-arg]
            for gpu, reading in sorted(readings.items()):
                value = getattr(reading, field)
                if value is not None:
                    family.add_metric((name_of(gpu), self._fake), value)
            yield family

    def _job_energy(self) -> Metric:
        """Attempts that are over by the books, others by the meter. Never less than was told: counters only grow."""
        statuses = self._controller.poll.attempts
        ended_j = self._store.ended_energy_j()
        found = (statuses.get(attempt.key) for attempt in self._store.open_attempts())
        running_j = sum(status.energy_j or 0.0 for status in found if status is not None)
        self._energy_j = max(self._energy_j, ended_j + running_j)
        family = CounterMetricFamily("fairlead_job_energy_joules", "What jobs have used.", labels=("fake",))
        family.add_metric((self._fake,), self._energy_j)
        return family

    def _catch_up(self) -> None:
        until = self._store.last_event()
        waits, evictions = self._store.first_waits(self._told, until), self._store.evictions(self._told, until)
        self._told = until
        for wait_s in waits:
            self._waits.observe(wait_s)
        for why, jobs in evictions.items():
            self._evictions.labels(why).inc(jobs)

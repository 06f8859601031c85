"""What Prometheus scrapes: base units, ratios from 0 to 1, `_total` for what only grows.

What is metered on made-up GPUs is marked `fake="true"`, so that nobody adds those joules to real ones. docs/metrics.md
says what each metric counts and what it does not; a test holds the two together.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.live.control.controller import Controller
from fairlead.live.control.node_states import GPU_STATES, gpu_states, node_state
from fairlead.live.health import Health
from fairlead.live.jobs.deadlines import WATCHED
from fairlead.live.jobs.states import State
from fairlead.live.prices import paid_nodes, usd_per_h
from fairlead.live.storage.database import StoreError
from fairlead.live.storage.store import Store
from fairlead.live.usage import Usage
from fairlead.policy.guarding import State as GuardState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MILLISECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_HOURS = (1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 86400.0, 7 * 86400.0)
_MIB = 1024.0 * 1024.0
_READINGS: tuple[tuple[str, str, str, float, type[Metric]], ...] = (
    ("fairlead_gpu_power_watts", "What a GPU draws.", "power_w", 1.0, GaugeMetricFamily),
    ("fairlead_gpu_energy_joules", "What a GPU's meter has counted.", "energy_j", 1.0, CounterMetricFamily),
    ("fairlead_gpu_utilization_ratio", "How busy a GPU is.", "utilisation_frac", 1.0, GaugeMetricFamily),
    ("fairlead_gpu_memory_used_bytes", "Memory in use on a GPU.", "memory_used_mib", _MIB, GaugeMetricFamily),
    ("fairlead_gpu_temperature_celsius", "How warm a GPU is.", "temperature_c", 1.0, GaugeMetricFamily),
)
"""Name, help, the field of a reading, what to multiply it by, kind."""
NODE_STATES = ("up", "asleep", "waking", "unreachable")


class Metrics:
    """The numbers of one controller, in a registry of their own."""

    def __init__(self, controller: Controller, store: Store, health: Health, usage: Usage) -> None:
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
        self._standing = _Standing(controller, store, health, made)
        made.register(self._standing)
        made.register(_Users(controller, usage))
        self.pages: Callable[[], int] = lambda: 0
        """How many are open."""
        open_pages = Gauge("fairlead_open_pages", "Pages that follow the cluster now.", registry=made)
        open_pages.set_function(lambda: self.pages())
        store.database.on_commit = writes.observe
        controller.decisions.on_decision = self._decided

    def text(self) -> bytes:
        """As Prometheus reads it. Asks the database: not for the event loop."""
        with suppress(StoreError):
            self._standing.catch_up()  # before the registry reads the counters that it raises
        return generate_latest(self.registry)

    def _decided(self, took_s: float) -> None:
        self._decisions.inc()
        self._decision_s.observe(took_s)


class _Standing(Collector):
    """How things stand, looked up when asked."""

    def __init__(self, controller: Controller, store: Store, health: Health, registry: CollectorRegistry) -> None:
        self._controller, self._store, self._health = controller, store, health
        self._fake = "true" if controller.engine.is_fake else "false"
        self._waits = Histogram(
            "fairlead_job_wait_seconds",
            "From submission until a job was first given GPUs.",
            buckets=_HOURS,
            registry=registry,
        )
        self._evictions = Counter(
            "fairlead_evictions_total", "Jobs that a node's guard ended, by its reason.", ("why",), registry=registry
        )
        self._preemptions = Counter(
            "fairlead_preemptions_total", "Running jobs whose GPUs the policy took for others.", registry=registry
        )
        self._missed = Counter("fairlead_missed_deadlines_total", "Jobs that missed their deadline.", registry=registry)
        self._told = store.last_event()
        """The last event that the four above have counted."""
        self._energy_j = 0.0

    def describe(self) -> Iterable[Metric]:
        """Nothing: then the registry does not look while it registers."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Whatever is known; a database that does not answer leaves its part out."""
        yield from self._trouble()
        yield self._gpus()
        yield self._nodes()
        yield self._guards()
        yield from self._costs()
        yield self._deadlines()
        yield from self._readings()
        with suppress(StoreError):
            yield self._jobs()
            yield self._job_energy()

    def _trouble(self) -> Iterable[Metric]:
        help_ = "1 while the controller cannot do its work; /health says why."
        yield GaugeMetricFamily("fairlead_controller_trouble", help_, value=float(bool(self._health.reasons())))
        help_ = "Since the control loop last came round."
        yield GaugeMetricFamily("fairlead_loop_age_seconds", help_, value=self._health.loop_age_s)

    def _jobs(self) -> Metric:
        found = self._store.counts()
        family = GaugeMetricFamily("fairlead_jobs", "Jobs in each state.", labels=("state",))
        for state in State:
            family.add_metric((str(state),), found.get(str(state), 0))
        return family

    def _deadlines(self) -> Metric:
        counts = self._controller.lifecycle.deadlines.counts
        help_ = "Jobs with a deadline that are not over, by how they stand to it."
        family = GaugeMetricFamily("fairlead_deadlines", help_, labels=("state",))
        for state in WATCHED:
            family.add_metric((str(state),), counts.get(state, 0))
        return family

    def _gpus(self) -> Metric:
        family = GaugeMetricFamily("fairlead_gpus", "GPUs in each state.", labels=("state",))
        tally = Tally(gpu_states(self._controller))
        for state in GPU_STATES:
            family.add_metric((state,), tally[state])
        return family

    def _nodes(self) -> Metric:
        family = GaugeMetricFamily("fairlead_nodes", "Nodes in each state.", labels=("state",))
        nodes = len(self._controller.cluster.nodes)
        tally = Tally(node_state(self._controller, node) for node in range(nodes))
        for state in NODE_STATES:
            family.add_metric((state,), tally[state])
        return family

    def _guards(self) -> Metric:
        help_ = "GPUs whose guard is in each state; a GPU without a service is in init."
        family = GaugeMetricFamily("fairlead_guarded_gpus", help_, labels=("state",))
        tally = Tally(reading.guard_state for reading in self._controller.poll.readings.values())
        for state in GuardState:
            family.add_metric((str(state),), tally[str(state)])
        return family

    def _costs(self) -> Iterable[Metric]:
        nodes = self._controller.cluster.nodes
        paid = sum(nodes[node].gpus for node in paid_nodes(self._controller))
        yield GaugeMetricFamily("fairlead_paid_gpus", "GPUs that are paid for, busy or not.", value=float(paid))
        price = usd_per_h(self._controller)
        if price is not None:
            help_ = "What the GPUs that are paid for cost, by list price."
            yield GaugeMetricFamily("fairlead_cost_dollars_per_hour", help_, value=price)

    def _readings(self) -> Iterable[Metric]:
        readings, cluster = self._controller.poll.readings, self._controller.cluster
        named = [(cluster.gpu_name(gpu), reading) for gpu, reading in sorted(readings.items())]
        for name, help_, field, factor, kind in _READINGS:
            family: Any = kind(name, help_, labels=("gpu", "fake"))  # type: ignore[call-arg]
            for gpu_name, reading in named:
                value = getattr(reading, field)
                if value is not None:
                    family.add_metric((gpu_name, self._fake), value * factor)
            yield family
        help_ = "Memory of a GPU in all."
        sizes = GaugeMetricFamily("fairlead_gpu_memory_bytes", help_, labels=("gpu", "fake"))
        for gpu in range(cluster.gpus):
            sizes.add_metric((cluster.gpu_name(gpu), self._fake), cluster.gpu_model(gpu).memory_mib * _MIB)
        yield sizes

    def _job_energy(self) -> Metric:
        """Attempts that are over by the books, others by the meter. Never less than was told: counters only grow."""
        statuses = self._controller.poll.attempts
        ended_j = self._store.ended_energy_j()
        found = (statuses.get(attempt.id) for attempt in self._store.open_attempts())
        running_j = sum(status.energy_j or 0.0 for status in found if status is not None)
        self._energy_j = max(self._energy_j, ended_j + running_j)
        family = CounterMetricFamily("fairlead_job_energy_joules", "What jobs have used.", labels=("fake",))
        family.add_metric((self._fake,), self._energy_j)
        return family

    def catch_up(self) -> None:
        """Count what has happened since the last time."""
        until = self._store.last_event()
        waits, evictions = self._store.first_waits(self._told, until), self._store.evictions(self._told, until)
        missed, preempted = (
            count(self._told, until) for count in (self._store.missed_deadlines, self._store.preemptions)
        )
        self._told = until
        self._preemptions.inc(preempted)
        self._missed.inc(missed)
        for wait_s in waits:
            self._waits.observe(wait_s)
        for why, jobs in evictions.items():
            self._evictions.labels(why).inc(jobs)


class _Users(Collector):
    """What each user has and has had."""

    def __init__(self, controller: Controller, usage: Usage) -> None:
        self._usage = usage
        self._fake = "true" if controller.engine.is_fake else "false"
        self._told: dict[tuple[str, str], float] = {}

    def describe(self) -> Iterable[Metric]:
        """Nothing: then the registry does not look while it registers."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Nothing where the database does not answer."""
        with suppress(StoreError):
            yield from self._families()

    def _families(self) -> Iterable[Metric]:
        users = sorted(self._usage.by_user().values(), key=lambda one: one.user)
        jobs = GaugeMetricFamily("fairlead_user_jobs", "A user's jobs in each state.", labels=("user", "state"))
        gpus = GaugeMetricFamily("fairlead_user_gpus", "GPUs that a user's jobs hold now.", labels=("user",))
        late_help = "A user's jobs that are past their deadline and not over."
        late = GaugeMetricFamily("fairlead_user_late_jobs", late_help, labels=("user",))
        held = CounterMetricFamily("fairlead_user_gpu_seconds", "GPU time that jobs have held.", labels=("user",))
        energy = CounterMetricFamily("fairlead_user_energy_joules", "What jobs have used.", labels=("user", "fake"))
        for one in users:
            for state in State:
                jobs.add_metric((one.user, str(state)), one.jobs.get(str(state), 0))
            gpus.add_metric((one.user,), one.gpus)
            late.add_metric((one.user,), one.late_jobs)
            held.add_metric((one.user,), self._grown(one.user, "gpu_s", one.gpu_s))
            energy.add_metric((one.user, self._fake), self._grown(one.user, "energy_j", one.energy_j))
        yield from (jobs, gpus, late, held, energy)

    def _grown(self, user: str, what: str, value: float) -> float:
        """Never less than was told: counters only grow, and a job's last reading may be in no book for a moment."""
        self._told[user, what] = max(value, self._told.get((user, what), 0.0))
        return self._told[user, what]

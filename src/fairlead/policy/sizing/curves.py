"""What is known of how jobs scale: learnt from what they report, shared by the sizings that need it.

Jobs of one profile (and, where they keep it, one batch) are of one kind. Of a kind that reports iterations the goodput
model is fitted to them; of one that reports only its goodput, widths that were never tried are guessed from those that
were. A kind that reports nothing scales as its profile declares.

Nothing is known of widths far beyond those tried: a kind may use at most twice the widest so far, so that it finds out
in steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fairlead.model.adaptive_batch import AdaptiveBatch, Epoch
from fairlead.model.goodput import BatchLimits, GradientStats, PerfParams
from fairlead.model.goodput_fit import Fit, StepMeasurement, fit
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.model.training import FixedBatch, Training, packed_nodes
from fairlead.policy.sources import Report
from fairlead.policy.view import JobState, View

_REFIT = 1.15
"""A fit is made anew when there are so many times more measurements."""
_HOPE = 0.9
"""Where a kind reports its goodput only, widths beyond those tried are taken to gain this power of the GPUs."""

KindKey = tuple[str, int]


def usual_widths(node_gpus: int, widest: int) -> tuple[int, ...]:
    """Powers of two within a node, then whole nodes, ever further apart: what packs well."""
    inside = [2**i for i in range(node_gpus.bit_length()) if 2**i < node_gpus]
    whole = [node_gpus * n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)]
    return tuple(k for k in (*inside, *whole) if k <= widest) or (1,)


def all_widths(node_gpus: int, widest: int) -> tuple[int, ...]:
    """Every width within a node, then whole nodes."""
    whole = range(node_gpus, widest + 1, node_gpus)
    return tuple(k for k in (*range(1, node_gpus), *whole) if k <= widest) or (1,)


@dataclass
class Kind:
    """One kind of job, and what has been seen of it."""

    profile: Profile
    batch: int
    prior: Training | None = None
    """What was measured beforehand; then nothing needs to be tried."""
    epochs: int = 1
    widest: int = 0
    samples: dict[int, float] = field(default_factory=dict)
    seen: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """Measured goodput by epoch, replicas and nodes."""
    stats: dict[int, GradientStats] = field(default_factory=dict)
    limits: BatchLimits | None = None
    steps: dict[tuple[int, int, int, int], StepMeasurement] = field(default_factory=dict)
    fit: Fit | None = None
    asked: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """Goodputs that were asked for since the last report, by epoch, replicas and nodes."""
    _model: AdaptiveBatch | None = None

    @property
    def declared(self) -> bool:
        """Whether all that is known of it is what its profile declares."""
        return self.prior is None and not self.seen

    @property
    def limit(self) -> int:
        """The widest that may be tried."""
        return 1 << 30 if self.prior is not None or self.profile.training is None else max(1, 2 * self.widest)

    def claim(self, profile: Profile, prior: Training | None) -> None:
        """A job of it is here, with the profile that a recalled kind lacks."""
        self.profile, self.prior = profile, prior
        self.asked = {at: self._goodput(*at) for at in self.asked}

    def learn(self, width: int, report: Report) -> bool:
        """Take a report in; tells whether it was new."""
        key = (report.epoch, width, report.nodes)
        if key in self.seen:
            return False
        self.epochs = report.epochs
        self.samples[report.epoch] = report.samples
        self.seen[key] = report.goodput
        self.widest = max(self.widest, width)
        self.asked.clear()
        steps = report.steps
        if steps is not None:
            self.limits = steps.limits
            self.stats[report.epoch] = steps.stats
            shape = (report.nodes, width, steps.local_batch, steps.accumulation)
            self.steps[shape] = StepMeasurement(
                report.nodes, width, steps.local_batch, steps.step_s, steps.sync_s, steps.accumulation
            )
            self._model = None
        return True

    def samples_of(self, epoch: int) -> float:
        """Of an epoch; one that nobody has reached is like the others."""
        if self.prior is not None:
            return self.prior.samples[epoch]
        found = self.samples.get(epoch)
        if found is not None or not self.samples:
            return 1.0 if found is None else found
        return math.fsum(self.samples.values()) / len(self.samples)

    def goodput(self, epoch: int, replicas: int, nodes: int) -> float:
        """As measured, else as guessed."""
        key = (epoch, replicas, nodes)
        found = self.asked.get(key)
        if found is None:
            found = self.asked[key] = self._goodput(*key)
        return found

    def _goodput(self, epoch: int, replicas: int, nodes: int) -> float:
        if self.prior is not None:
            return self.prior.goodput_at(epoch, replicas, nodes)
        if (epoch, replicas, nodes) in self.seen:
            return self.seen[epoch, replicas, nodes]
        if self.limits is not None:
            return self._modelled(epoch, replicas, nodes)
        if self.seen:
            return self._guessed(epoch, replicas)
        return self.profile.speedup(replicas) / (self.profile.locality if nodes > 1 else 1.0)

    def _modelled(self, epoch: int, replicas: int, nodes: int) -> float:
        """By the fitted equations, with the gradient's noise of the nearest epoch that was seen."""
        assert self.limits is not None
        if self._model is None:
            if self.fit is None or len(self.steps) >= _REFIT * self.fit.points:
                self.fit = fit(list(self.steps.values()))
            self._model = self._application(self.fit.params)
        kept = FixedBatch(self._model, self.batch) if self.batch else self._model
        return kept.goodput_at(epoch, replicas, nodes)

    def _application(self, params: PerfParams) -> AdaptiveBatch:
        assert self.limits is not None
        known = sorted(self.stats)
        nearest = [min(known, key=lambda k: (abs(k - e), k)) for e in range(self.epochs)]
        epochs = tuple(Epoch(self.samples_of(e), (1.0,), (self.stats[nearest[e]],)) for e in range(self.epochs))
        return AdaptiveBatch(self.profile.name, params, self.limits, epochs, grid_points=48)

    def _guessed(self, epoch: int, replicas: int) -> float:
        """From the nearest epoch in which that width was tried, else from the widths around it."""
        same_width = [(e, g) for (e, k, _), g in self.seen.items() if k == replicas]
        if same_width:
            near, speed = min(same_width, key=lambda p: abs(p[0] - epoch))
            return speed * self._epoch_ratio(near, epoch)
        tried = sorted({k for _, k, _ in self.seen})
        below = max((k for k in tried if k < replicas), default=None)
        above = min((k for k in tried if k > replicas), default=None)
        if below is None or above is None:
            at = below or above
            assert at is not None
            return float(self.goodput(epoch, at, 1) * (replicas / at) ** _HOPE)
        low, high = self.goodput(epoch, below, 1), self.goodput(epoch, above, 1)
        share = math.log(replicas / below) / math.log(above / below)
        return float(low * (high / low) ** share)

    def _epoch_ratio(self, of: int, to: int) -> float:
        """How much faster one epoch is than another, at a width that was tried in both."""
        speeds = {e: {k: g for (e2, k, _), g in self.seen.items() if e2 == e} for e in (of, to)}
        both = speeds[of].keys() & speeds[to].keys()
        return speeds[to][max(both)] / speeds[of][max(both)] if both else 1.0


class Curves:
    """What is known of the speedups of all kinds of jobs."""

    def __init__(self, *, known: bool, adapts_batch: bool) -> None:
        self._known = known
        self._adapts_batch = adapts_batch
        self.kinds: dict[KindKey, Kind] = {}
        self._unclaimed: set[KindKey] = set()
        """Kinds that were recalled and of which no job has been seen since."""

    def key(self, job: Job) -> KindKey:
        """The kind of a job."""
        return job.profile.name, 0 if self._adapts_batch else job.batch

    def kind(self, job: Job) -> Kind:
        """What is known of its kind."""
        key = self.key(job)
        found = self.kinds.get(key)
        if found is None:
            prior = self._prior(job)
            found = self.kinds[key] = Kind(job.profile, key[1], prior)
            if prior is not None:
                found.epochs = len(prior.samples)
        elif self._unclaimed and key in self._unclaimed:
            self._unclaimed.remove(key)
            found.claim(job.profile, self._prior(job))
        return found

    def recalled(self, kinds: Iterable[Kind]) -> None:
        """These were known; their profiles come with the next job of each."""
        self.kinds = {(kind.profile.name, kind.batch): kind for kind in kinds}
        self._unclaimed = set(self.kinds)

    def _prior(self, job: Job) -> Training | None:
        """What was measured of its kind beforehand, if that may be used."""
        prior, batch = job.profile.training if self._known else None, self.key(job)[1]
        return FixedBatch(prior, batch) if batch and isinstance(prior, AdaptiveBatch) else prior

    def look(self, states: Iterable[JobState], view: View) -> bool:
        """Ask running jobs for their reports; tells whether any had something new."""
        if self._known or view.reports is None:
            return False
        new = False
        for state in states:
            if state.job.kind == "service":
                continue
            kind = self.kind(state.job)
            if kind.profile.training is None or not state.gpus:
                continue
            assert view.epochs is not None
            nodes = view.cluster.spanned(state.gpus)
            if (view.epochs.done(state), len(state.gpus), nodes) in kind.seen:
                continue
            report = view.reports.report(state)
            new |= report is not None and kind.learn(len(state.gpus), report)
        return new

    def row(self, state: JobState, epoch: int, widths: Sequence[int], node_gpus: int) -> list[float]:
        """Goodput at each width, on as few nodes as will do; 0 where it may not be used."""
        job, kind = state.job, self.kind(state.job)
        return [
            kind.goodput(epoch, k, packed_nodes(k, node_gpus))
            if job.min_gpus <= k <= min(job.max_gpus, max(kind.limit, job.min_gpus))
            else 0.0
            for k in widths
        ]

    def notes(self) -> tuple[str, ...]:
        """How good the fits are."""
        return tuple(
            f"goodput of {kind.profile.name}: fitted to {kind.fit.points} step times, "
            f"{100 * kind.fit.rmse_log:.1f} % off in the mean, R2 {kind.fit.r2:.3f}"
            for kind in self.kinds.values()
            if kind.fit is not None
        )

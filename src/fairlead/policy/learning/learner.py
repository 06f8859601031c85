"""The learner: observations in, profiles out. No clock and no I/O; the simulator and the live controller each own one.

A job is described by what was seen of it, then by what was seen of other jobs of its application, then by what was
declared. An application is known after a short observation (`Caution`). Until then, and while it is distrusted, it is
taken to fill its GPUs, so that nobody is put beside it by a rule that relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fairlead.model.interference import Interference
from fairlead.model.job import Job
from fairlead.model.profile import Profile
from fairlead.policy.learning.application import Application
from fairlead.policy.learning.estimate import Estimate, states
from fairlead.policy.learning.observation import Observation
from fairlead.policy.saved_state import reading

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

MOST_APPLICATIONS = 2000
MOST_SETS = 5000
MOST_JOBS = 20_000
"""What was seen longest ago is forgotten first."""
_WORSE_FRAC = 1.2
"""A known application that uses so much more than it did while it was observed has turned bad."""


@dataclass(frozen=True, slots=True)
class Caution:
    """How careful to be with jobs of which nothing is known: the operator's setting."""

    observe_s: float = 90.0
    """So many seconds of steady metering make an application known,"""
    epochs: int = 2
    """or so many epochs that it reported."""
    try_beside: bool = False
    """Whether an unknown job that finds no GPUs of its own may be tried beside others, where memory fits."""
    distrust_s: float = 6 * 3600.0
    """An application that turned bad after it was observed has GPUs to itself for so long."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What an observation has changed."""

    relearnt: tuple[str, ...] = ()
    """Quantities in which the application behaves otherwise than before."""
    turned_bad: bool = False
    """It uses clearly more than while it was observed: whoever shares with it should be rid of it."""
    became_known: bool = False


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of an application, how sure, and what is still being observed."""

    application: str
    known: bool
    trusted: bool
    observations: int
    observed_s: float
    age_s: float
    """Since it was seen last."""
    changes: int
    values: Mapping[str, tuple[float, float]]
    """(mean, standard deviation) of what was metered."""
    widths: tuple[int, ...]
    """Those on which its speed was measured."""
    scaling_exponent: float
    scaling_exponent_sd: float
    observing: str
    """In words; empty when nothing is."""


class Learner:
    """Applications, their jobs, and what sets of them keep of their speed."""

    def __init__(self, caution: Caution | None = None) -> None:
        self.caution = caution or Caution()
        self._applications: dict[str, Application] = {}
        self._jobs: dict[int, Application] = {}
        self._sets: dict[tuple[str, ...], dict[str, Estimate]] = {}
        """By the sorted applications on a GPU: what each keeps of its speed."""
        self._told: dict[int, Profile] = {}

    # ---- what was seen ----

    def observe(self, seen: Observation) -> Learnt:
        """Take in what was seen of one job."""
        application = self._touched(seen.application)
        was_known = self._is_observed(application)
        before = application.value("utilisation_frac")
        self._learn_set(seen)
        job = self._jobs.setdefault(seen.job_id, Application(seen.application))
        changed = application.see(seen) | job.see(seen)
        now_active = application.value("utilisation_frac")
        bad = was_known and before is not None and now_active is not None and now_active > _WORSE_FRAC * before
        turned_bad = bool(bad and "utilisation_frac" in changed)
        if turned_bad:
            application.distrusted_until_s = seen.at_s + self.caution.distrust_s
        self._forget_oldest()
        return Learnt(tuple(sorted(changed)), turned_bad, self._is_observed(application) and not was_known)

    def ended(self, job_id: int) -> None:
        """The job is over: what it taught stays with its application."""
        self._jobs.pop(job_id, None)
        self._told.pop(job_id, None)

    def rename(self, old: str, new: str) -> None:
        """An application has another name from now on; one that had the new name already is replaced."""
        if old in self._applications:
            self._applications[new] = replace(self._applications.pop(old), name=new)

    def forget(self, application: str) -> None:
        """Nothing is known of it any more, nor of sets that it was in."""
        self._applications.pop(application, None)
        self._sets = {names: kept for names, kept in self._sets.items() if application not in names}

    # ---- what is known ----

    def applications(self) -> list[str]:
        """Those of which anything was seen, by name."""
        return sorted(self._applications)

    def is_known(self, application: str, now_s: float) -> bool:
        """Whether it was observed for long enough, and is trusted."""
        found = self._applications.get(application)
        return found is not None and self._is_observed(found) and now_s >= found.distrusted_until_s

    def profile_of(self, job: Job, now_s: float, application: str = "", gpu_memory_mib: float | None = None) -> Profile:
        """What the job is like, as far as is known; the same object as before while that is the same."""
        name = application or job.profile.name
        known = self._applications.get(name)
        own = self._jobs.get(job.id)
        found = job.profile
        if known is not None and known.observations:
            best = own if own is not None and self._is_observed(own) else known
            found = best.profile(found, job.gpus, gpu_memory_mib)
            if best is own and len(own.rates) < 2 < len(known.rates) + 1:
                found = replace(found, speedup=known.scaling.speedup())
        if not self.is_known(name, now_s) and not self.caution.try_beside:
            found = replace(found, activity_frac=1.0)
        if self._told.get(job.id) != found:
            self._told[job.id] = found
        return self._told[job.id]

    def slowness(self, seen: Observation) -> float | None:
        """How much slower a job ran there than its application does, for `Scores.observe`; None where that says
        nothing of the GPUs."""
        found = self._applications.get(seen.application)
        if found is None or not seen.alone or seen.spans_nodes or not seen.rate or not self._is_observed(found):
            return None
        expected = found.expected_rate(seen.width)
        return expected / seen.rate if expected else None

    def history(self) -> Interference:
        """What sets of applications keep of their speed, as far as every member was seen there."""
        table = Interference()
        for names, kept in sorted(self._sets.items()):
            if all(name in kept and kept[name].known for name in names):
                table.record(names, [min(max(kept[name].mean, 1e-3), 1.0) for name in names])
        return table

    def knowledge_of(self, application: str, now_s: float) -> Knowledge:
        """All that can be told of an application."""
        found = self._applications.get(application, Application(application))
        scaling = found.scaling
        return Knowledge(
            application=application,
            known=self._is_observed(found),
            trusted=now_s >= found.distrusted_until_s,
            observations=found.observations,
            observed_s=found.observed_s,
            age_s=max(now_s - found.last_s, 0.0) if found.observations else 0.0,
            changes=found.changes,
            values={name: (e.mean, e.sd) for name, e in {**found.beside, **found.counters}.items() if e.known},
            widths=tuple(sorted(found.rates)),
            scaling_exponent=scaling.exponent,
            scaling_exponent_sd=scaling.exponent_sd,
            observing=self._observing(found, now_s),
        )

    def _observing(self, found: Application, now_s: float) -> str:
        if now_s < found.distrusted_until_s:
            return f"not trusted for another {found.distrusted_until_s - now_s:.0f} s: it turned bad after observation"
        if self._is_observed(found):
            return ""
        left_s = max(self.caution.observe_s - found.observed_s, 0.0)
        return f"unknown application: observed for another {left_s:.0f} s, or {self.caution.epochs} epochs"

    def _is_observed(self, found: Application) -> bool:
        by_epochs = found.unit == "epochs" and found.worked >= self.caution.epochs
        metered = found.value("utilisation_frac") is not None
        return metered and (by_epochs or found.observed_s >= self.caution.observe_s)

    # ---- sets, and what is kept ----

    def _learn_set(self, seen: Observation) -> None:
        found = self._applications[seen.application]
        expected = found.expected_rate(seen.width)
        if seen.alone or not seen.rate or not expected:
            return
        names = tuple(sorted((seen.application, *seen.neighbours)))
        kept = self._sets.pop(names, {})
        kept.setdefault(seen.application, Estimate()).see(min(seen.rate / expected, 1.0), seen.at_s)
        self._sets[names] = kept

    def _touched(self, name: str) -> Application:
        """An application, moved to the end of the line of those that may be forgotten."""
        found = self._applications.pop(name, None) or Application(name)
        self._applications[name] = found
        return found

    def _forget_oldest(self) -> None:
        _shorten(self._applications, MOST_APPLICATIONS)
        _shorten(self._sets, MOST_SETS)
        _shorten(self._jobs, MOST_JOBS)
        _shorten(self._told, MOST_JOBS)

    def state(self) -> dict[str, Any]:
        """All that was learnt, in plain values for JSON."""
        return {
            "applications": [a.state() for a in self._applications.values()],
            "jobs": [[job_id, a.state()] for job_id, a in self._jobs.items()],
            "sets": [[list(names), states(kept)] for names, kept in self._sets.items()],
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any], caution: Caution | None = None) -> Learner:
        """A learner from what `state` gave."""
        found = cls(caution)
        with reading("the learner", saved, "applications", "jobs", "sets"):
            applications = [Application.restored(a) for a in saved["applications"]]
            found._applications = {a.name: a for a in applications}
            found._jobs = {int(job_id): Application.restored(a) for job_id, a in saved["jobs"]}
            found._sets = {
                tuple(map(str, names)): {str(k): Estimate.restored(e) for k, e in kept} for names, kept in saved["sets"]
            }
        return found


def _shorten(kept: dict[_Key, _Value], most: int) -> None:
    """Drop what was put in first."""
    while len(kept) > most:
        del kept[next(iter(kept))]

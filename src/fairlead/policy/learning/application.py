"""What has been learnt of one application, or of one job of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.model.contention import UNMEASURED, Solo
from fairlead.model.profile import Profile
from fairlead.policy.learning.estimate import Estimate, states
from fairlead.policy.learning.observation import Observation
from fairlead.policy.learning.scaling import Scaling, fitted

COUNTERS = (
    "utilisation_frac",
    "sm_activity_frac",
    "dram_activity_frac",
    "occupancy_frac",
    "memory_peak_mib",
    "power_w",
)
"""Fields of an observation that are learnt as they are."""
_STEP = 0.02
"""Profiles are told in steps: a policy that hears of every change in the third digit would only move jobs."""


@dataclass(slots=True)
class Application:
    """Estimates of everything that a profile says."""

    name: str
    counters: dict[str, Estimate] = field(default_factory=dict)
    """Of jobs that had their GPUs to themselves."""
    beside: dict[str, Estimate] = field(default_factory=dict)
    """Of jobs beside others; asked only where nothing was seen alone."""
    rates: dict[int, Estimate] = field(default_factory=dict)
    """Work in a second, alone, by width."""
    unit: str = ""
    start: Estimate = field(default_factory=Estimate)
    restart: Estimate = field(default_factory=Estimate)
    observations: int = 0
    observed_s: float = 0.0
    """Of steady running, alone or not."""
    worked: float = 0.0
    """Epochs, samples or steps that were seen."""
    first_s: float = 0.0
    last_s: float = 0.0
    changes: int = 0
    """How often it turned out to have become another program."""
    distrusted_until_s: float = 0.0

    def see(self, seen: Observation) -> set[str]:
        """Take in an observation; names what has changed since, so that it is learnt anew."""
        if not self.observations:
            self.first_s = seen.at_s
        self.observations += 1
        self.observed_s += seen.seconds
        self.last_s = max(self.last_s, seen.at_s)
        found = self.counters if seen.alone else self.beside
        changed = set()
        for name in COUNTERS:
            value = getattr(seen, name)
            if value is not None and found.setdefault(name, Estimate()).see(value, seen.at_s) and seen.alone:
                changed.add(name)
        if seen.start_s is not None:
            (self.restart if seen.restarted else self.start).see(seen.start_s, seen.at_s)
        if self._see_rate(seen):
            changed.add("rate")
        self.changes += bool(changed)
        return changed

    def _see_rate(self, seen: Observation) -> bool:
        if seen.rate is None or seen.rate <= 0.0:
            return False
        if seen.unit != self.unit:  # reported epochs say more than counted launches, and are never mixed with them
            self.unit, self.worked = seen.unit, 0.0
            self.rates.clear()
        self.worked += seen.work or 0.0
        if not seen.alone or seen.spans_nodes:
            return False
        return self.rates.setdefault(seen.width, Estimate()).see(seen.rate, seen.at_s)

    @property
    def scaling(self) -> Scaling:
        """Speedup by width, as far as widths were seen."""
        return fitted(self.rates)

    def value(self, name: str) -> float | None:
        """The mean of a counter: as seen alone, else beside others."""
        for found in (self.counters, self.beside):
            if name in found and found[name].known:
                return found[name].mean
        return None

    def expected_rate(self, width: int) -> float | None:
        """Work in a second on so many GPUs, alone; None where no width was seen."""
        if (own := self.rates.get(width)) is not None and own.known:
            return own.mean
        if not self.rates:
            return None
        nearest = min(self.rates, key=lambda k: abs(k - width))
        scaling = self.scaling
        return self.rates[nearest].mean * scaling.at(width) / scaling.at(nearest)

    def profile(self, declared: Profile, width: int, memory_of_gpu_mib: float | None) -> Profile:
        """What was learnt, over what was declared."""
        activity, memory_mib = self.value("utilisation_frac"), self.value("memory_peak_mib")
        rate = self.expected_rate(width) if self.unit == "epochs" else None
        found = declared
        if activity is not None:
            found = replace(found, activity_frac=_in_steps(activity), solo=self._solo(memory_mib, memory_of_gpu_mib))
        if memory_mib is not None:
            found = replace(found, memory_mib=round(memory_mib))
        if rate:
            found = replace(found, epoch_s=_three_digits(1.0 / rate))
        if len(self.rates) > 1:
            found = replace(found, speedup=self.scaling.speedup())
        if self.restart.known:
            found = replace(found, restart_s=_three_digits(self.restart.mean))
        return found

    def _solo(self, memory_mib: float | None, memory_of_gpu_mib: float | None) -> Solo:
        """How it uses a GPU that it has to itself; what no counter told is as of a job that was never measured."""
        sm, dram = self.value("sm_activity_frac"), self.value("dram_activity_frac")
        fill = self.value("occupancy_frac")
        rate = self.expected_rate(1) if self.unit == "steps" else None
        memory = UNMEASURED.memory_frac
        if memory_mib is not None and memory_of_gpu_mib:
            memory = min(memory_mib / memory_of_gpu_mib, 1.0)
        return Solo(
            utilisation_frac=_in_steps(self.value("utilisation_frac") or 0.0),
            sm_activity_frac=_in_steps(UNMEASURED.sm_activity_frac if sm is None else sm),
            occupancy_frac=_in_steps(UNMEASURED.occupancy_frac if fill is None else fill),
            bandwidth_frac=_in_steps(UNMEASURED.bandwidth_frac if dram is None else dram),
            memory_frac=_in_steps(memory),
            time_s=_three_digits(1.0 / rate) if rate else UNMEASURED.time_s,
        )

    def state(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "counters": states(self.counters),
            "beside": states(self.beside),
            "rates": states(self.rates),
            "unit": self.unit,
            "start": self.start.state(),
            "restart": self.restart.state(),
            "observations": self.observations,
            "observed_s": self.observed_s,
            "worked": self.worked,
            "first_s": self.first_s,
            "last_s": self.last_s,
            "changes": self.changes,
            "distrusted_until_s": self.distrusted_until_s,
        }

    @classmethod
    def restored(cls, saved: Mapping[str, Any]) -> Application:
        """An application from what `state` gave."""
        found = cls(str(saved["name"]), unit=str(saved["unit"]))
        found.counters = {str(k): Estimate.restored(e) for k, e in saved["counters"]}
        found.beside = {str(k): Estimate.restored(e) for k, e in saved["beside"]}
        found.rates = {int(k): Estimate.restored(e) for k, e in saved["rates"]}
        found.start, found.restart = Estimate.restored(saved["start"]), Estimate.restored(saved["restart"])
        found.observations, found.changes = int(saved["observations"]), int(saved["changes"])
        found.observed_s, found.worked = float(saved["observed_s"]), float(saved["worked"])
        found.first_s, found.last_s = float(saved["first_s"]), float(saved["last_s"])
        found.distrusted_until_s = float(saved["distrusted_until_s"])
        return found


def _in_steps(frac: float) -> float:
    return round(min(max(round(frac / _STEP) * _STEP, _STEP), 1.0), 4)


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")

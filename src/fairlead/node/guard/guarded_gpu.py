"""The agent's mind for one GPU: samples, latencies and MPS's words in, orders and decisions out. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.node.gpu.busy_shares import Shares
from fairlead.node.gpu.meter import GpuInfo, GpuSample
from fairlead.node.guard.control_page import GpuOrder
from fairlead.node.guard.latency import Report
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order
from fairlead.policy.guarding import (
    GpuGuard,
    GuardConfig,
    LatencySignal,
    LaunchRate,
    Pressure,
    Remedy,
    Sample,
    Transition,
    classify_line,
    classify_xid,
)

IDLE_FRAC = 0.05
"""Under this utilisation a GPU lowers its clock because it has nothing to do; that is no loss."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that was seen, and what it asks for."""

    remedy: Remedy
    what: str


class GuardedGpu:
    """Guard, launch rate and latency signals of one GPU."""

    def __init__(
        self, info: GpuInfo, config: GuardConfig, now_s: float, saved: Mapping[str, Any] | None = None
    ) -> None:
        self.info = info
        self.config = config
        self.guard = GpuGuard(config, now_s)
        if saved is not None:
            self.guard = GpuGuard.from_dict(saved, config)
            self.guard.agent_restarted(now_s)
        self.rate = LaunchRate(config.rate)
        self._signals: dict[AttemptId, LatencySignal] = {}
        self._services: set[AttemptId] = set()
        self._activity_frac = 0.0
        self._fatal: str | None = None

    def join(self, order: Order) -> None:
        """A job has come to this GPU."""
        if order.is_service:
            self._services.add(order.id)
            if order.slo_s is not None:
                self._signals[order.id] = LatencySignal(slo_s=order.slo_s, config=self.config.latency)

    @property
    def has_service(self) -> bool:
        """Whether there is somebody to protect."""
        return bool(self._services)

    def leave(self, attempt: AttemptId) -> None:
        """A job has left this GPU."""
        self._services.discard(attempt)
        self._signals.pop(attempt, None)

    def report(self, report: Report) -> None:
        """A service has spoken; one that is not here, or has no limit, is passed over."""
        signal = self._signals.get(report.service)
        if signal is not None:
            signal.report(report.at_s, report.latency_s)

    def pressure(self, now_s: float) -> Pressure | None:
        """The worst of the services here; None where none of them has said anything."""
        found = [p for signal in self._signals.values() if (p := signal.pressure(now_s)) is not None]
        return max(found, default=None)

    def latency_s(self, now_s: float) -> float | None:
        """The highest recent latency of the services here; None where none has told any."""
        found = [x for signal in self._signals.values() if (x := signal.latency_s(now_s)) is not None]
        return max(found, default=None)

    def period(self, sample: GpuSample, now_s: float) -> GpuOrder:
        """A tenth of a second has passed: what the offline jobs of this GPU may do.

        Everything while there is no service to protect; from the floor up when one has come.
        """
        if sample.sm_activity_frac is not None:
            self._activity_frac = min(sample.sm_activity_frac, 1.0)
        if self._services:
            self.rate.update(self._clock_frac(sample), sample.utilisation_frac, self.pressure(now_s))
        else:
            self.rate = LaunchRate(self.config.rate)
        return GpuOrder(
            rate_frac=self.rate.rate_frac if self._services else 1.0,
            clock_mhz=round(sample.sm_clock_mhz or 0),
            reference_clock_mhz=round(self.info.reference_sm_clock_mhz or 0),
            util_frac=min(sample.utilisation_frac or 0.0, 1.0),
            sm_activity_frac=self._activity_frac,
        )

    def second(self, sample: GpuSample, now_s: float, shares: Shares) -> list[Transition]:
        """A second has passed: what the guard makes of it, given who was how busy."""
        online = self._online_frac(shares)
        activity, busy = sample.sm_activity_frac, [part for part in shares.values() if part is not None]
        online_activity = None
        if online is not None and activity is not None:
            online_activity = activity * online / sum(busy) if sum(busy) > 0.0 else 0.0
        fatal, self._fatal = self._fatal, None
        return self.guard.observe(
            Sample(
                time_s=now_s,
                util_frac=sample.utilisation_frac,
                sm_activity_frac=activity,
                clock_frac=self._clock_frac(sample),
                memory_frac=self._memory_frac(sample),
                temperature_c=sample.temperature_c,
                online_util_frac=online,
                online_sm_activity_frac=online_activity,
                slo_broken=self.pressure(now_s) is Pressure.SEVERE,
                fatal_fault=fatal or ("the GPU has fallen off the bus" if sample.is_lost else None),
                valid=not sample.is_lost,
            )
        )

    def faults(self, xids: Iterable[int], lines: Iterable[str]) -> list[Finding]:
        """What Xids and log lines ask for, the harmless left out. One that is fatal is told to the guard."""
        named = [(f"Xid {number}", classify_xid(number)) for number in xids]
        named += [(line.strip()[-160:], classify_line(line)) for line in lines]
        found = [Finding(f.remedy, f"{f.what} ({said})") for said, f in named if f.remedy is not Remedy.HARMLESS]
        for one in found:
            if one.remedy is Remedy.DISABLE:
                self._fatal = one.what
        return found

    def _clock_frac(self, sample: GpuSample) -> float | None:
        if sample.sm_clock_mhz is None or not self.info.reference_sm_clock_mhz:
            return None
        if sample.utilisation_frac is not None and sample.utilisation_frac < IDLE_FRAC:
            return 1.0
        return sample.sm_clock_mhz / self.info.reference_sm_clock_mhz

    def _memory_frac(self, sample: GpuSample) -> float | None:
        """Of interest where a service could run out of it; offline jobs alone may fill the GPU."""
        total_mib = self.info.memory_total_mib
        if sample.memory_used_mib is None or not total_mib or not self._services:
            return None
        return sample.memory_used_mib / total_mib

    def _online_frac(self, shares: Shares) -> float | None:
        """The services' own part; None where no offline job is there (the whole is theirs) or it cannot be told."""
        mine = [part for name, part in shares.items() if name in self._services]
        if len(mine) == len(shares) or any(part is None for part in mine):
            return None
        return min(sum(part for part in mine if part is not None), 1.0)

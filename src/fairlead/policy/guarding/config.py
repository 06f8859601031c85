"""Every number of the guard in one place, with its default.

The states and what moves between them are MuxFlow's (arXiv 2303.13803). The paper keeps its constants to itself, so
these numbers are ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

from fairlead.errors import InputError, did_you_mean


class Section:
    """A frozen dataclass of numbers that can be read from a plain dict."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read from a dict; what it leaves out keeps its default, what it has too much is an error."""
        section: Self = _read(cls, values, "guard")
        return section


def _read(kind: Any, values: object, where: str) -> Any:
    if not isinstance(values, Mapping):
        raise InputError(f"{where}: expected a table of settings, found {values!r}")
    known = {f.name: f for f in fields(kind)}
    given: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key)
        if name not in known:
            raise InputError(f"{where}: unknown setting {name!r}", hint=did_you_mean(name, known))
        default = known[name].default
        if is_dataclass(default):
            given[name] = _read(type(default), value, f"{where}.{name}")
        elif isinstance(value, bool) or not isinstance(value, int if isinstance(default, int) else (int, float)):
            wanted = "a whole number" if isinstance(default, int) else "a number"
            raise InputError(f"{where}.{name}: expected {wanted}, found {value!r}")
        else:
            given[name] = value if isinstance(default, int) else float(value)
    try:
        return kind(**given)
    except ValueError as wrong:
        raise InputError(f"{where}: {wrong}") from None


def _check(section: Any, *laws: tuple[bool, str]) -> None:
    for f in fields(section):
        value = getattr(section, f.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{f.name} is {value}, not a finite number")
    for holds, law in laws:
        if not holds:
            words = set(re.findall(r"\w+", law))
            names = [f.name for f in fields(section) if f.name in words]
            raise ValueError(f"{law}; found " + ", ".join(f"{n}={getattr(section, n)}" for n in names))


@dataclass(frozen=True)
class RateConfig(Section):
    """How the launch rate of the offline job follows the GPU."""

    period_s: float = 0.1
    """Time between two updates."""
    ewma: float = 0.3
    """Weight of the newest sample in the smoothed clock and utilisation."""
    clock_low_frac: float = 0.93
    """A smoothed clock under this part of the reference cuts the rate."""
    util_target_frac: float = 0.90
    """A smoothed utilisation under this raises it."""
    cut_frac: float = 0.5
    """What a cut leaves of the rate."""
    cooldown_periods: int = 3
    """Periods after a cut in which its effect is waited for."""
    raise_frac: float = 0.02
    """What a period adds while there is room: from the floor to everything in about 5 s."""
    dead_band_frac: float = 0.02
    """No raise this close under the target utilisation or above the low clock, so that noise moves nothing."""
    floor_frac: float = 0.05
    """The least rate of a job that is not frozen."""

    def __post_init__(self) -> None:
        _check(
            self,
            (self.period_s > 0.0, "period_s must be above 0"),
            (0.0 < self.ewma <= 1.0, "ewma must be in (0, 1]"),
            (0.0 < self.clock_low_frac < 1.0, "clock_low_frac must be in (0, 1)"),
            (0.0 < self.util_target_frac <= 1.0, "util_target_frac must be in (0, 1]"),
            (0.0 < self.cut_frac < 1.0, "cut_frac must be in (0, 1)"),
            (self.cooldown_periods >= 0, "cooldown_periods must be at least 0"),
            (0.0 < self.raise_frac <= 1.0, "raise_frac must be in (0, 1]"),
            (0.0 <= self.dead_band_frac < self.util_target_frac, "dead_band_frac must be in [0, util_target_frac)"),
            (0.0 < self.floor_frac <= 1.0, "floor_frac must be in (0, 1]"),
        )


@dataclass(frozen=True)
class LatencyConfig(Section):
    """When the latencies that a service reports speak against its neighbour."""

    window_s: float = 0.3
    """Reports this recent are averaged; the last one stands where none is."""
    stale_s: float = 5.0
    """After this long without a report nothing is known."""
    high_ratio: float = 1.2
    """At this multiple of the baseline the neighbour is slowed down (MuxFlow promises a slowdown under 20 %)."""
    severe_ratio: float = 2.0
    """At this multiple the SLO counts as broken, where the service states none."""
    slo_margin_frac: float = 0.9
    """At this part of the stated SLO the neighbour is slowed down too."""

    def __post_init__(self) -> None:
        _check(
            self,
            (0.0 < self.window_s <= self.stale_s, "window_s must be above 0 and at most stale_s"),
            (1.0 < self.high_ratio <= self.severe_ratio, "high_ratio must be above 1 and at most severe_ratio"),
            (0.0 < self.slo_margin_frac <= 1.0, "slo_margin_frac must be in (0, 1]"),
        )


@dataclass(frozen=True)
class EvictionConfig(Section):
    """How long each step of an eviction may take, and how soon the job may try again."""

    freeze_s: float = 0.5
    """After the freeze, until work in flight has drained."""
    term_grace_s: float = 10.0
    """After SIGTERM, for the job to write its checkpoint and release its CUDA context."""
    client_grace_s: float = 5.0
    """After `terminate_client`, for the MPS server to let go of the client."""
    client_tries: int = 2
    """How often `terminate_client` is asked for where its answer is not yes."""
    kill_grace_s: float = 5.0
    """After SIGKILL; a process that is still there then is a case for the operator."""
    backoff_s: float = 60.0
    """How long a job stays away after its first eviction; twice as long with each further one."""
    backoff_max_s: float = 3600.0
    """The longest it stays away."""
    backoff_memory_s: float = 14400.0
    """Evictions longer ago than this are forgiven."""

    def __post_init__(self) -> None:
        _check(
            self,
            (self.freeze_s >= 0.0, "freeze_s must be at least 0"),
            (self.term_grace_s > 0.0, "term_grace_s must be above 0"),
            (self.client_grace_s > 0.0, "client_grace_s must be above 0"),
            (self.client_tries >= 1, "client_tries must be at least 1"),
            (self.kill_grace_s > 0.0, "kill_grace_s must be above 0"),
            (0.0 < self.backoff_s <= self.backoff_max_s, "backoff_s must be above 0 and at most backoff_max_s"),
            (self.backoff_memory_s > 0.0, "backoff_memory_s must be above 0"),
        )


@dataclass(frozen=True)
class GuardConfig(Section):
    """The states of a GPU, and in `rate`, `latency` and `eviction` what protects the service meanwhile."""

    sample_s: float = 1.0
    """Time between two samples, as far as the guard has a say (`observe_constant`)."""
    window_s: float = 5.0
    """Samples are judged by their mean over windows of this length."""
    gap_s: float = 5.0
    """A GPU that was not seen for longer than this is unknown: back to Init."""
    init_s: float = 30.0
    """Time of valid samples before a GPU is trusted."""
    worse_windows: int = 2
    """Windows in a row that make a state worse."""
    better_windows: int = 6
    """Windows in a row that make it better."""
    util_healthy_frac: float = 0.85
    """Healthy is under this."""
    sm_activity_healthy_frac: float = 0.70
    """Healthy is under this."""
    clock_healthy_frac: float = 0.93
    """Healthy is over this part of the reference clock."""
    memory_healthy_frac: float = 0.85
    """Healthy is under this."""
    temperature_healthy_c: float = 80.0
    """Healthy is under this."""
    util_over_frac: float = 0.97
    """Overlimit from here, after `util_over_windows`."""
    util_over_windows: int = 3
    """Utilisation says little about harm, so it takes longer to count."""
    sm_activity_over_frac: float = 0.90
    """Overlimit from here."""
    clock_over_frac: float = 0.80
    """Overlimit from here down."""
    memory_over_frac: float = 0.95
    """Overlimit from here."""
    temperature_over_c: float = 87.0
    """Overlimit from here."""
    slo_windows: int = 2
    """Windows in a row with the service's SLO signal that make a GPU Overlimit."""
    hold_s: float = 60.0
    """The first Overlimit lasts at least this long; each further one within `overlimit_memory_s` twice as long."""
    hold_max_s: float = 3600.0
    """The longest hold."""
    overlimit_memory_s: float = 3600.0
    """Overlimits longer ago than this are forgotten."""
    overlimits_disable: int = 5
    """This many Overlimits within the memory take the GPU out of the pool."""
    mps_failures_disable: int = 2
    """This many failed restarts of the MPS server in a row do, too."""
    rate: RateConfig = field(default=RateConfig())
    """The launch-rate control."""
    latency: LatencyConfig = field(default=LatencyConfig())
    """What makes latencies a signal."""
    eviction: EvictionConfig = field(default=EvictionConfig())
    """The steps of an eviction."""

    def __post_init__(self) -> None:
        _check(
            self,
            (self.sample_s > 0.0, "sample_s must be above 0"),
            (
                2 * self.sample_s <= self.gap_s <= self.window_s,
                "gap_s must be at least twice sample_s (one lost sample is no gap) and at most window_s",
            ),
            (self.init_s > 0.0, "init_s must be above 0"),
            (self.worse_windows >= 1, "worse_windows must be at least 1"),
            (self.better_windows >= 1, "better_windows must be at least 1"),
            (self.util_over_windows >= 1, "util_over_windows must be at least 1"),
            (self.slo_windows >= 1, "slo_windows must be at least 1"),
            *(_ordered(self, name, "frac") for name in ("util", "sm_activity", "memory")),
            _ordered(self, "temperature", "c"),
            (
                0.0 < self.clock_over_frac < self.clock_healthy_frac,
                "clock_over_frac must be above 0 and under clock_healthy_frac",
            ),
            (0.0 < self.hold_s <= self.hold_max_s, "hold_s must be above 0 and at most hold_max_s"),
            (self.overlimit_memory_s > 0.0, "overlimit_memory_s must be above 0"),
            (self.overlimits_disable >= 1, "overlimits_disable must be at least 1"),
            (self.mps_failures_disable >= 1, "mps_failures_disable must be at least 1"),
        )

    @property
    def init_windows(self) -> int:
        """Windows that cover `init_s`."""
        return math.ceil(self.init_s / self.window_s)


def _ordered(config: GuardConfig, metric: str, unit: str) -> tuple[bool, str]:
    healthy, over = f"{metric}_healthy_{unit}", f"{metric}_over_{unit}"
    return 0.0 < getattr(config, healthy) < getattr(config, over), f"{healthy} must be above 0 and under {over}"

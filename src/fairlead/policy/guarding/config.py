"""Every number of the guard in one place, with its default and what is allowed.

The states and what moves between them are MuxFlow's (arXiv 2303.13803). The paper keeps its constants to itself, so
these numbers are ours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fairlead.errors import InputError, did_you_mean

Above0 = Annotated[float, Field(gt=0.0)]
Part = Annotated[float, Field(gt=0.0, le=1.0)]
"""Of a whole, and not nothing."""
Inside = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]
_WANTED = {"float_type": "a number", "int_type": "a whole number", "int_from_float": "a whole number"}
_BOUNDS = {"gt": "above", "ge": "at least", "lt": "under", "le": "at most"}


class Section(BaseModel):
    """Numbers that can be read from a plain dict. The docstring of each is its description for operators."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read from a dict; what it leaves out keeps its default, what it has too much is an error."""
        try:
            return cls.model_validate(values)
        except ValidationError as wrong:
            raise _in_words(cls, wrong.errors()[0]) from None


def _in_words(kind: type[BaseModel], error: Mapping[str, Any]) -> InputError:
    """What pydantic found first, as this program says such things."""
    path, found, limits = [str(part) for part in error["loc"]], error["input"], error.get("ctx", {})
    where = ".".join(("guard", *path))
    match error["type"]:
        case "extra_forbidden":
            for part in path[:-1]:
                kind = type(kind.model_fields[part].default)
            section, name = ".".join(("guard", *path[:-1])), path[-1]
            return InputError(f"{section}: unknown setting {name!r}", hint=did_you_mean(name, kind.model_fields))
        case "model_type" | "model_attributes_type" | "dict_type":
            return InputError(f"{where}: expected a table of settings, found {found!r}")
        case "finite_number":
            return InputError(f"{where}: {found} is not a finite number")
        case "value_error":
            return InputError(f"{where}: {limits['error']}")
        case other if other in _WANTED:
            return InputError(f"{where}: expected {_WANTED[other]}, found {found!r}")
    bounds = [f"{word} {limits[name]:g}" for name, word in _BOUNDS.items() if name in limits]
    return InputError(f"{where}: must be {' and '.join(bounds)}, found {found!r}")


def _check(section: BaseModel, *laws: tuple[bool, str]) -> None:
    """What holds between several numbers."""
    for holds, law in laws:
        if not holds:
            words = set(re.findall(r"\w+", law))
            names = [name for name in type(section).model_fields if name in words]
            raise ValueError(f"{law}; found " + ", ".join(f"{n}={getattr(section, n)}" for n in names))


class RateConfig(Section):
    """How the launch rate of the offline job follows the GPU."""

    period_s: Above0 = 0.1
    """Time between two updates."""
    ewma: Part = 0.3
    """Weight of the newest sample in the smoothed clock and utilisation."""
    clock_low_frac: Inside = 0.93
    """A smoothed clock under this part of the reference cuts the rate."""
    util_target_frac: Part = 0.90
    """A smoothed utilisation under this raises it."""
    cut_frac: Inside = 0.5
    """What a cut leaves of the rate."""
    cooldown_periods: Annotated[int, Field(ge=0)] = 3
    """Periods after a cut in which its effect is waited for."""
    raise_frac: Part = 0.02
    """What a period adds while there is room: from the floor to everything in about 5 s."""
    dead_band_frac: Annotated[float, Field(ge=0.0)] = 0.02
    """No raise this close under the target utilisation or above the low clock, so that noise moves nothing."""
    floor_frac: Part = 0.05
    """The least rate of a job that is not frozen."""
    inflight_s: Above0 = 0.001
    """The most GPU time that an offline job may have in flight beside a service: a request waits for that, and for the
    job's longest kernel. On an H200 1 ms cost a service 2 to 3 % of its p50, and 4 ms over 40 %. Beside a service of
    short requests the bound is a fifth of what a request takes of the GPU.
    """

    @model_validator(mode="after")
    def _together(self) -> Self:
        _check(
            self,
            (self.dead_band_frac < self.util_target_frac, "dead_band_frac must be under util_target_frac"),
        )
        return self


class LatencyConfig(Section):
    """When the latencies that a service reports speak against its neighbour."""

    window_s: Above0 = 0.3
    """Reports this recent are averaged; the last one stands where none is."""
    stale_s: Above0 = 5.0
    """After this long without a report nothing is known."""
    high_ratio: Annotated[float, Field(gt=1.0)] = 1.2
    """At this multiple of the baseline the neighbour is slowed down (MuxFlow promises a slowdown under 20 %)."""
    severe_ratio: Annotated[float, Field(gt=1.0)] = 2.0
    """At this multiple the SLO counts as broken, where the service states none."""
    slo_margin_frac: Part = 0.9
    """At this part of the stated SLO the neighbour is slowed down too."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        _check(
            self,
            (self.window_s <= self.stale_s, "window_s must be at most stale_s"),
            (self.high_ratio <= self.severe_ratio, "high_ratio must be at most severe_ratio"),
        )
        return self


class EvictionConfig(Section):
    """How long each step of an eviction may take, and how soon the job may try again."""

    freeze_s: Annotated[float, Field(ge=0.0)] = 0.5
    """After the freeze, until work in flight has drained."""
    term_grace_s: Above0 = 10.0
    """After SIGTERM, for the job to write its checkpoint and release its CUDA context."""
    client_grace_s: Above0 = 5.0
    """After `terminate_client`, for the MPS server to let go of the client."""
    client_tries: Count = 2
    """How often `terminate_client` is asked for where its answer is not yes."""
    kill_grace_s: Above0 = 5.0
    """After SIGKILL; a process that is still there then is a case for the operator."""
    backoff_s: Above0 = 60.0
    """How long a job stays away after its first eviction; twice as long with each further one."""
    backoff_max_s: Above0 = 3600.0
    """The longest it stays away."""
    backoff_memory_s: Above0 = 14400.0
    """Evictions longer ago than this are forgiven."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        _check(
            self,
            (self.backoff_s <= self.backoff_max_s, "backoff_s must be at most backoff_max_s"),
        )
        return self


class GuardConfig(Section):
    """The states of a GPU, and in `rate`, `latency` and `eviction` what protects the service meanwhile."""

    sample_s: Above0 = 1.0
    """Time between two samples, as far as the guard has a say (`observe_constant`)."""
    window_s: Above0 = 5.0
    """Samples are judged by their mean over windows of this length."""
    gap_s: Above0 = 5.0
    """A GPU that was not seen for longer than this is unknown: back to Init."""
    init_s: Above0 = 30.0
    """Time of valid samples before a GPU is trusted."""
    worse_windows: Count = 2
    """Windows in a row that make a state worse."""
    better_windows: Count = 6
    """Windows in a row that make it better."""
    util_healthy_frac: Above0 = 0.85
    """Healthy is under this."""
    sm_activity_healthy_frac: Above0 = 0.70
    """Healthy is under this."""
    clock_healthy_frac: Above0 = 0.93
    """Healthy is over this part of the reference clock."""
    memory_healthy_frac: Above0 = 0.85
    """Healthy is under this."""
    temperature_healthy_c: Above0 = 80.0
    """Healthy is under this."""
    util_over_frac: Above0 = 0.97
    """Overlimit from here, after `util_over_windows`."""
    util_over_windows: Count = 3
    """Utilisation says little about harm, so it takes longer to count."""
    sm_activity_over_frac: Above0 = 0.90
    """Overlimit from here."""
    clock_over_frac: Above0 = 0.80
    """Overlimit from here down."""
    memory_over_frac: Above0 = 0.95
    """Overlimit from here."""
    temperature_over_c: Above0 = 87.0
    """Overlimit from here."""
    slo_windows: Count = 2
    """Windows in a row with the service's SLO signal that make a GPU Overlimit."""
    hold_s: Above0 = 60.0
    """The first Overlimit lasts at least this long; each further one within `overlimit_memory_s` twice as long."""
    hold_max_s: Above0 = 3600.0
    """The longest hold."""
    overlimit_memory_s: Above0 = 3600.0
    """Overlimits longer ago than this are forgotten."""
    overlimits_disable: Count = 5
    """This many Overlimits within the memory take the GPU out of the pool."""
    mps_failures_disable: Count = 2
    """This many failed restarts of the MPS server in a row do, too."""
    rate: RateConfig = RateConfig()
    """The launch-rate control."""
    latency: LatencyConfig = LatencyConfig()
    """What makes latencies a signal."""
    eviction: EvictionConfig = EvictionConfig()
    """The steps of an eviction."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        _check(
            self,
            (
                2 * self.sample_s <= self.gap_s <= self.window_s,
                "gap_s must be at least twice sample_s (one lost sample is no gap) and at most window_s",
            ),
            *(_ordered(self, name, "frac") for name in ("util", "sm_activity", "memory")),
            _ordered(self, "temperature", "c"),
            (
                self.clock_over_frac < self.clock_healthy_frac,
                "clock_over_frac must be under clock_healthy_frac",
            ),
            (self.hold_s <= self.hold_max_s, "hold_s must be at most hold_max_s"),
        )
        return self

    @property
    def init_windows(self) -> int:
        """How many windows cover `init_s`."""
        return math.ceil(self.init_s / self.window_s)


def _ordered(config: GuardConfig, metric: str, unit: str) -> tuple[bool, str]:
    healthy, over = f"{metric}_healthy_{unit}", f"{metric}_over_{unit}"
    return getattr(config, healthy) < getattr(config, over), f"{healthy} must be under {over}"

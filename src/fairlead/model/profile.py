"""Profiles: what a job is like. Jobs that are alike name the same one.

`speedup` is s_p(k) of the speed equation, `locality` is L_p, `app_class` picks the column of V_p in a variability file,
and `activity_frac` feeds the power equation.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from fairlead.model.contention import Solo

if TYPE_CHECKING:
    from fairlead.model.service import Service
    from fairlead.model.training import Training

Locality = float | Mapping[str, float]
"""The penalty for spanning nodes: one for all, or one per class (others keep their profile's)."""


class Speedup(Protocol):
    """Speed on k GPUs as a multiple of the speed on one."""

    def __call__(self, gpus: float) -> float:
        """s(k), with s(1) = 1."""
        ...


@dataclass(frozen=True, slots=True)
class Power:
    """s(k) = k^p. `p = 1` is linear."""

    p: float = 1.0

    def __call__(self, gpus: float) -> float:
        """s(k) = k^p, the speedup on k GPUs."""
        return float(gpus**self.p)


@dataclass(frozen=True, slots=True)
class Amdahl:
    """s(k) = 1 / (1 - f + f/k), f the parallel fraction."""

    f: float

    def __call__(self, gpus: float) -> float:
        """s(k) = 1 / (1 - f + f/k), the speedup on k GPUs."""
        return 1.0 / (1.0 - self.f + self.f / gpus)


@dataclass(frozen=True, slots=True)
class Table:
    """Measured points, linear between them and flat beyond the last."""

    widths: tuple[float, ...]
    speedups: tuple[float, ...]

    def __call__(self, gpus: float) -> float:
        """s(k) by the table, linear between its widths."""
        points = list(zip(self.widths, self.speedups, strict=True))
        if gpus <= points[0][0]:
            return points[0][1]
        for (k0, s0), (k1, s1) in itertools.pairwise(points):
            if gpus <= k1:
                return s0 + (s1 - s0) * (gpus - k0) / (k1 - k0)
        return points[-1][1]


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of jobs that are alike."""

    name: str = "generic"
    app_class: str = "A"
    """How it feels slow GPUs (PAL): A most. What is unknown is A, the worst assumption."""
    speedup: Speedup = field(default_factory=Power)
    locality: float = 1.0
    """L: iteration time spanning nodes over iteration time inside one node."""
    restart_s: float = 0.0
    """Checkpoint, stop and start again: seconds without progress on the new GPUs after each preemption or move."""
    checkpoint_every_s: float = 1800.0
    """A node failure loses the progress since the last checkpoint."""
    activity_frac: float = 0.5
    """Mean activity of a GPU that it has to itself."""
    memory_mib: float = 0.0
    """Peak memory on each GPU; 0 is unknown."""
    epoch_s: float = 600.0
    """Seconds of one epoch at nominal speed. An epoch's end is where a job can be moved without losing work."""
    training: Training | None = None
    """How it trains, epoch by epoch, where that was measured; then `speedup`, `locality` and `epoch_s` play no part.
    Policies do not read it: they see what jobs report."""
    solo: Solo | None = None
    """Measured alone on one GPU: what decides how it gets on with a service, or with an offline job."""
    service: Service | None = None
    """Of a service: its demand over time. Policies do not read it: they see what is metered."""

    def with_options(self, *, locality: Locality | None = None, restart_s: float | None = None) -> Profile:
        """The same where an option of the run overrides it."""
        if isinstance(locality, Mapping):
            locality = locality.get(self.app_class)
        return replace(
            self,
            locality=self.locality if locality is None else locality,
            restart_s=self.restart_s if restart_s is None else restart_s,
        )


GENERIC = Profile()
"""Linear speedup, no locality penalty, free restarts, GPUs half busy: neutral until something is known."""

# The four of EaCO, alone on eight V100 of 32 GiB, 90 epochs of ImageNet (docs/papers/eaco.md). Activity is what the
# paper's power fit, 359.8 + 176.57 * u^0.48 W with u in %, needs for the measured power; the paper reports means of
# 4.7, 11.2, 36.6 and 48.0 %. PAL classes ResNet-50 and a VGG; the other two are unknown, so A. Memory is the mean that
# the paper reports: its maxima cannot be footprints, as they add up to 114 % while all four together show 53.
_EACO = tuple(
    Profile(name, app_class, activity_frac=activity, memory_mib=memory * 32_768, epoch_s=solo_h * 3600 / 90)
    for name, app_class, activity, memory, solo_h in (
        ("AlexNet", "A", 0.042144, 0.0173, 34.76),
        ("ResNet-18", "A", 0.127506, 0.0607, 35.13),
        ("ResNet-50", "A", 0.347977, 0.2229, 36.01),
        ("VGG-16", "C", 0.516950, 0.3003, 36.13),
    )
)

# Classes are those of PAL's artifact (docs/papers/pal.md); activities are the means that the EaCO paper measured for
# ResNet-50 and VGG-16, and GENERIC's where nothing was published.
PROFILES: Mapping[str, Profile] = {
    p.name.lower(): p
    for p in (
        GENERIC,
        Profile("resnet50", app_class="A", activity_frac=0.37),
        Profile("vgg19", app_class="C", activity_frac=0.48),
        Profile("DCGAN", app_class="B"),
        Profile("BERT", app_class="B"),
        Profile("GPT2", app_class="B"),
        Profile("PointNet", app_class="D"),
        *_EACO,
    )
}
"""Those that are built in, by their names in small letters."""


@lru_cache(maxsize=4096)
def profile_named(name: str) -> Profile:
    """The built-in profile of that name, else the generic one under that name."""
    known = PROFILES.get(name.lower())
    return known if known is not None else replace(GENERIC, name=name)

"""What is seen of a GPU over time: windows, gaps, and how many windows in a row have shown what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.policy.guarding.config import GuardConfig
from fairlead.policy.guarding.sample import BAD, OVER, SEEN, SLO, UTIL_OVER, Sample, Window

GOOD, CALM, WORSE, OVERS, UTILS, SLOS, VALID = range(7)


class Streaks:
    """Windows in a row that were: healthy, under Overlimit, broken, over, over in utilisation, with SLO signal, seen.

    Each count stops at what it is needed for, so that a GPU to which nothing new happens comes to rest.
    """

    __slots__ = ("_config", "_tops", "rows")

    def __init__(self, config: GuardConfig) -> None:
        c = self._config = config
        self._tops = (
            max(c.better_windows, c.init_windows),
            c.better_windows,
            c.worse_windows,
            c.worse_windows,
            c.util_over_windows,
            c.slo_windows,
            c.init_windows,
        )
        self.rows: tuple[int, ...] = (0,) * len(self._tops)

    def take(self, flags: int) -> None:
        """A window has closed that showed these flags."""
        over = flags & (OVER | UTIL_OVER | SLO)
        seen = flags & SEEN
        goes_on = (
            seen and not over and not flags & BAD,
            seen and not over,
            over or flags & BAD,
            flags & OVER,
            flags & UTIL_OVER,
            flags & SLO,
            seen,
        )
        self.rows = tuple(
            min(row + 1, top) if on else 0 for row, top, on in zip(self.rows, self._tops, goes_on, strict=True)
        )

    def lose(self) -> None:
        """The GPU is out of sight; only the service's own signal still counts."""
        self.rows = tuple(row if i == SLOS else 0 for i, row in enumerate(self.rows))

    def load(self, rows: Sequence[int]) -> None:
        """Go on from saved counts."""
        if len(rows) != len(self._tops):
            raise ValueError(f"{len(rows)} counts of windows, not {len(self._tops)}")
        self.rows = tuple(min(int(row), top) for row, top in zip(rows, self._tops, strict=True))

    @property
    def better(self) -> bool:
        """Healthy for long enough to get better."""
        return self.rows[GOOD] >= self._config.better_windows

    @property
    def calm(self) -> bool:
        """Under the limits of Overlimit for long enough to leave it."""
        return self.rows[CALM] >= self._config.better_windows

    @property
    def worse(self) -> bool:
        """Some limit broken for long enough."""
        return self.rows[WORSE] >= self._config.worse_windows

    @property
    def util_over(self) -> bool:
        """Utilisation over its limit for long enough."""
        return self.rows[UTILS] >= self._config.util_over_windows

    @property
    def slo_broken(self) -> bool:
        """The SLO signal for long enough."""
        return self.rows[SLOS] >= self._config.slo_windows

    @property
    def overlimit(self) -> bool:
        """Whether there is any reason for Overlimit."""
        return self.rows[OVERS] >= self._config.worse_windows or self.util_over or self.slo_broken

    @property
    def observed(self) -> bool:
        """Seen for long enough to leave Init."""
        return self.rows[VALID] >= self._config.init_windows

    @property
    def all_good(self) -> bool:
        """Healthy in all windows that Init asks for."""
        return self.rows[GOOD] >= self._config.init_windows


class Watch:
    """The time since a GPU's observation began: the present window, and whether the GPU is in sight."""

    __slots__ = ("_config", "index", "seen_s", "since_s", "streaks", "time_s", "window")

    def __init__(self, config: GuardConfig, time_s: float) -> None:
        self._config = config
        self.time_s = time_s
        """The latest moment that it was told of."""
        self.index = self.index_of(time_s)
        """The present window: from `index * window_s`."""
        self.window = Window()
        self.streaks = Streaks(config)
        self.since_s: float | None = None
        """Since when the GPU has been seen without a gap."""
        self.seen_s: float | None = None
        """The last usable sample; None where that was too long ago."""

    @property
    def start_s(self) -> float:
        """Where the present window begins."""
        return self.index * self._config.window_s

    @property
    def end_s(self) -> float:
        """When the present window ends."""
        return (self.index + 1) * self._config.window_s

    @property
    def lost_s(self) -> float:
        """When the GPU is out of sight if no sample comes."""
        return math.inf if self.seen_s is None else self.seen_s + self._config.gap_s

    def index_of(self, time_s: float) -> int:
        """The window that a moment lies in."""
        w = self._config.window_s
        index = math.floor(time_s / w)
        while index * w > time_s:
            index -= 1
        while (index + 1) * w <= time_s:
            index += 1
        return index

    def add(self, sample: Sample, times: int, last_s: float) -> None:
        """A sample in the present window, or several equal ones, the last of them at `last_s`."""
        self.time_s = last_s
        self.window.slo |= sample.slo_broken
        readings = sample.readings() if sample.valid else ()
        if any(reading is not None for reading in readings):
            self.window.add(readings, times)
            self.seen_s = last_s
            if self.since_s is None:
                self.since_s = last_s

    def lose(self) -> None:
        """The GPU is out of sight."""
        self.since_s = self.seen_s = None
        self.window.clear_metrics()
        self.streaks.lose()

    def close(self) -> Window:
        """End the present window; returns it, without metrics where the GPU was not in sight from start to end."""
        window = self.window
        if self.since_s is None or self.start_s < self.since_s:
            window.clear_metrics()
        self.index += 1
        self.window = Window()
        return window

    def to_dict(self) -> dict[str, Any]:
        """The window and the streaks, in plain types that JSON keeps."""
        return {
            "time_s": self.time_s,
            "since_s": self.since_s,
            "seen_s": self.seen_s,
            "window_s": self._config.window_s,
            "index": self.index,
            "sums": list(self.window.sums),
            "counts": list(self.window.counts),
            "slo": self.window.slo,
            "streaks": list(self.streaks.rows),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any], config: GuardConfig) -> Watch:
        """A watch that goes on where the saved one was; with other windows than then it begins anew."""
        watch = cls(config, float(saved["time_s"]))
        if saved["window_s"] == config.window_s:
            watch.since_s, watch.seen_s, watch.index = saved["since_s"], saved["seen_s"], int(saved["index"])
            watch.window.sums = [int(total) for total in saved["sums"]]
            watch.window.counts = [int(count) for count in saved["counts"]]
            watch.window.slo = bool(saved["slo"])
            watch.streaks.load(saved["streaks"])
        return watch

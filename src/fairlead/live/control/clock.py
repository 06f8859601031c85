"""The scheduler's clock: seconds that only run forward, whatever happens to the time of day.

Deadlines, waits and service are counted on it. It goes on over restarts of the controller: as long as the machine has
not been booted by the kernel's own clock, else by the time of day, which is trusted forwards only and for a day at
most: it may be anything just after a boot. What cannot be undone does not go by the time of day at all, but by `up_s`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.node.process.processes import boot_id

_LONGEST_OFF_S = 86400.0
"""A machine that was off for longer counts as having been off for so long."""


class Clock:
    """Now, on the scheduler's clock and as time of day."""

    def __init__(
        self,
        saved: Mapping[str, Any] | None = None,
        *,
        boot_s: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        wall_s: Callable[[], float] = time.time,
        boot: str | None = None,
    ) -> None:
        self._boot_s, self._wall_s = boot_s, wall_s
        self._boot = boot_id() if boot is None else boot
        passed_s = up_s = 0.0
        if saved is not None:
            same = saved["boot"] == self._boot
            passed_s = boot_s() - saved["boot_s"] if same else min(wall_s() - saved["wall_s"], _LONGEST_OFF_S)
            up_s = float(saved.get("up_s", 0.0)) + max(boot_s() - saved["boot_s"] if same else boot_s(), 0.0)
        self._base_s = (0.0 if saved is None else float(saved["now_s"])) + max(passed_s, 0.0)
        self._base_up_s = up_s
        self._from_s = boot_s()

    def now_s(self) -> float:
        """On the scheduler's clock, which began at 0 when its first controller did."""
        return self._base_s + max(self._boot_s() - self._from_s, 0.0)

    def up_s(self) -> float:
        """The same without the time between two boots, of which nobody knows for certain how long it was."""
        return self._base_up_s + max(self._boot_s() - self._from_s, 0.0)

    def wall_s(self) -> float:
        """The time of day, for people."""
        return self._wall_s()

    def at_s(self, wall_s: float) -> float:
        """When that was on the scheduler's clock; never later than now."""
        return self.now_s() - max(self._wall_s() - wall_s, 0.0)

    def save(self) -> dict[str, Any]:
        """What the next controller's clock goes on from."""
        clocks = {"boot_s": self._boot_s(), "wall_s": self._wall_s()}
        return {"now_s": self.now_s(), "up_s": self.up_s(), "boot": self._boot, **clocks}

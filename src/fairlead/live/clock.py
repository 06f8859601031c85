"""The scheduler's clock: seconds that only run forward, whatever happens to the time of day.

Deadlines, waits and service are counted on it. It goes on over restarts of the controller: as long as the machine has
not been booted by the kernel's own clock, else by the time of day, which is trusted forwards only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.node.processes import boot_id


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
        passed_s = 0.0
        if saved is not None:
            same = saved["boot"] == self._boot
            passed_s = boot_s() - saved["boot_s"] if same else wall_s() - saved["wall_s"]
        self._base_s = (0.0 if saved is None else float(saved["now_s"])) + max(passed_s, 0.0)
        self._from_s = boot_s()

    def now_s(self) -> float:
        """On the scheduler's clock, which began at 0 when its first controller did."""
        return self._base_s + max(self._boot_s() - self._from_s, 0.0)

    def wall_s(self) -> float:
        """The time of day, for people."""
        return self._wall_s()

    def at_s(self, wall_s: float) -> float:
        """When that was on the scheduler's clock; never later than now."""
        return self.now_s() - max(self._wall_s() - wall_s, 0.0)

    def save(self) -> dict[str, Any]:
        """For the next controller."""
        return {"now_s": self.now_s(), "boot": self._boot, "boot_s": self._boot_s(), "wall_s": self._wall_s()}

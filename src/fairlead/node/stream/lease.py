"""How long a node may run jobs without a word from its controller.

Each answer of the controller renews it. When it ends, the agent has asked its jobs to stop and the supervisors kill
what is left, agent or not (`process/supervisor.py`): so a controller that has heard nothing for that long, and a little
more, may start the jobs elsewhere. It counts on the clock since boot, which nobody sets; after a boot nothing runs.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from fairlead.node.process import lease_file
from fairlead.node.process.processes import boot_s

_SOFT = 0.25
"""Jobs are asked to end when this part of the lease is left,"""
_MOST_SOFT_S = 30.0
"""or so many seconds."""


class Lease:
    """Of one agent's folder. The agent renews it; supervisors read it."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / lease_file.LEASE)
        self._soft_s = 0.0
        self._ends_s = lease_file.ends_s(self._path)

    def renew(self, sent_s: float, lease_s: float) -> None:
        """The controller has answered what was sent then."""
        self._soft_s = min(_SOFT * lease_s, _MOST_SOFT_S)
        with contextlib.suppress(OSError):  # a full disk: then it ends earlier, which is safe
            lease_file.write(self._path, sent_s + lease_s)
            self._ends_s = sent_s + lease_s

    @property
    def left_s(self) -> float:
        """Until nothing may run any more."""
        return float("inf") if self._ends_s is None else max(self._ends_s - boot_s(), 0.0)

    @property
    def is_ending(self) -> bool:
        """Whether jobs should be asked to end, while there is time."""
        return self.left_s <= self._soft_s

    def drop(self) -> None:
        """The jobs that came with it are over; the next one begins anew."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        self._ends_s = None

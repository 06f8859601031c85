"""Whether a controller does its work: not that nothing was raised, but that things have happened lately.

The reasons are for whoever watches it, with or without a token: they name no job, user or file. Calls may come from any
thread, `probe` from one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

from fairlead.live.control.controller import Controller
from fairlead.live.storage.store import Store

SLACK_S = 10.0
"""By so much the loop and the guards may be late: an agent is given as long to answer."""
PROBE_S = 2.0
"""What is known of the store is at most so old."""
SLOW_S = 3.0
"""A write to the store that takes longer counts as none."""


class Health:
    """Judges whether a controller does its work, for /health and for people."""

    def __init__(self, controller: Controller, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._controller, self._store, self._clock = controller, store, clock
        self._probe: Future[None] | None = None
        self._probed_s = 0.0

    @property
    def loop_age_s(self) -> float:
        """Since the control loop last came round."""
        return max(self._clock() - self._controller.turned_s, 0.0)

    def reasons(self) -> list[str]:
        """Why it does not do its work; none where it does. The last that is known of the store is among them."""
        return [one for one in (self._of_loop(), *self._of_nodes(), self._known_of_store()) if one]

    def probe(self) -> Future[None]:
        """A write to the store that tells whether it can be written: one at a time, and seldom."""
        is_old = self._clock() - self._probed_s > PROBE_S
        if self._probe is None or (self._probe.done() and is_old):
            self._probed_s = self._clock()
            self._probe = self._store.probe()
        return self._probe

    def patience_s(self) -> float:
        """How much longer the write under way may take before it counts as none."""
        return self._probed_s + SLOW_S - self._clock()

    def _of_loop(self) -> str:
        controller = self._controller
        if controller.thread is None or not controller.thread.is_alive():
            return "the control loop does not run"
        if self.loop_age_s > controller.settings.poll_s + SLACK_S:
            why = ": the policy does not decide" if controller.policy_trouble else ""
            return f"the control loop has not come round for {self.loop_age_s:.0f} s{why}"
        if controller.trouble:
            return "the control loop has trouble, and its log says which"
        return "the policy does not decide in time" if controller.policy_trouble else ""

    def _of_nodes(self) -> list[str]:
        poll, nodes = self._controller.poll, len(self._controller.cluster.nodes)
        late = [age_s for age_s in poll.guard_age_s.values() if age_s > SLACK_S]
        return [
            f"{len(poll.unreachable)} of {nodes} nodes do not answer" if poll.unreachable else "",
            f"the guards of {len(late)} of {nodes} nodes have not looked for {max(late):.0f} s" if late else "",
        ]

    def _known_of_store(self) -> str:
        if self._probe is None:
            return ""
        if not self._probe.done():
            late_s = self._clock() - self._probed_s
            return f"the store has not written for {late_s:.0f} s" if self.patience_s() <= 0 else ""
        return "" if self._probe.exception() is None else "the store cannot be written"

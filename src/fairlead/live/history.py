"""Keeps what the cluster did over time: looks every few seconds, and writes a row a minute.

Nothing is known of the time in which no controller ran; it is left out, not made up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from fairlead.live.control.controller import Controller
from fairlead.live.control.node_states import gpu_states
from fairlead.live.prices import paid_nodes
from fairlead.live.storage import history
from fairlead.live.storage.database import Database, StoreError

log = logging.getLogger("fairlead")
SAMPLE_S = 10.0


class HistoryRecorder:
    """Of one controller; `start` has a thread look, `close` ends it. Or call `sample` by hand."""

    def __init__(
        self,
        controller: Controller,
        database: Database,
        *,
        wall_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._controller, self._database, self._wall_s, self._clock = controller, database, wall_s, clock
        self._looked_s: float | None = None
        self._meters: dict[int, float] = {}
        """What each GPU's meter had counted at the last look."""
        self._at_s = 0
        self._sums = dict.fromkeys(history.SUMS, 0.0)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to sample the cluster, in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what there is, and end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._write()

    def sample(self) -> None:
        """One look: what holds now is taken to have held since the last one."""
        now_s = self._clock()
        passed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        at_s = int(self._wall_s()) // history.MINUTE_S * history.MINUTE_S
        if at_s != self._at_s:
            self._write()
            self._at_s = at_s
        for name, value in self._rates(passed_s).items():
            self._sums[name] += value

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.sample()
            except Exception:  # the controller may be beginning anew; the next look is as good
                log.exception("the history misses a look")
            self._stopping.wait(SAMPLE_S)

    def _rates(self, passed_s: float) -> dict[str, float]:
        controller = self._controller
        driver, nodes = controller.driver, controller.driver.view.cluster.nodes
        paid = paid_nodes(controller)
        return {
            "covered_s": passed_s,
            "gpu_s": passed_s * driver.view.cluster.gpus,
            "busy_gpu_s": passed_s * gpu_states(controller).count("busy"),
            "running_job_s": passed_s * len(driver.view.running),
            "waiting_job_s": passed_s * len(driver.view.waiting),
            "energy_j": self._energy_j(passed_s),
            "paid_gpu_s": passed_s * sum(nodes[n].gpus for n in paid),
            "cost_usd": passed_s / 3600.0 * sum(nodes[n].gpus * nodes[n].gpu_model.price_usd_per_h for n in paid),
        }

    def _energy_j(self, passed_s: float) -> float:
        """By the GPUs' meters; where a GPU has none, or has begun to count anew, by what it draws."""
        total_j, before, self._meters = 0.0, self._meters, {}
        for gpu, reading in self._controller.poll.readings.items():
            counted_j = reading.energy_j
            if counted_j is not None:
                self._meters[gpu] = counted_j
            if counted_j is not None and counted_j >= before.get(gpu, float("inf")):
                total_j += counted_j - before[gpu]
            elif passed_s and reading.power_w is not None:
                total_j += reading.power_w * passed_s
        return total_j

    def _write(self) -> None:
        sums, self._sums = self._sums, dict.fromkeys(history.SUMS, 0.0)
        if sums["covered_s"] > 0.0:
            try:
                history.add(self._database, self._at_s, sums).result()
            except StoreError as error:
                log.warning("a minute of the history is lost: %s", error.message)

"""An engine for Fairlead: every attempt is a plain process of this machine, on GPUs that are only numbers.

It keeps what it knows in memory, so it forgets with its controller. A real one asks somebody who stays: an agent on
each node, a batch system, a cloud.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.live.engines.engine import AttemptState, AttemptStatus, Heard, LogPlace, Poll, StoppedBy, Stream
from fairlead.live.engines.registry import Site
from fairlead.model.cluster import parse_shape
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order


@dataclass
class Run:
    """One attempt; without a process it was stopped before it came, and never starts."""

    process: subprocess.Popen[bytes] | None
    started_at_s: float | None = None
    stopped_at_s: float | None = None
    ended_at_s: float | None = None


class BareEngine:
    """All nodes of the cluster are this machine. Every call may be repeated, and comes from any thread."""

    is_fake = True

    def __init__(self, shape: str, folder: Path) -> None:
        self.cluster, self._folder = parse_shape(shape), folder
        self._runs: dict[AttemptId, Run] = {}
        self._lock = threading.Lock()
        self._on_change: Callable[[], None] = lambda: None

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this when there is news: the controller then polls at once, not only every few seconds."""
        self._on_change = on_change

    def poll(self, heard: Heard | None = None) -> Poll:
        """The whole truth: every attempt that was started or stopped here, and not forgotten."""
        nodes = frozenset(range(len(self.cluster.nodes)))
        with self._lock:
            return Poll({one: self._status(one, run) for one, run in self._runs.items()}, {}, frozenset(), nodes)

    def start(self, order: Order, gpus: Placement) -> None:
        """Start it, unless it was ever started or stopped here."""
        with self._lock:
            if order.id in self._runs:
                return
            folder = self._folder / str(order.id)
            folder.mkdir(parents=True)
            with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
                process = subprocess.Popen(
                    order.argv, cwd=order.cwd, env={**os.environ, **order.env, **order.environment()},
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                )  # fmt: skip
            run = self._runs[order.id] = Run(process, time.time())
        threading.Thread(target=self._wait, args=(process, run), daemon=True).start()

    def stop(self, attempt: AttemptId, grace_s: float | None = None, gpus: Placement = ()) -> None:
        """SIGTERM, and SIGKILL after the grace; one that is not here never starts, however late its order."""
        with self._lock:
            run = self._runs.setdefault(attempt, Run(None, ended_at_s=time.time()))
            if run.stopped_at_s is None and run.process is not None:
                self._signal(run, signal.SIGTERM)
                threading.Timer(30.0 if grace_s is None else grace_s, self._signal, (run, signal.SIGKILL)).start()
            run.stopped_at_s = run.stopped_at_s or time.time()
        self._on_change()

    def forget(self, attempt: AttemptId) -> None:
        """It is over and on the controller's disk: poll need not tell of it any more."""
        with self._lock:
            self._runs.pop(attempt, None)

    def read_log(self, attempt: AttemptId, stream: Stream, offset: int, limit: int, gpus: Placement = ()) -> bytes:
        """A piece of what it wrote; below 0 the offset counts from the end. Nobody notes the order of both streams."""
        files = [self._folder / str(attempt) / name for name in ("stdout", "stderr") if stream in (name, "all")]
        return b"".join(file.read_bytes() for file in files if file.exists())[offset:][:limit]

    def locate_log(self, attempt: AttemptId, stream: Stream, since_s: float, gpus: Placement = ()) -> LogPlace:
        """Where its output is; without noted times all of it counts."""
        folder = self._folder / str(attempt)
        return LogPlace(str(folder) if folder.exists() else None)

    def remove(self, job_id: int, gpus: Placement = ()) -> None:
        """Delete the logs of a job that is over for good."""
        for log in self._folder.glob(f"{job_id}.*/std*"):
            log.unlink(missing_ok=True)

    def sleep(self, node: int) -> None:
        """Nothing can be saved here."""

    def wake(self, node: int) -> None:
        """It never slept."""

    def enable(self, gpu: int) -> bool:
        """There are no guards, so none has disabled a GPU."""
        return False

    def refresh(self) -> bool:
        """No node comes or goes."""
        return False

    def vacated(self, nodes: frozenset[int]) -> None:
        """No node is ever absent."""

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of: a restored database must not give their numbers out again."""
        return max((one.job_id for one in self._runs), default=0)

    def close(self) -> None:
        """Let go; processes run on."""

    def _wait(self, process: subprocess.Popen[bytes], run: Run) -> None:
        process.wait()
        run.ended_at_s = time.time()
        self._on_change()

    def _signal(self, run: Run, number: int) -> None:
        if run.process is not None and run.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, number)

    def _status(self, attempt: AttemptId, run: Run) -> AttemptStatus:
        code = None if run.process is None else run.process.poll()
        is_over = run.process is None or (code is not None and run.ended_at_s is not None)
        return AttemptStatus(
            attempt,
            AttemptState.ENDED if is_over else AttemptState.RUNNING,
            exit_code=None if code is None else code if code >= 0 else 128 - code,
            reason="" if not is_over else "exited" if code is not None and code >= 0 else "signalled",
            started_at_s=run.started_at_s,
            ended_at_s=run.ended_at_s,
            stop_requested_at_s=run.stopped_at_s,
            stopped_by=StoppedBy.FAIRLEAD if is_over and run.stopped_at_s is not None else StoppedBy.NOBODY,
            ran_s=None if run.ended_at_s is None or run.started_at_s is None else run.ended_at_s - run.started_at_s,
        )


def make(site: Site) -> BareEngine:
    """The entry point, in the group `fairlead.engines`: a controller's site in, its engine out."""
    return BareEngine("1x2", site.home.path / "runs")

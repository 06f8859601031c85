"""A whole live system in one process: store, control loop and the local engine on fake GPUs, with real jobs."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.live.control.clock import Clock
from fairlead.live.control.controller import Controller
from fairlead.live.control.observations import Observations
from fairlead.live.control.settings import Settings
from fairlead.live.engines.local import LocalEngine
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.request import JobRequest
from fairlead.live.jobs.states import State
from fairlead.live.storage.database import Database
from fairlead.live.storage.store import Store
from fairlead.model.catalogue import BUILT_IN, Catalogue
from fairlead.model.cluster import Cluster
from fairlead.model.interference import Interference, built_in
from fairlead.node.process.processes import processes
from fairlead.policy import registry
from tests.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


def agents_in(folder: Path) -> list[int]:
    """The processes of the agents below a folder."""
    found = []
    for one in processes():
        with contextlib.suppress(OSError):  # it may be gone by now
            line = Path(f"/proc/{one.pid}/cmdline").read_bytes()
            if b"fairlead.node.http.server" in line and bytes(folder) in line:
                found.append(one.pid)
    return found


class Rig:
    """`spec` is the policy; `change` makes another cluster of the engine's."""

    def __init__(
        self,
        spec: str,
        *,
        interference: Interference | None = None,
        change: Callable[[Cluster], Cluster] = lambda cluster: cluster,
        catalogue: Catalogue = BUILT_IN,
        **engine: Any,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="fairlead-"))  # short: sockets are made in it
        self.store = Store(Database(self.home / "fairlead.db"))
        self.engine = LocalEngine(self.home / "nodes", knows=lambda one: self.store.knows(one), **engine)
        self.engine.cluster = change(self.engine.cluster)
        self._catalogue = catalogue
        self._spec, self._interference = spec, interference or built_in("eaco")
        self.start()

    def start(self) -> None:
        """A controller, on what the last one left."""
        self.clock = Clock(self.store.fact("clock"))
        observations = Observations(self.clock, self._interference, is_fake=True)
        stack = registry.build(self._spec)
        settings, catalogue = Settings(save_s=1.0), self._catalogue
        self.controller = Controller(
            self.store, self.engine, stack, self.clock, observations, settings, catalogue=catalogue
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self.controller.run, args=(self._stopping,))
        self._thread.start()

    def stop(self) -> None:
        """The controller; jobs go on."""
        self._stopping.set()
        self.controller.wake()
        self._thread.join()

    def close(self) -> None:
        self.stop()
        self.engine.shutdown(kill_jobs=True)
        self.store.database.close()
        shutil.rmtree(self.home)

    def submit(self, *command: object, **more: Any) -> int:
        wanted = JobRequest(command=[str(word) for word in command], cwd=str(self.home), **more)
        submit_s, at_s = self.clock.now_s(), time.time()
        job_id, _ = self.store.submit(wanted, "ann", submit_s, at_s).result()
        self.controller.submitted(LiveJob(wanted.job(job_id, "ann", submit_s, self._catalogue), wanted, at_s))
        return job_id

    def train(self, epochs: int, epoch_s: float, **more: Any) -> int:
        """The example, with a checkpoint."""
        script = EXAMPLES / "train.py"
        env = {"PYTHONPATH": str(EXAMPLES.parent / "src"), "TMPDIR": str(self.home)}
        return self.submit(sys.executable, script, "--epochs", epochs, "--epoch-s", epoch_s, env=env, **more)

    def wish(self, job_id: int, wish: str) -> None:
        self.store.wish(job_id, wish).result()
        self.controller.wished(job_id, wish)

    def job(self, job_id: int) -> dict[str, Any]:
        row = self.store.job_row(job_id)
        assert row is not None
        return dict(row)

    def events(self, job_id: int | None = None) -> list[str]:
        """Words, in order."""
        rows = self.store.database.read("SELECT what, job_id FROM events ORDER BY id")
        return [row["what"] for row in rows if job_id is None or row["job_id"] == job_id]

    def reasons(self, job_id: int) -> list[str]:
        """Why it changed its state, in order."""
        rows = self.store.database.read("SELECT about FROM events WHERE job_id = ? ORDER BY id", (job_id,))
        return [row["about"] for row in rows]

    def attempts(self, job_id: int) -> list[dict[str, Any]]:
        rows = self.store.database.read("SELECT * FROM attempts WHERE job_id = ? ORDER BY attempt", (job_id,))
        return [dict(row) for row in rows]

    def log(self, job_id: int, stream: Any = "stdout", attempt: int | None = None) -> str:
        """Of all attempts, or of one."""
        tried = [one.id for one in self.store.attempts_of(job_id) if attempt in (None, one.id.attempt)]
        return "".join(self.engine.read_log(one, stream, 0, 1 << 20).decode() for one in tried)

    def until(self, holds: Callable[[], Any], what: str = "") -> None:
        """Wait for it, patiently."""
        end_s = time.monotonic() + PATIENCE_S
        while not holds():
            states = [(r["id"], r["state"], r["reason"]) for r in self.store.database.read("SELECT * FROM jobs")]
            assert time.monotonic() < end_s, f"{what}: {states}, {self.events()[-30:]}"
            time.sleep(0.05)

    def until_state(self, job_id: int, *states: State) -> None:
        self.until(lambda: self.job(job_id)["state"] in states, f"job {job_id} to be {', '.join(states)}")

"""A controller over Slurm, as a process of its own that may be killed, and what a user sees of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairlead.live.client import Client
from fairlead.node.process.processes import command_line, processes
from tests.live.slurm.cluster import SlurmCluster, _kill_all_below
from tests.patience import PATIENCE_S

WORK = Path(__file__).with_name("work.py")
"""What jobs run here: it counts its epochs in a file, and notes when it runs."""


class SlurmSite:
    """One home folder; `up` and `kill` as often as you like."""

    def __init__(self, slurm: SlurmCluster, *, policy: str, nodes: int, gpus: int, **settings: Any) -> None:
        self.slurm = slurm
        self.home = Path(tempfile.mkdtemp(prefix="fls-"))
        self.notes = self.home / "notes"
        self.notes.mkdir(mode=0o777)
        given = {"lease_s": 8.0, "beat_s": 0.5, "handover_s": 4.0, "time_limit": "", "rent": "", **settings}
        (self.home / "fairlead.toml").write_text(f"""
[policy]
stack = "{policy}"
[engine]
name = "slurm"
fake_gpus = 1
as_submitter = "everyone-is-root"
{given["rent"]}
[agents]
port = {given.get("port", 0)}
address = "{given.get("address", "")}"
lease_s = {given["lease_s"]}
beat_s = {given["beat_s"]}
[controller]
poll_s = 1.0
lost_after_s = 2.0
[slurm]
handover_s = {given["handover_s"]}
look_s = 0.5
folder = "{self.home}/n"
[slurm.pools.v]
nodes = {nodes}
gpus = {gpus}
model = "V100"
gres = "gpu:v100"
time_limit = "{given["time_limit"]}"
""")
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def up(self) -> None:
        line = [sys.executable, "-m", "fairlead", "up", "--quiet", f"--home={self.home}", "--port=0"]
        (self.home / "url").unlink(missing_ok=True)
        with open(self.home / "up.out", "ab") as said:
            self._process = subprocess.Popen(
                line, env=self.slurm.env, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        while not (self.home / "url").exists():
            assert self._process.poll() is None, self.story()
            time.sleep(0.05)
        self._client = Client((self.home / "url").read_text().strip(), (self.home / "token").read_text().strip())

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def kill(self) -> None:
        """SIGKILL, at this very moment."""
        assert self._process is not None
        self.client.close()
        self._process.kill()
        self._process.wait()

    def agents(self) -> list[int]:
        """The processes of the agents on its pilots."""
        return [one.pid for one in processes() if not one.has_ended and _is_agent(one.pid, self.home)]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self._process.kill()
            self._process.wait()
        _kill_all_below(self.home)
        shutil.rmtree(self.home, ignore_errors=True)

    def submit(self, epochs: int, epoch_s: float = 0.3, **more: Any) -> int:
        command = [sys.executable, str(WORK), str(self.notes), str(epochs), str(epoch_s)]
        env = {"PYTHONPATH": os.pathsep.join(sys.path)}
        asked = {"command": command, "cwd": str(self.home), "env": env, "grace_s": 2.0, "retries": 1000, **more}
        found: int = self.client.submit(asked)["id"]
        return found

    def states(self) -> dict[int, str]:
        return {row["id"]: row["state"] for row in self.client.jobs()}

    def until(self, holds: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> None:
        until_s = time.monotonic() + within_s
        while True:
            with contextlib.suppress(Exception):
                if holds():
                    return
            assert time.monotonic() < until_s, f"waited in vain for {what}\n{self.story()}"
            time.sleep(0.05)

    def story(self) -> str:
        """What the controller said last."""
        files = [path for name in ("up.out", "controller.log") if (path := self.home / name).exists()]
        return "\n".join(path.read_text(errors="replace")[-6000:] for path in files)

    def runs(self) -> dict[tuple[int, int], list[tuple[float, float]]]:
        """When each job's part ran, by its own notes: from and until, on the machine's clock since boot."""
        found: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for told in self.told():
            found.setdefault((told["job"], told["rank"]), []).append((told["began_s"], told["seen_s"]))
        return found

    def on_gpus(self) -> dict[str, list[tuple[float, float]]]:
        """When somebody ran on each GPU."""
        found: dict[str, list[tuple[float, float]]] = {}
        for told in self.told():
            for gpu in told["gpus"]:
                found.setdefault(gpu, []).append((told["began_s"], told["seen_s"]))
        return found

    def told(self) -> list[dict[str, Any]]:
        """The notes of all processes that jobs ever had."""
        return [json.loads(path.read_text()) for path in self.notes.glob("*.runs")]


def _is_agent(pid: int, home: Path) -> bool:
    words = command_line(pid)
    return any("fairlead.node.http.server" in word for word in words) and any(str(home) in word for word in words)

"""A live session as a user has it, written down: a service and two trainings on one GPU, shared, metered, one evicted.

    PYTHONPATH=src python bench/gpu/live.py --out live.md            # on a GPU
    PYTHONPATH=src python bench/gpu/live.py --out live.md --fake     # the same without one

First under `muxflow`: a training runs beside the service until a burst of requests breaks the service's objective; the
guard evicts it, and it comes back when the GPU takes work again. Then under `eaco`: two trainings share the GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import ROOT, WORKLOADS
from transcript import Transcript

CONFIG = """
[guard]
init_s = 10.0
window_s = 2.0
gap_s = 2.0
hold_s = 20.0
"""


class Session(Transcript):
    """The commands of a user, and what is looked at quietly in between."""

    def __init__(self, home: Path, fake: bool) -> None:
        super().__init__(home, {"FAIRLEAD_HOME": str(home)})
        self.home, self.fake = home, fake

    def jobs(self) -> dict[str, dict[str, Any]]:
        """By name, quietly."""
        command = [sys.executable, "-m", "fairlead", "jobs", "--all", "--json"]
        found = json.loads(subprocess.run(command, env=self.env, capture_output=True, text=True, check=True).stdout)
        return {job["name"]: job for job in found["jobs"]}

    def until(self, holds: Callable[[dict[str, dict[str, Any]]], Any], what: str, most_s: float = 120.0) -> None:
        end_s = time.monotonic() + most_s
        while not holds(self.jobs()):
            if time.monotonic() > end_s:
                self.text(f"(waited {most_s:.0f} s in vain for {what})")
                return
            time.sleep(0.5)

    # ---- what is run ----

    def up(self, policy: str) -> None:
        (self.home / "fairlead.toml").write_text(CONFIG)
        fake = " --fake-gpus 1" if self.fake else ""
        self.run(f"fairlead up --policy {policy}{fake} --port 0 --detach --quiet")

    def service(self) -> str:
        if self.fake:
            return (
                f"python {ROOT}/examples/service.py --latency-ms 10 --requests-per-s 50 --burst-every-s 90 --burst-s 12"
            )
        return f"{sys.executable} {WORKLOADS}/service.py --socket {self.home}/web.sock"

    def load(self) -> subprocess.Popen[bytes] | None:
        """40 requests a second, and a burst in the middle."""
        if self.fake:
            return None
        command = [sys.executable, str(WORKLOADS / "client.py"), "--socket", str(self.home / "web.sock")]
        command += ["--load", "60:40,12:400,240:40", "--out", str(self.home / "client.json")]
        return subprocess.Popen(command, env=self.env)

    def training(self, epochs: int, stall_ms: int = 0) -> str:
        if self.fake:
            return f"python {ROOT}/examples/train.py --epochs {epochs} --epoch-s {2 if stall_ms == 0 else 5}"
        stall = f" --stall-ms {stall_ms}" if stall_ms else ""
        return f"{sys.executable} {WORKLOADS}/epochs.py --epochs {epochs} --steps 60{stall}"


def beside_a_service(session: Session) -> None:
    session.text("## Beside a service")
    session.up("muxflow")
    session.run("fairlead nodes")
    env = "--env PYTHONPATH"
    session.run(f"fairlead submit --service --slo 30ms --name web {env} -- {session.service()}")
    session.until(lambda jobs: jobs["web"]["state"] == "running", "the service")
    time.sleep(15.0)
    load = session.load()
    session.run(f"fairlead submit --name first --mem 40GiB {env} -- {session.training(40)}")
    session.run(f"fairlead submit --name second --mem 20GiB {env} -- {session.training(6, 60)}")
    session.until(lambda jobs: jobs["first"]["state"] == "running" and jobs["first"]["epochs_done"], "an epoch")
    for line in ("jobs", "explain first", "explain second", "top --once"):
        session.run(f"fairlead {line}")
    session.text("Then ten times the requests, for twelve seconds:")
    session.until(lambda jobs: jobs["first"]["attempt"] >= 1 and jobs["first"]["state"] == "waiting", "an eviction")
    session.run("fairlead jobs")
    session.run("fairlead explain first")
    session.text("After the burst the GPU takes work again, and the other training is first in line:")
    session.until(lambda jobs: jobs["second"]["epochs_done"], "the second training")
    session.run("fairlead jobs")
    session.text("The evicted one has kept away for a minute; then it goes on from its checkpoint:")
    session.until(lambda jobs: jobs["first"]["state"] == "running" and jobs["first"]["attempt"] > 1, "its return")
    time.sleep(12.0)
    for line in ("jobs", "logs first", "status first", "status web", "events"):
        session.run(f"fairlead {line}")
    session.run("fairlead cancel web first")
    session.until(lambda jobs: not any(job["phase"] for job in jobs.values()), "everybody to leave")
    session.run("fairlead down")
    if load is not None:
        load.terminate()
        load.wait()


def side_by_side(session: Session) -> None:
    session.text("## Side by side")
    session.up("eaco")
    env = "--env PYTHONPATH"
    for name, profile in (("one", "AlexNet"), ("two", "ResNet-18")):
        training = session.training(40, 60)
        session.run(f"fairlead submit --name {name} --profile {profile} --mem 20GiB {env} -- {training}")
        session.until(lambda jobs, name=name: jobs[name]["epochs_done"], "an epoch")
    time.sleep(10.0)
    for line in ("jobs", "explain two", "top --once"):
        session.run(f"fairlead {line}")
    session.run("fairlead cancel one two")
    session.until(lambda jobs: not any(job["phase"] for job in jobs.values()), "everybody to leave")
    session.text("What each of them used, in joules:")
    for name in ("one", "two"):
        session.run(f"fairlead status {name}")
    session.run("fairlead down")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fake", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as home:
        session = Session(Path(home), options.fake)
        try:
            beside_a_service(session)
            side_by_side(session)
        finally:
            session.run("fairlead down --kill-jobs")
            for log in sorted(Path(home).rglob("*.log")) + sorted(Path(home).rglob("std*")):
                print(f"== {log}", log.read_text(errors="replace")[-1500:], sep="\n", flush=True)
            session.write(options.out)


if __name__ == "__main__":
    main()

"""Under root: jobs of two users on one GPU through one MPS server. Says how many steps each made in the same seconds.

PYTHONPATH=src python bench/gpu/users.py --out bench/gpu/results --other nobody
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from agents import running
from common import WORKLOADS, Stage, moments, steps, wait_until, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--other", default="nobody")
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    with Stage() as stage, tempfile.TemporaryDirectory(prefix="fl-users-") as open_to_all:
        stage.folder.chmod(0o711)  # as the controller's home is under root
        folder = Path(open_to_all)
        folder.chmod(0o777)
        script = folder / "training.py"
        shutil.copy(WORKLOADS / "training.py", script)
        script.chmod(0o644)
        users = {"mine": None, "theirs": options.other}
        with running(stage) as node:
            for name, user in users.items():
                node.start(name, job(script, folder / name), user=user, cwd=str(folder))
            try:
                wait_until(lambda: all(len(moments(folder / name)) > 30 for name in users), 90, "steps of both")
                begin_s = time.monotonic()
                time.sleep(options.seconds)
                window = (begin_s, time.monotonic() - 0.3)
                found = {name: steps(folder / name, *window)["mean_s"] for name in users}
            finally:
                for name in users:
                    print(name, len(moments(folder / name)), node.output(name)[-600:], flush=True)
            status = node.node_gpu.mps.status()
            usage = {name: [str(p) for p in node.job(name).usage.processes()] for name in users}
    made = {"step_s": found, "servers": len(status.servers), "clients": len(status.clients), "usage": usage}
    write(options.out, "users.json", made)
    print(made)


def job(script: Path, out: Path) -> list[str]:
    return [sys.executable, str(script), "--model", "resnet18", "--batch", "32", "--out", str(out)]


if __name__ == "__main__":
    main()

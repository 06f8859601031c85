"""A training that any machine can run: its steps only take time, less on more GPUs. All else is as in a real one.

    python train.py --epochs 5 --epoch-s 2

It reports its epochs, keeps a checkpoint, leaves when it is asked to, and goes on from there when it is started again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

from fairlead import job

LONGEST_STEP_S = 0.2
"""It looks after each step whether to stop."""


def arguments() -> argparse.Namespace:
    """What it was asked for."""
    parser = argparse.ArgumentParser(description="A training that only takes time.")
    parser.add_argument("--epochs", type=int, default=10, help="how many there are (default: 10)")
    parser.add_argument("--epoch-s", type=float, default=2.0, help="what one takes on one GPU, in seconds (default: 2)")
    parser.add_argument("--scaling", type=float, default=0.9, help="k GPUs are k to this power as fast (default: 0.9)")
    parser.add_argument("--batch", type=int, default=256, help="of all GPUs together (default: 256)")
    parser.add_argument("--checkpoint", type=Path, help="default: a temporary file; on several machines, one for all")
    return parser.parse_args()


def default_checkpoint() -> Path:
    """Not among your files, and another one for each folder that it is started in."""
    here = hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"fairlead-checkpoints-{os.getuid()}" / here
    return folder / f"job-{job.id or 'none'}.json"


def load(path: Path) -> tuple[int, int]:
    """The epochs that are done, and the steps of the next."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0, 0
    return found["epochs_done"], found["steps_done"]


def save(path: Path, epochs_done: int, steps_done: int) -> None:
    """All or nothing: whoever is killed while writing still has the checkpoint before."""
    if os.environ.get("NODE_RANK", "0") != "0":
        return  # on several nodes, one process writes
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.new")
    written.write_text(json.dumps({"epochs_done": epochs_done, "steps_done": steps_done}), encoding="utf-8")
    written.replace(path)


def main() -> None:
    """Train."""
    asked = arguments()
    path = asked.checkpoint or default_checkpoint()
    # In a first attempt, a file of that name is of another job that once had this number.
    is_new = asked.checkpoint is None and job.attempt == 1
    epochs_done, steps_done = (0, 0) if is_new else load(path)
    steps = max(1, round(asked.epoch_s / LONGEST_STEP_S))
    step_s = asked.epoch_s / steps / job.gpus**asked.scaling
    print(f"GPUs: {job.gpus}; done: {epochs_done} of {asked.epochs} epochs, {steps_done} of {steps} steps", flush=True)

    while epochs_done < asked.epochs:
        began_at_s, began_at_step = time.monotonic(), steps_done
        while steps_done < steps:
            if job.should_stop():
                save(path, epochs_done, steps_done)
                print(f"stopped in epoch {epochs_done + 1} after step {steps_done} of {steps}", flush=True)
                return
            time.sleep(step_s)
            steps_done += 1
        samples_per_s = (steps - began_at_step) * asked.batch / (time.monotonic() - began_at_s)
        epochs_done, steps_done = epochs_done + 1, 0
        save(path, epochs_done, steps_done)
        loss = 0.1 + 2.2 * 0.9**epochs_done
        job.epoch(epochs_done, of=asked.epochs, loss=loss, samples_per_s=samples_per_s, batch=asked.batch)
        print(f"epoch {epochs_done} of {asked.epochs}, loss {loss:.3f}", flush=True)
    job.finished()


if __name__ == "__main__":
    main()

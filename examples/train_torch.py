"""A small PyTorch training on one or many GPUs that can be stopped after any step and resumed on more or fewer GPUs.

On one GPU or none:     python train_torch.py
On all that it is given, in Fairlead's variables:

    torchrun --nnodes=$NNODES --node-rank=$NODE_RANK --nproc-per-node=$NPROC_PER_NODE \
        --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT train_torch.py

The images are made up: ten noisy patterns to be told apart. The batch is that of all GPUs together, so that the
training stays the same when their number changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fairlead import job

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError:
    sys.exit("this example needs PyTorch: pip install torch (train.py is one that needs nothing)")

IMAGES, CLASSES, SIDE = 20_000, 10, 32


def arguments() -> argparse.Namespace:
    """What it was asked for."""
    parser = argparse.ArgumentParser(description="A small PyTorch training that can be stopped and resized.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=256, help="of all GPUs together (default: 256)")
    parser.add_argument("--checkpoint", type=Path, help="default: a temporary file; on several machines, one for all")
    return parser.parse_args()


def default_checkpoint() -> Path:
    """Not among your files, and another one for each folder that it is started in."""
    here = hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"fairlead-checkpoints-{os.getuid()}" / here
    return folder / f"job-{job.id or 'none'}.pt"


def images(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures and their classes, the same in every process."""
    chance = torch.Generator().manual_seed(0)
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=chance)
    classes = torch.randint(CLASSES, (IMAGES,), generator=chance)
    noise = torch.randn(IMAGES, 3, SIDE, SIDE, generator=chance)
    return (0.1 * patterns[classes] + noise).to(device), classes.to(device)


def network() -> nn.Module:
    """Three convolutions."""
    layers: list[nn.Module] = []
    for channels_in, channels in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(channels_in, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * (SIDE // 8) ** 2, CLASSES))


class Training:
    """What a checkpoint holds; it goes on where the last attempt left off."""

    def __init__(self, path: Path, device: torch.device) -> None:
        self.path = path
        torch.manual_seed(0)
        self.model = network().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.epochs_done = 0
        self.steps_done = 0
        """Of the epoch under way."""
        if path.exists():
            found: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
            self.model.load_state_dict(found["model"])
            self.optimizer.load_state_dict(found["optimizer"])
            self.epochs_done, self.steps_done = found["epochs_done"], found["steps_done"]
        self.parallel = DistributedDataParallel(self.model) if dist.is_initialized() else self.model

    def save(self) -> None:
        """All or nothing: whoever is killed while writing still has the checkpoint before."""
        if int(os.environ.get("RANK", "0")) != 0:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_name(f"{self.path.name}.new")
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**state, "epochs_done": self.epochs_done, "steps_done": self.steps_done}, written)
        written.replace(self.path)

    def run_epoch(self, data: tuple[torch.Tensor, torch.Tensor], batch: int) -> float | None:
        """The mean loss of its last steps; None if it was asked to stop meanwhile."""
        pictures, classes = data
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        # The order depends on the epoch alone, so that an epoch can be finished by another number of GPUs.
        order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(self.epochs_done)).to(pictures.device)
        losses = []
        while self.steps_done < IMAGES // batch:
            if job.all_should_stop():
                return None
            start = self.steps_done * batch
            mine = order[start : start + batch][rank::world]
            loss = nn.functional.cross_entropy(self.parallel(pictures[mine]), classes[mine])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
            self.steps_done += 1
        self.epochs_done, self.steps_done = self.epochs_done + 1, 0
        return float(torch.stack(losses).mean())


def main() -> None:
    """Train."""
    asked = arguments()
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    if "RANK" in os.environ:  # by torchrun
        dist.init_process_group("nccl" if has_gpu else "gloo")
    training = Training(asked.checkpoint or default_checkpoint(), device)
    data = images(device)
    while training.epochs_done < asked.epochs:
        began_at_s, began_at_step = time.monotonic(), training.steps_done
        loss = training.run_epoch(data, asked.batch)
        training.save()
        if loss is None:
            print(f"stopped in epoch {training.epochs_done + 1} after step {training.steps_done}", flush=True)
            break
        samples = (IMAGES // asked.batch - began_at_step) * asked.batch
        samples_per_s = samples / (time.monotonic() - began_at_s)
        job.epoch(training.epochs_done, of=asked.epochs, loss=loss, samples_per_s=samples_per_s, batch=asked.batch)
        print(f"epoch {training.epochs_done} of {asked.epochs}, loss {loss:.3f}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

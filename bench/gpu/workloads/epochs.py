"""ResNet-50 by epochs of so many steps, with a checkpoint, under Fairlead: reports, stops when asked, resumes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torchvision

from fairlead import job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--stall-ms", type=float, default=0.0)
    options = parser.parse_args()
    path = Path(f"/tmp/fairlead-live-{job.id}.pt")
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(options.batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (options.batch,), device="cuda")
    first = 0
    if job.attempt != 1 and path.exists():
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        first = saved["epochs_done"]
    print(f"begins after {first} epochs", flush=True)
    for epoch in range(first + 1, options.epochs + 1):
        began_s = time.monotonic()
        for _ in range(options.steps):
            if job.should_stop():
                print(f"stopped in epoch {epoch}", flush=True)
                return
            time.sleep(options.stall_ms / 1e3)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
        torch.save({"model": model.state_dict(), "epochs_done": epoch}, path)
        rate = options.steps * options.batch / (time.monotonic() - began_s)
        job.epoch(epoch, of=options.epochs, loss=float(loss), samples_per_s=rate, batch=options.batch)


if __name__ == "__main__":
    main()

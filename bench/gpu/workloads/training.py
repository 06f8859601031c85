"""A training loop: saturating, or stalled as by a slow data loader. Writes the moment that each step ended.

Every step waits for the one before it, so at most two are in flight; the moments are the GPU's progress, not the
host's. They are doubles on CLOCK_MONOTONIC, appended to --out.
"""

from __future__ import annotations

import argparse
import array
import os
import signal
import sys
import time

import torch
import torchvision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--stall-ms", type=float, default=0.0)
    parser.add_argument("--out", default=os.devnull)
    parser.add_argument("--say", action="store_true", help="Print a line for each step.")
    parser.add_argument("--steps", type=int, default=10**9)
    options = parser.parse_args()

    torch.backends.cudnn.benchmark = True
    model = torchvision.models.get_model(options.model, weights=None).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(options.batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (options.batch,), device="cuda")
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    moments = array.array("d")
    pending: torch.cuda.Event | None = None
    with open(options.out, "ab", buffering=0) as out:
        for _ in range(options.steps):
            if stopping:
                break
            if options.stall_ms:
                time.sleep(options.stall_ms / 1e3)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            done = torch.cuda.Event(blocking=True)
            done.record()
            if options.stall_ms:
                done.synchronize()  # the loader waits for the step, and the step for the loader
                moments.append(time.monotonic())
            elif pending is not None:
                pending.synchronize()
                moments.append(time.monotonic())
            pending = done
            if options.say:
                print("step", flush=True)
            if moments and (len(moments) >= 64 or moments[-1] - moments[0] > 0.25):
                out.write(moments.tobytes())
                del moments[:]
        out.write(moments.tobytes())
    sys.exit(0)


if __name__ == "__main__":
    main()

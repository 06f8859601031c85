"""Three short kernel suites on one GPU: bound by compute, by memory, and mixed. Run as a program, once per GPU.

    CUDA_VISIBLE_DEVICES=GPU-... python -m fairlead.measure.on_gpu.kernels --repeats 20

Prints one JSON object: for each suite the seconds of every repeat, by CUDA events. Sizes are fixed, so that figures of
different GPUs compare; a repeat takes 10 to 50 ms on an H200 and 100 times that on a K80.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from typing import Any

from fairlead.errors import RunError

SUITES = ("compute", "mixed", "memory")
_WARM = 5


def load_torch() -> Any:
    """PyTorch with a GPU, or a clear word on what is missing."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise RunError("GPUs cannot be measured without PyTorch", hint="pip install torch") from None
    if not torch.cuda.is_available():
        raise RunError("PyTorch sees no GPU here", hint="see `fairlead doctor`, and which torch is installed")
    return torch


def suites(torch: Any) -> dict[str, Callable[[], None]]:
    """What one repeat of each does."""
    half = {"device": "cuda", "dtype": torch.float16}
    a, b = torch.randn(8192, 8192, **half), torch.randn(8192, 8192, **half)
    image, kernel = torch.randn(64, 64, 56, 56, **half), torch.randn(64, 64, 3, 3, **half)
    first, second = (torch.randn(1 << 28, device="cuda") for _ in range(2))

    def compute() -> None:
        for _ in range(8):
            torch.mm(a, b)

    def mixed() -> None:
        x = image
        for _ in range(40):  # as a vision model: convolutions, and passes over memory between them
            x = torch.relu(torch.nn.functional.conv2d(x, kernel, padding=1)) * 0.1

    def memory() -> None:
        for _ in range(20):
            second.copy_(first)

    return {"compute": compute, "mixed": mixed, "memory": memory}


def measure(repeats: int) -> dict[str, list[float]]:
    """Seconds of every repeat of every suite."""
    torch = load_torch()
    found: dict[str, list[float]] = {}
    for name, run in suites(torch).items():
        for _ in range(_WARM):
            run()
        times = []
        for _ in range(repeats):
            begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begun.record()
            run()
            ended.record()
            ended.synchronize()
            times.append(begun.elapsed_time(ended) / 1e3)
        found[name] = times
    return found


def main() -> None:
    """Time the kernels on this GPU, and print the times as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    try:
        print(json.dumps(measure(parser.parse_args().repeats)))
    except RunError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()

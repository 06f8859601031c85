"""Copies in GPU memory for ever, a line for each twenty: work that is bound by memory."""

from __future__ import annotations

import torch


def main() -> None:
    first, second = (torch.randn(1 << 28, device="cuda") for _ in range(2))
    while True:
        for _ in range(20):
            second.copy_(first)
        torch.cuda.synchronize()
        print("step", flush=True)


if __name__ == "__main__":
    main()

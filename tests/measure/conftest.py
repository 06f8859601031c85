"""Small files of measured runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a csv of the given lines."""

    def written(name: str, *lines: str) -> Path:
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return written


def frontera(app: str, perfs: Sequence[Sequence[float]], runs: int = 1) -> list[str]:
    """Lines in Frontera's form: `perfs` per node and device, each run as long as the one before."""
    lines = [",exp,reps,cabinet,node,device,perf,uuid"]
    for node, of_node in enumerate(perfs):
        for device, perf in enumerate(of_node):
            for run in range(runs):
                lines.append(f"{len(lines)},{app},{run},c1,{node + 1:03d},{device},{perf},GPU-{node}-{device}-x")
    return lines

"""What this machine has, by `fairlead doctor`, and what its meter tells.

PYTHONPATH=src python bench/gpu/machine.py --out bench/gpu/results
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path

from common import table, write

from fairlead.node.doctor import examine
from fairlead.node.gpu.meter import sample_as_json
from fairlead.node.gpu.nvml import NvmlMeter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    diagnosis = examine()
    meter = NvmlMeter()
    cost_ms = {}
    meter.read()
    for name, processes in (("cheap", False), ("full", True)):
        began_s = time.monotonic()
        for _ in range(50):
            sample = meter.read(processes=processes)[0]
        cost_ms[name] = 1e3 * (time.monotonic() - began_s) / 50
    meter.close()
    found = {"doctor": asdict(diagnosis), "read_ms": cost_ms, "idle_sample": sample_as_json(sample)}
    write(options.out, "machine.json", found)
    table(("what", "works", "found"), [(f.name, f.works, f.found) for f in diagnosis.findings])
    print(f"a reading takes {cost_ms['cheap']:.2f} ms, with processes {cost_ms['full']:.2f} ms")


if __name__ == "__main__":
    main()

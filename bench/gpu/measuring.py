"""`fairlead measure` on this machine's GPU, written down, with the files that it makes.

PYTHONPATH=src python bench/gpu/measuring.py --out DIR
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from common import WORKLOADS
from transcript import Transcript


def commands(*names: str) -> str:
    """As options."""
    lines = {
        "resnet50": "training.py --say --batch 64",
        "resnet18": "training.py --say --model resnet18 --batch 32 --stall-ms 25",
        "squeezenet": "training.py --say --model squeezenet1_1 --batch 32",
        "copies": "copies.py",
    }
    return " ".join(f"--command {shlex.quote(f'{n}={sys.executable} {WORKLOADS}/{lines[n]}')}" for n in names)


def trace(names: Sequence[str]) -> str:
    """Sixty jobs, one every five minutes."""
    rows = [f"{i},{300 * i},1200,1,{names[i % len(names)]}" for i in range(60)]
    return "\n".join(["job_id,submit_s,duration_s,gpus,model", *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    said = Transcript(options.out, {})
    seconds = f"--seconds {options.seconds:g}"
    try:
        said.text("What this machine has:")
        said.run("fairlead doctor")
        said.text("How fast its GPU is, for three kinds of work:")
        said.run("fairlead measure variability --here --out gpus.json")
        said.text("What applications use of it, alone, and which classes they fall into:")
        said.run(f"fairlead measure counters {commands('resnet50', 'resnet18', 'copies')} {seconds} --out counters.csv")
        said.run("fairlead measure classes counters.csv --k 2 --out classes.json")
        said.text("Jobs alone and together, taking turns and under MPS:")
        names = ("resnet50", "resnet18", "squeezenet")
        said.run(f"fairlead measure colocation {commands(*names)} --most 3 {seconds} --out colocation.json")
        said.text("Step time against GPUs, as far as this machine has them:")
        said.run(f"fairlead measure scaling {commands('resnet50')} {seconds} --out scaling.json")
        said.text(
            "Profiles and tables are what the simulator reads; sixty such jobs on one GPU, sharing it in either way:"
        )
        (options.out / "jobs.csv").write_text(trace(names))
        for way in ("sliced", "mps"):
            table = f"--profiles colocation.profiles.toml --interference colocation.{way}.json"
            said.run(f"fairlead simulate --trace jobs.csv --cluster 1x1:H200 --policy eaco {table}")
    finally:
        said.write(options.out / "measuring.md")


if __name__ == "__main__":
    main()

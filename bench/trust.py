"""Faults at random over a live cluster, in the long form: `python bench/trust.py --kills 1000 --seed 1`.

Each policy has a cluster of its own, of three nodes, and an equal part of the SIGKILLs; stops, restarts, restores, full
disks, hung mounts, set clocks, signals to jobs and hostile users come on top. Status 1 if anything was lost, doubled,
wrongly finished, stuck or seen by somebody else. As root it does more: users get accounts of their own, the home folder
a small disk, and mounts hang.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.live.trust.site import SPECS
from tests.live.trust.story import tell


def main() -> None:
    """All policies, one after the other; a summary as JSON on stdout."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=1000, help="SIGKILLs of controllers and agents, in all")
    options.add_argument("--seed", type=int, default=1, help="of what happens; when it happens is up to the machine")
    options.add_argument("--policy", action="append", choices=sorted(SPECS), help="only this one; may be repeated")
    options.add_argument("--keep", type=Path, help="a folder for what is left of stories that went wrong")
    given = options.parse_args()
    policies = given.policy or list(SPECS)
    parts = [given.kills // len(policies) + (n < given.kills % len(policies)) for n in range(len(policies))]
    verdicts = []
    for n, (policy, part) in enumerate(zip(policies, parts, strict=True)):
        verdict = tell(policy, given.seed * 1000 + n, part, say=_say, keep=given.keep)
        verdicts.append(verdict)
        for words in (*verdict.violations, *verdict.tracebacks):
            _say(f"{policy}: {words}")
    total = {
        "kills": sum(one.kills for one in verdicts),
        "faults": sum((one.faults for one in verdicts), Counter()),
        "deeds": sum((one.deeds for one in verdicts), Counter()),
        "jobs": sum(one.jobs for one in verdicts),
        "starts": sum(one.starts for one in verdicts),
        "forgotten": sum(one.forgotten for one in verdicts),
        "wall_s": round(sum(one.wall_s for one in verdicts)),
        "violations": sum((Counter(v.split(":")[0] for v in one.violations) for one in verdicts), Counter()),
        "stories": [vars(one) for one in verdicts],
    }
    print(json.dumps(total, indent=2))
    sys.exit(bool(total["violations"]))


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

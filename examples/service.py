"""A service that any machine can run: it "serves" requests for ever and reports how long each of them took.

    python service.py --latency-ms 20 --burst-every-s 60 --burst-s 10

In a burst the latency goes up, so that one can watch how the node's guard holds back its neighbours.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from fairlead import job


def arguments() -> argparse.Namespace:
    """What it was asked for."""
    parser = argparse.ArgumentParser(description="A service that serves nothing, and reports its latency.")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="of a usual request (default: 20)")
    parser.add_argument("--requests-per-s", type=float, default=20.0, help="(default: 20)")
    parser.add_argument("--burst-every-s", type=float, default=0.0, help="from one's start to the next (default: none)")
    parser.add_argument("--burst-s", type=float, default=10.0, help="how long each lasts (default: 10)")
    parser.add_argument("--burst-factor", type=float, default=5.0, help="on the latency meanwhile (default: 5)")
    parser.add_argument("--burst-while", type=Path, metavar="FILE", help="there is also one while this file exists")
    return parser.parse_args()


def main() -> None:
    """Serve."""
    asked = arguments()
    chance = random.Random(0)
    started_at_s = time.monotonic()
    was_burst = False
    print("serving", flush=True)
    while not job.should_stop():
        elapsed_s = time.monotonic() - started_at_s
        # The first one comes after a whole period: by then the guard knows what is usual.
        is_burst = 0 < asked.burst_every_s <= elapsed_s and elapsed_s % asked.burst_every_s < asked.burst_s
        is_burst = is_burst or (asked.burst_while is not None and asked.burst_while.exists())
        if is_burst != was_burst:
            print("a burst begins" if is_burst else "the burst is over", flush=True)
            was_burst = is_burst
        usual_s = asked.latency_ms / 1000 * (asked.burst_factor if is_burst else 1.0)
        job.latency(usual_s * chance.lognormvariate(0.0, 0.1))
        time.sleep(1.0 / asked.requests_per_s)
    print("stopped", flush=True)


if __name__ == "__main__":
    main()

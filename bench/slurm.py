"""On a real Slurm of 32 nodes on loopback: how long until the first job runs, and from a decision to its process."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.live.slurm.cluster import SlurmCluster, missing
from tests.live.slurm.site import SlurmSite


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=32)
    options.add_argument("--gpus", type=int, default=8)
    options.add_argument("--jobs", type=int, default=20)
    given = options.parse_args()
    if why := missing():
        raise SystemExit(why)
    with SlurmCluster(given.nodes, given.gpus) as slurm:
        site = SlurmSite(slurm, policy="fifo-greedy", nodes=given.nodes, gpus=given.gpus, lease_s=120.0, beat_s=5.0)
        try:
            began_s = time.monotonic()
            site.up()
            first = site.submit(1, 0.1, gpus=1)
            site.until(lambda: (site.notes / f"{first}.0.epochs").exists(), "the first job to run")
            first_s = time.monotonic() - began_s
            site.until(
                lambda: all(node["state"] == "up" for node in site.client.nodes()["nodes"]), "all nodes to come", 300.0
            )
            for _ in range(given.jobs):
                job = site.submit(1, 0.1, gpus=given.gpus)
                site.until(lambda job=job: site.states()[job] == "finished", "a job to finish")
            delays = []
            for job in site.states():
                events = {event["what"]: event["at_s"] for event in site.client.events(job_id=job, after=0)}
                if job != first:
                    delays.append(events["started"] - events["placed"])
            print(json.dumps({"first_job_s": first_s, "decision_to_process_s": sorted(delays)}, indent=2))
        finally:
            site.close()


if __name__ == "__main__":
    main()

"""What `fairlead reproduce together` runs: workloads with several ingredients, and every policy on each of them.

Jobs are elastic, with the four networks whose company EaCO measured, or with networks that fill a GPU; GPUs differ as
PAL's do; nodes are rented and boot, or are one's own. Everybody gets the same jobs. Policies that go by a budget or a
target are run at several, so that they can be compared at what another one spends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fairlead.measure.synthetic import synthetic_variability
from fairlead.model.cluster import Cluster, Rental
from fairlead.model.files import load_cluster
from fairlead.model.interference import built_in
from fairlead.model.profile import Amdahl, Profile, profile_named
from fairlead.sim.run import Run
from fairlead.sim.world import World
from fairlead.traces import draws
from fairlead.traces.trace import Trace

Key = tuple[str, str, int]
"""Workload, policy, seed."""
UNDER_USING = {"AlexNet": ("C", 0.90), "ResNet-18": ("B", 0.94), "ResNet-50": ("A", 0.97), "VGG-16": ("A", 0.96)}
"""EaCO's four: PAL's class, and Amdahl's parallel fraction, which is made up (as of `synthetic.PARALLEL_FRACS`)."""
FILLING = {"BERT": ("A", 0.96), "GPT2": ("A", 0.98), "vgg19": ("A", 0.90), "resnet50": ("B", 0.94)}
"""Networks that leave no room beside them."""
RENTED = ",powering=rent"
BUDGETS = (36, 48, 60, 75, 90, 110)
"""GPUs paid for on average, at 60 jobs an hour of 1.5 h on one GPU."""
TARGETS = (0.5, 0.65, 0.8)
"""Pollux's, on a cluster that it sizes itself."""
JOINT = "fairlead"


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs and a cluster."""

    name: str
    about: str
    networks: Mapping[str, tuple[str, float]]
    nodes: int
    rented: bool
    varies: bool

    def trace(self, jobs: int, seed: int) -> Trace:
        """Elastic jobs over a day's rhythm; a third have a deadline of four times their length as submitted."""
        rng = np.random.default_rng([seed, 17])
        submit_s = draws.arrivals_s(rng, jobs, 60.0, draws.sinusoidal_day(0.5, 14.0))
        alone_s = draws.lognormal(rng, jobs, 5400.0, 1.5)
        names = [list(self.networks)[i] for i in rng.integers(len(self.networks), size=jobs)]
        gpus = [(1, 1, 2, 4)[i] for i in rng.integers(4, size=jobs)]
        due = rng.random(jobs) < 1 / 3
        lengths = [s / Amdahl(self.networks[n][1])(g) for s, n, g in zip(alone_s, names, gpus, strict=True)]
        frame = pl.DataFrame(
            {
                "job_id": [str(i) for i in range(jobs)],
                "profile": names,
                "submit_s": submit_s,
                "gpus": gpus,
                "duration_s": lengths,
                "deadline_s": [4.0 * s + 3600.0 if d else None for s, d in zip(lengths, due, strict=True)],
                "min_gpus": [1] * jobs,
                "max_gpus": [32] * jobs,
            }
        )
        return Trace.from_columns(frame, format="synthetic", source=self.about, profiles=self._profiles())

    def cluster(self, seed: int) -> Cluster:
        """Nodes of eight GPUs, unequal by node and by GPU, three in a hundred twice as slow."""
        cluster = load_cluster(f"{self.nodes}x8")
        if self.varies:
            drawn = synthetic_variability(cluster, between=0.1, outliers=0.03, seed=seed)
            cluster = replace(cluster, variability=drawn)
        return cluster.rented(Rental(boot_s=120.0)) if self.rented else cluster

    def _profiles(self) -> dict[str, Profile]:
        return {
            name: replace(profile_named(name), app_class=app_class, speedup=Amdahl(parallel), restart_s=30.0)
            for name, (app_class, parallel) in self.networks.items()
        }


WORKLOADS = (
    Workload("everything", "under-using jobs, unequal GPUs, rented", UNDER_USING, 40, rented=True, varies=True),
    Workload("owned", "under-using jobs, unequal GPUs, 96 of one's own", UNDER_USING, 12, rented=False, varies=True),
    Workload("filling", "jobs that fill a GPU, unequal GPUs, rented", FILLING, 40, rented=True, varies=True),
    Workload("equal", "under-using jobs, equal GPUs, rented", UNDER_USING, 40, rented=True, varies=False),
)


def policies(workload: Workload) -> dict[str, tuple[str, ...]]:
    """Who is compared: by name, one spec or one for every budget or target."""
    if not workload.rented:
        single = {
            "FIFO": "fifo-greedy",
            "Tiresias": "tiresias",
            "EASY": "fifo-easy",
            "PAL": "pal,ordering=fifo:backfill=greedy",
            "EaCO": "eaco",
            "EaCO + PAL": "eaco,placing=pal",
            "Pollux": "sizing=pollux",
            "Sia": "sizing=sia",
            JOINT: JOINT,
            "fairlead, widths as asked": f"{JOINT},sizing=fixed",
            "fairlead, nobody shares": f"{JOINT},sharing=exclusive",
            "fairlead, packed": f"{JOINT},placing=packed",
        }
        return {name: (spec,) for name, spec in single.items()}
    joint = {
        JOINT: "",
        "fairlead, nobody shares": ",sharing=exclusive",
        "fairlead, packed": ",placing=packed",
    }
    return {
        "FIFO": (f"fifo{RENTED}",),
        "PAL": (f"pal{RENTED}",),
        "EaCO": (f"eaco{RENTED}",),
        "EaCO + PAL": (f"eaco,placing=pal{RENTED}",),
        "Pollux": tuple(f"sizing=pollux:target={t}{RENTED}" for t in TARGETS),
        "BOA": tuple(f"boa:budget={b}" for b in BUDGETS),
        "BOA + PAL": tuple(f"boa:budget={b},placing=pal" for b in BUDGETS),
        "BOA + EaCO": tuple(f"boa:budget={b},sharing=eaco" for b in BUDGETS),
        **{name: tuple(f"{JOINT}:budget={b}{RENTED}{rest}" for b in BUDGETS) for name, rest in joint.items()},
    }


def planned(workloads: Sequence[Workload], jobs: int, seeds: int) -> dict[Key, Run]:
    """All runs of the comparison, by their keys."""
    truth, runs = built_in("eaco"), {}
    for workload in workloads:
        specs = [spec for several in policies(workload).values() for spec in several]
        for seed in range(seeds):
            trace, cluster = workload.trace(jobs, seed), workload.cluster(seed)
            for spec in specs:
                runs[workload.name, spec, seed] = Run(trace, cluster, spec, World(seed=seed, interference=truth))
    return runs

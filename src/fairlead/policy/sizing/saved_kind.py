"""What is known of one kind of job, as JSON keeps it.

Profiles are not saved: they come back with the next job of the kind. Until then a stand-in answers for it, with the
goodputs that were asked for before, so that a kind of which nobody is here still counts in a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fairlead.model.goodput import BatchLimits, GradientStats, PerfParams
from fairlead.model.goodput_fit import Fit, StepMeasurement
from fairlead.model.profile import Profile
from fairlead.model.training import GoodputTable
from fairlead.policy.sizing.curves import Kind


def to_dict(kind: Kind) -> dict[str, Any]:
    """What is known of a kind, without its profile, in plain types."""
    return {
        "name": kind.profile.name,
        "batch": kind.batch,
        "restart_s": kind.profile.restart_s,
        "trains": kind.profile.training is not None,
        "prior": None if kind.prior is None else list(kind.prior.samples),
        "epochs": kind.epochs,
        "widest": kind.widest,
        "samples": [[epoch, samples] for epoch, samples in kind.samples.items()],
        "seen": [[*at, goodput] for at, goodput in kind.seen.items()],
        "stats": [[epoch, stats.var, stats.sqr] for epoch, stats in kind.stats.items()],
        "limits": None if kind.limits is None else asdict(kind.limits),
        "steps": [asdict(step) for step in kind.steps.values()],
        "fit": None if kind.fit is None else asdict(kind.fit),
        # What was learnt gives all goodputs anew; what a profile says of a kind can only be remembered.
        "asked": [] if kind.seen else [[*at, goodput] for at, goodput in kind.asked.items()],
    }


def from_dict(saved: Mapping[str, Any]) -> Kind:
    """The kind with a stand-in for its profile."""
    name, prior = str(saved["name"]), saved["prior"]
    training = GoodputTable(name, (1.0,), (1,), ((1.0,),)) if saved["trains"] else None
    profile = Profile(name, restart_s=float(saved["restart_s"]), training=training)
    known = None
    if prior is not None:
        known = GoodputTable(name, tuple(map(float, prior)), (1,), ((1.0,),) * len(prior))
    steps = [StepMeasurement(**step) for step in saved["steps"]]
    fit = saved["fit"]
    return Kind(
        profile,
        int(saved["batch"]),
        known,
        epochs=int(saved["epochs"]),
        widest=int(saved["widest"]),
        samples={int(epoch): float(samples) for epoch, samples in saved["samples"]},
        seen={(int(e), int(k), int(n)): float(goodput) for e, k, n, goodput in saved["seen"]},
        stats={int(epoch): GradientStats(float(var), float(sqr)) for epoch, var, sqr in saved["stats"]},
        limits=None if saved["limits"] is None else BatchLimits(**saved["limits"]),
        steps={(s.nodes, s.replicas, s.local_batch, s.accumulation): s for s in steps},
        fit=None if fit is None else Fit(**{**fit, "params": PerfParams(**fit["params"])}),
        asked={(int(e), int(k), int(n)): float(goodput) for e, k, n, goodput in saved["asked"]},
    )

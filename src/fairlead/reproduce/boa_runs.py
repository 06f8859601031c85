"""The runs of the comparison with BOA: every policy swept over its own knob."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fairlead.model.cluster import Rental, parse_shape
from fairlead.policy.sizing.curves import usual_widths
from fairlead.reproduce.boa_setting import (
    BOA,
    DECLARED,
    FIXED,
    LEARNING,
    NODE_GPUS,
    OPTIMUS,
    POLLUX,
    RESTART_S,
    STATIC,
    STREAM,
    TESTBED_BUDGETS,
    TESTBED_T4,
    TIRESIAS,
    WIDEST,
    Scale,
    Scene,
    pollux_trace,
)
from fairlead.sim.result import Result
from fairlead.sim.run import Run
from fairlead.sim.world import World

Key = tuple[object, ...]
PUBLISHED = {
    "Pollux": (2089.0, 3323.0, 2188.0, 2721.0, 2674.0),
    "Tiresias": (2474.0, 5145.0, 3876.0, 3280.0, 3501.0),
}
"""Mean JCT by trace on 64 T4: the paper's artifact, petuum/adaptdl."""
ON_64 = {
    "Pollux": "sizing=pollux",
    "Tiresias": TIRESIAS,
    "Optimus": "sizing=optimus",
    "Sia": "sizing=sia",
    "equal shares": "sizing=equal",
}


RIGHT = "right first estimates"
WRONG = {
    "rates taken for twice what they are": (2.0, 1.0),
    "rates taken for half of what they are": (0.5, 1.0),
    "sizes taken for twice what they are": (1.0, 2.0),
    "sizes taken for half of what they are": (1.0, 0.5),
    "no first estimates": None,
}
"""First estimates, and the factors by which rates and sizes are wrong in them."""
CONTROLLED = {STREAM: 260.0, DECLARED: 300.0}
"""The budget at which estimates are made wrong."""
LINGERS_S = (30.0, 60.0, 120.0, 240.0)
TERMS = {
    "nodes that boot in 60 s": (Rental(boot_s=60.0), RESTART_S),
    "nodes that boot at once": (Rental(boot_s=0.0, minimum_s=0.0), RESTART_S),
    "nodes that boot at once and free restarts": (Rental(boot_s=0.0, minimum_s=0.0), 0.0),
}


def planned(data: Path | None, found: Mapping[str, Scene], folder: Path, scale: Scale) -> dict[Key, Run]:
    """Every run by its key. Files of first estimates go into `folder`. The longest come first."""
    runs: dict[Key, Run] = {}
    for number, scene in enumerate(found.values()):
        runs.update(_pareto_runs(scene, folder / f"types-{number}.toml"))
        if scene.name in CONTROLLED:
            runs.update(_control_runs(scene, folder, number))
        if scene.name == TESTBED_T4:
            runs.update(_tried_runs(scene, folder / f"types-{number}.toml", scale.thin))
    if data is not None:
        runs.update(_on_64_runs(data, scale))
    return runs


def _boa(budget: float, known: bool, types: Path | None) -> str:
    first = f":types={types}" if types is not None else ""
    return f"sizing=boa:budget={budget:g}:known={str(known).lower()}{first},powering=rent"


def _pollux(target: float, known: bool) -> str:
    return f"sizing=pollux:target={target:g}:known={str(known).lower()},powering=rent"


def _pareto_runs(scene: Scene, types: Path) -> dict[Key, Run]:
    _write_types(scene, types)
    runs: dict[Key, Run] = {}
    for name, budgets, targets in (
        ("", scene.budgets, scene.targets),
        (LEARNING, scene.learnt, scene.learnt_targets),
    ):
        for budget in sorted(budgets):
            runs[scene.name, BOA + name, budget] = scene.run(_boa(budget, not name, types))
        for target in targets:
            runs[scene.name, POLLUX + name, target] = scene.run(_pollux(target, not name))
    for name, policy in FIXED.items():
        for nodes in _runs_on(scene, name):
            runs[scene.name, name, nodes * NODE_GPUS] = scene.run(policy, nodes)
    for width in scene.widths:
        runs[scene.name, STATIC, width] = scene.run(f"sizing=static:width_gpus={width},powering=rent")
    return runs


def _runs_on(scene: Scene, name: str) -> Sequence[int]:
    """The clusters on which a policy is run."""
    if name == OPTIMUS:
        return scene.optimus
    if name != "Tiresias, fixed":
        return scene.fixed
    if scene.name == DECLARED:
        return ()  # there, jobs ask for one GPU each
    # It gives jobs the GPUs that they ask for.
    widest = int(scene.trace.frame["gpus"].max())  # type: ignore[arg-type]
    return tuple(nodes for nodes in scene.fixed if nodes * NODE_GPUS >= widest)


def _control_runs(scene: Scene, folder: Path, number: int) -> dict[Key, Run]:
    runs: dict[Key, Run] = {}
    budget = CONTROLLED[scene.name]
    for i, (name, factors) in enumerate(WRONG.items()):
        if factors is not None and factors[1] != 1.0 and scene.name == STREAM:
            continue  # its jobs declare their samples, so their sizes are not estimated
        path = None if factors is None else folder / f"wrong-{number}-{i}.toml"
        if path is not None and factors is not None:
            _write_types(scene, path, *factors)
        runs[scene.name, "control", name] = scene.run(_boa(budget, True, path))
    return runs


def _tried_runs(scene: Scene, types: Path, thin: int) -> dict[Key, Run]:
    """What might make BOA better on the testbed's trace."""
    runs: dict[Key, Run] = {}
    for budget in TESTBED_BUDGETS[::thin]:
        for linger_s in LINGERS_S[::thin]:
            policy = f"{_boa(budget, True, types)}:linger_s={linger_s:g}"
            runs[scene.name, "linger", linger_s, budget] = scene.run(policy)
        for name, (rental, restart_s) in TERMS.items():
            other = replace(scene, rental=rental, restart_s=restart_s)
            runs[scene.name, name, BOA, budget] = other.run(_boa(budget, True, types))
    for name, (rental, restart_s) in TERMS.items():
        other = replace(scene, rental=rental, restart_s=restart_s)
        for target in scene.targets:
            runs[scene.name, name, POLLUX, target] = other.run(_pollux(target, True))
    return runs


def _on_64_runs(data: Path, scale: Scale) -> dict[Key, Run]:
    cluster = parse_shape(f"16x{NODE_GPUS}:T4")
    runs: dict[Key, Run] = {}
    for number in scale.on_64:
        trace = pollux_trace(data, number)
        for name, policy in ON_64.items():
            runs["64 T4", name, number] = Run(trace, cluster, policy, World(restart_s=RESTART_S))
    return runs


def _write_types(scene: Scene, path: Path, rates: float = 1.0, sizes: float = 1.0) -> None:
    """First estimates as a file for BOA: rates and sizes, times what makes them wrong, and one speedup per width."""
    widths = usual_widths(NODE_GPUS, WIDEST)
    tables = []
    for t in scene.types(widths):
        whole_s = [
            math.fsum(n / row[i] if row[i] > 0.0 else math.inf for n, row in zip(t.sizes_s, t.speedups, strict=True))
            for i in range(len(widths))
        ]
        fed = [(k, whole_s[0] / s) for k, s in zip(widths, whole_s, strict=True) if math.isfinite(s)]
        tables.append(
            f'[[type]]\nname = "{t.name}"\narrival_rate_per_s = {t.arrival_rate_per_s * rates!r}\n'
            f"mean_size_s = {whole_s[0] * sizes!r}\n"
            f"widths = {[k for k, _ in fed]}\nspeedups = {[s for _, s in fed]}\n"
        )
    path.write_text("\n".join(tables), encoding="utf-8")


def paid_mean(result: Result) -> float:
    """GPUs paid for on average from the first arrival to the last."""
    first_s, last_s = (float(getattr(result.jobs["submit_s"], of)()) for of in ("min", "max"))
    start, end = (result.timeline[name].to_numpy() for name in ("start_s", "end_s"))
    within_s = np.clip(np.minimum(end, last_s) - np.maximum(start, first_s), 0.0, None)
    return float(within_s @ result.timeline["paid_gpus"].to_numpy()) / (last_s - first_s)

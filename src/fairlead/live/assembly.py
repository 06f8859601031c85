"""A configuration made into the parts that it names: policy, engine, interference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairlead.errors import InputError, did_you_mean
from fairlead.live.config import Config
from fairlead.live.engines.local import LocalEngine
from fairlead.model.cluster import parse_rental
from fairlead.model.files import load_variability
from fairlead.model.interference import BUILT_IN, Interference, built_in, load_interference
from fairlead.model.profile import declare
from fairlead.model.profile_json import load_profiles
from fairlead.policy import registry
from fairlead.policy.stack import Stack


def stack_of(config: Config) -> Stack:
    """The policy, with the budget and the history that are configured beside it."""
    policy, gpus = config.policy, config.budget.gpus
    stack = registry.build(policy.stack, round_s=policy.round_s, seed=policy.seed)
    parts = stack.spec.split(",")
    sizing = next(part for part in parts if part.startswith("sizing="))
    if gpus is not None and sizing.split(":")[0] == "sizing=boa" and ":budget=" not in sizing:
        spec = ",".join(f"{part}:budget={gpus:g}" if part == sizing else part for part in parts)
        stack = registry.build(spec, round_s=policy.round_s, seed=policy.seed)
    if stack.powering.rents and config.engine.rent is None:
        raise InputError(
            f"the policy {policy.stack!r} rents nodes, but engine.rent has no terms",
            hint='set engine.rent = "default", or choose another powering',
        )
    if config.engine.history is not None:
        stack.sharing.learn_from(table_named(config.engine.history))
    return stack


def engine_of(config: Config, folder: Path) -> LocalEngine:
    """The nodes, with the rental terms and scores that policies go by. Agents that are not there yet are started."""
    wanted = config.engine
    rental = None if wanted.rent is None else parse_rental(wanted.rent)
    engine = LocalEngine(
        folder,
        fake_gpus=wanted.fake_gpus,
        fake_nodes=wanted.fake_nodes,
        gpu_model=wanted.gpu_model,
        wake_s=wanted.wake_s if rental is None else rental.boot_s,
        guard=_guard(config),
    )
    try:
        cluster = engine.cluster.rented(rental)
        if wanted.variability is not None:
            cluster = cluster.with_variability(load_variability(Path(wanted.variability), cluster))
        engine.cluster = cluster
    except BaseException:
        engine.close()
        raise
    return engine


def declare_profiles(config: Config) -> None:
    """Know the applications that are configured, before jobs of theirs are read."""
    if config.engine.profiles is not None:
        for profile in load_profiles(Path(config.engine.profiles)):
            declare(profile)


def table_named(name: str) -> Interference:
    """A built-in table, or one from a file."""
    if name in BUILT_IN:
        return built_in(name)
    if not Path(name).exists() and not Path(name).suffix:
        raise InputError(f"unknown table {name!r}", hint=f"{did_you_mean(name, BUILT_IN)}, or a file")
    return load_interference(name)


def runs_as_submitter(config: Config) -> bool:
    """Whether jobs run under their users' accounts: under root they do, unless configured otherwise."""
    wanted, is_root = config.engine.as_submitter, os.geteuid() == 0
    if wanted and not is_root:
        raise InputError("engine.as_submitter is true, which only root can do", hint="run as root, or leave it out")
    return is_root if wanted is None else wanted


def _guard(config: Config) -> dict[str, Any]:
    """What differs from the guard's own, as nested tables."""
    tree: dict[str, Any] = {}
    for name, one in config.values.items():
        first, *tables, key = name.split(".")
        if first == "guard" and one.source != "default":
            table = tree
            for part in tables:
                table = table.setdefault(part, {})
            table[key] = one.value
    return tree

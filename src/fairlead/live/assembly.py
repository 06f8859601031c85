"""A configuration made into the parts that it names: policy, engine, interference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairlead.errors import InputError, did_you_mean
from fairlead.live.config import Config
from fairlead.live.engines import registry as engines
from fairlead.live.engines.registry import ControlledEngine
from fairlead.live.engines.remote.places import Door
from fairlead.live.home import Home
from fairlead.live.storage.store import Store
from fairlead.model.catalogue import BUILT_IN as NOTHING_DECLARED
from fairlead.model.catalogue import Catalogue
from fairlead.model.cluster import Cluster, parse_rental
from fairlead.model.files import load_variability, read_text
from fairlead.model.interference import BUILT_IN, Interference, built_in, load_interference
from fairlead.model.profile_json import load_profiles
from fairlead.policy import registry
from fairlead.policy.stack import Stack

EVERYONE_IS_ROOT = "everyone-is-root"


def stack_of(config: Config) -> Stack:
    """The policy, with the budget and the history that are configured beside it."""
    policy, gpus = config.policy, config.budget.gpus
    stack = registry.build(policy.stack, round_s=policy.round_s, seed=policy.seed, read=read_text)
    parts = stack.spec.split(",")
    sizing = next(part for part in parts if part.startswith("sizing="))
    if gpus is not None and sizing.split(":")[0] == "sizing=boa" and ":budget=" not in sizing:
        spec = ",".join(f"{part}:budget={gpus:g}" if part == sizing else part for part in parts)
        stack = registry.build(spec, round_s=policy.round_s, seed=policy.seed, read=read_text)
    if stack.powering.rents and config.engine.rent is None:
        raise InputError(
            f"the policy {policy.stack!r} rents nodes, but engine.rent has no terms",
            hint='set engine.rent = "default", or choose another powering',
        )
    if config.engine.history is not None:
        stack.sharing.learn_from(table_named(config.engine.history))
    return stack


def engine_of(config: Config, home: Home, store: Store) -> ControlledEngine:
    """The engine that is named, with the rental terms and scores that policies go by.

    The store says which attempts on the nodes are its own.
    """
    wanted, agents = config.engine, config.agents
    rental = None if wanted.rent is None else parse_rental(wanted.rent)

    def terms(cluster: Cluster) -> Cluster:
        rented = cluster.rented(rental)
        if wanted.variability is None:
            return rented
        return rented.with_variability(load_variability(Path(wanted.variability), rented))

    site = engines.Site(
        config,
        home,
        store,
        facts=store,
        door=Door(home.path, agents.host, agents.port, agents.address, agents.lease_s, agents.beat_s),
        terms=terms,
        guard=_guard(config),
        limits={name: value for name, value in config.limits.model_dump().items() if value is not None},
        wake_s=wanted.wake_s if rental is None else rental.boot_s,
    )
    return engines.build(wanted.name, site)


def catalogue_of(config: Config) -> Catalogue:
    """The profiles that jobs can name: those that are built in and those of the file that is configured."""
    profiles = config.engine.profiles
    return NOTHING_DECLARED if profiles is None else Catalogue(load_profiles(Path(profiles)))


def table_named(name: str) -> Interference:
    """A built-in table, or one from a file."""
    if name in BUILT_IN:
        return built_in(name)
    if not Path(name).exists() and not Path(name).suffix:
        raise InputError(f"unknown table {name!r}", hint=f"{did_you_mean(name, BUILT_IN)}, or a file")
    return load_interference(name)


def runs_as_submitter(config: Config) -> bool:
    """Whether jobs run under their users' accounts: under root they do, unless a word says what it means if not."""
    wanted, is_root = config.engine.as_submitter, os.geteuid() == 0
    if wanted is True and not is_root:
        raise InputError("engine.as_submitter is true, which only root can do", hint="run as root, or leave it out")
    if wanted is False and is_root:
        raise InputError(
            "engine.as_submitter = false under root: every job of everybody with a token would run as root",
            hint="leave it out, or run the controller under another account; if everybody with a token may be root "
            f'on this machine, say so: engine.as_submitter = "{EVERYONE_IS_ROOT}"',
        )
    return is_root and wanted != EVERYONE_IS_ROOT


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

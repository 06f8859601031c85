"""Policies by name: the built-in ones, those of third parties (entry points), and presets.

A policy is named `stage=name:option=value:...`; stages are joined by commas. A preset, or the name of a policy that is
known in one stage only, may stand alone: `tiresias`, `srtf,placing=spread`, `fifo:backfill=greedy`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Literal, cast

from fairlead.errors import InputError, did_you_mean
from fairlead.policy.stack import Stack
from fairlead.policy.stages import Ordering, Placing, Powering, Sharing, Sizing

STAGES: dict[str, type[Any]] = {
    "sizing": Sizing,
    "ordering": Ordering,
    "placing": Placing,
    "sharing": Sharing,
    "powering": Powering,
}

# A new policy is one file and one line here; third parties use the entry-point groups `fairlead.sizing` and so on.
BUILT_IN: dict[str, dict[str, str]] = {
    "sizing": {
        "fixed": "fairlead.policy.sizing.fixed:Fixed",
        "static": "fairlead.policy.sizing.static:Static",
        "equal": "fairlead.policy.sizing.equal:Equal",
        "boa": "fairlead.policy.sizing.boa:Boa",
        "pollux": "fairlead.policy.sizing.pollux:Pollux",
        "sia": "fairlead.policy.sizing.sia:Sia",
        "optimus": "fairlead.policy.sizing.optimus:Optimus",
    },
    "ordering": {
        "fifo": "fairlead.policy.ordering.fifo:Fifo",
        "srtf": "fairlead.policy.ordering.srtf:Srtf",
        "las": "fairlead.policy.ordering.las:Las",
        "priority": "fairlead.policy.ordering.priority:Priority",
    },
    "placing": {
        "packed": "fairlead.policy.placing.packed:Packed",
        "spread": "fairlead.policy.placing.spread:Spread",
        "random": "fairlead.policy.placing.random:Random",
        "pm-first": "fairlead.policy.placing.pm_first:PmFirst",
        "pal": "fairlead.policy.placing.pal:Pal",
    },
    "sharing": {
        "exclusive": "fairlead.policy.sharing.exclusive:Exclusive",
        "eaco": "fairlead.policy.sharing.eaco:Eaco",
        "fifo-packed": "fairlead.policy.sharing.fifo_packed:FifoPacked",
        "gandiva": "fairlead.policy.sharing.gandiva:Gandiva",
        "muxflow": "fairlead.policy.sharing.muxflow:Muxflow",
        "time-sharing": "fairlead.policy.sharing.time_sharing:TimeSharing",
        "priority-time-sharing": "fairlead.policy.sharing.time_sharing:PriorityTimeSharing",
        "online-only": "fairlead.policy.sharing.time_sharing:OnlineOnly",
    },
    "powering": {
        "always-on": "fairlead.policy.powering.always_on:AlwaysOn",
        "sleep": "fairlead.policy.powering.sleep:Sleep",
        "rent": "fairlead.policy.powering.rent:Rent",
    },
}
DEFAULTS = {
    "sizing": "fixed",
    "ordering": "fifo",
    "placing": "packed",
    "sharing": "exclusive",
    "powering": "always-on",
}
PRESETS = {
    "fifo-greedy": "ordering=fifo:backfill=greedy",
    "fifo-easy": "ordering=fifo:backfill=easy",
    "tiresias": "ordering=las:queues=2",
    "pal": "ordering=fifo,placing=pal",
    "boa": "sizing=boa,powering=rent",
    "muxflow": "ordering=fifo:backfill=greedy,sharing=muxflow",
    "eaco": "ordering=priority:preempt=false,sharing=eaco,powering=sleep",
}
_STICKINESS = {"-nonsticky": "false", "-sticky": "true"}


@dataclass(frozen=True)
class Entry:
    """One registered policy."""

    stage: str
    name: str
    cls: type[Any]

    @property
    def doc(self) -> str:
        """The whole page."""
        return inspect.getdoc(self.cls) or ""

    @property
    def summary(self) -> str:
        """Its first sentence."""
        return " ".join(self.doc.split("\n\n")[0].split())

    @property
    def options(self) -> dict[str, tuple[Any, str]]:
        """Each option with its default and what it does."""
        return {
            f.name: (f.default, f.metadata.get("help", ""))
            for f in dataclasses.fields(self.cls)
            if "help" in f.metadata
        }


def stages() -> dict[str, list[Entry]]:
    """All registered policies."""
    return {stage: [_entry(stage, name) for name in sorted(_names(stage))] for stage in STAGES}


def presets() -> dict[str, str]:
    """Presets and the stacks that they stand for."""
    return dict(PRESETS)


def build(spec: str, *, round_s: float | None = None, seed: int = 0) -> Stack:
    """The stack that a text names; see the module's docstring."""
    chosen = {**DEFAULTS, **_parse(spec)}
    made = {stage: _make(stage, text, seed) for stage, text in chosen.items()}
    return Stack(
        cast(Sizing, made["sizing"]),
        cast(Ordering, made["ordering"]),
        cast(Sharing, made["sharing"]),
        cast(Placing, made["placing"]),
        cast(Powering, made["powering"]),
        round_s=round_s,
        spec=",".join(f"{stage}={text}" for stage, text in chosen.items()),
    )


def _parse(spec: str) -> dict[str, str]:
    chosen: dict[str, str] = {}
    given: set[str] = set()
    for part in spec.split(","):
        part = part.strip()
        head, _, tail = part.partition("=")
        if head in STAGES:
            found = {head: tail}
        elif ":" not in head and tail:
            raise InputError(f"policy {spec!r}: unknown stage {head!r}", hint=did_you_mean(head, STAGES))
        else:
            found = _alone(part, spec)
        for stage, text in found.items():
            if stage in given and part not in PRESETS:
                raise InputError(f"policy {spec!r} names the stage {stage} twice: {chosen[stage]!r} and {text!r}")
            chosen[stage] = text
        given.update(found if part not in PRESETS else ())
    return chosen


def _alone(text: str, spec: str) -> dict[str, str]:
    if text in PRESETS:
        return _parse(PRESETS[text])
    name = text.split(":")[0]
    where = [stage for stage in STAGES if _base_name(stage, name) in _names(stage)]
    if len(where) == 1:
        return {where[0]: text}
    known = {*PRESETS, *(n for stage in STAGES for n in _names(stage))}
    if not where:
        raise InputError(f"policy {spec!r}: unknown policy {name!r}", hint=did_you_mean(name, known))
    raise InputError(f"policy {spec!r}: {name!r} is in several stages", hint=f"write {where[0]}={text}")


def _names(stage: str) -> set[str]:
    return {*BUILT_IN[stage], *(p.name for p in entry_points(group=f"fairlead.{stage}"))}


def _base_name(stage: str, name: str) -> str:
    if stage == "placing":
        for suffix in _STICKINESS:
            name = name.removesuffix(suffix)
    return name


def _entry(stage: str, name: str) -> Entry:
    if name in BUILT_IN[stage]:
        module, _, attribute = BUILT_IN[stage][name].partition(":")
        return Entry(stage, name, getattr(importlib.import_module(module), attribute))
    for point in entry_points(group=f"fairlead.{stage}", name=name):
        cls = point.load()
        if not (isinstance(cls, type) and issubclass(cls, STAGES[stage])):
            raise InputError(f"entry point {point.value!r} is no {STAGES[stage].__name__}")
        return Entry(stage, name, cls)
    raise InputError(f"unknown {stage} policy {name!r}", hint=did_you_mean(name, _names(stage)))


def _make(stage: str, text: str, seed: int) -> object:
    name, *parts = text.split(":")
    values: dict[str, str] = {}
    base = _base_name(stage, name)
    entry = _entry(stage, base)
    if base != name:
        values["sticky"] = _STICKINESS[name.removeprefix(base)]
    for part in parts:
        option, equals, value = part.partition("=")
        if not equals or option not in entry.options:
            raise InputError(
                f"{stage}={text}: unknown option {option!r} of {base}"
                if equals
                else f"{stage}={text}: {part!r} has no value",
                hint=did_you_mean(option, entry.options) if entry.options else f"{base} has no options",
            )
        if values.get(option, value) != value:
            raise InputError(f"{stage}={text}: {option} is both {values[option]} and {value}")
        values[option] = value
    types = typing.get_type_hints(entry.cls)
    options = {option: _convert(f"{stage}={text}: {option}", value, types[option]) for option, value in values.items()}
    if "seed" in entry.options:
        options.setdefault("seed", seed)
    try:
        return entry.cls(**options)
    except ValueError as error:
        raise InputError(f"{stage}={text}: {error}") from None


def _convert(where: str, text: str, wanted: Any) -> Any:
    """An option's text as its declared type."""
    if typing.get_origin(wanted) is Literal:
        allowed = typing.get_args(wanted)
        if text not in allowed:
            raise InputError(f"{where}: found {text!r}", hint=did_you_mean(text, allowed))
        return text
    if typing.get_origin(wanted) is tuple:
        return tuple(_convert(where, part, typing.get_args(wanted)[0]) for part in text.split("/"))
    if wanted is bool:
        if text not in ("true", "false"):
            raise InputError(f"{where}: found {text!r}, expected true or false")
        return text == "true"
    try:
        return wanted(text)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}.get(wanted, wanted.__name__)
        raise InputError(f"{where}: found {text!r}, expected {kind}") from None

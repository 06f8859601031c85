"""Policies by name: the built-in ones, those of third parties (entry points), and presets.

A policy is named `stage=name:option=value:...`; stages are joined by commas. A preset, or the name of a policy that is
known in one stage only, may stand alone: `tiresias`, `srtf,placing=spread`, `fifo:backfill=greedy`. Options behind a
preset go to the stage of it that has them: `boa:budget=48` is all of `boa`. A stage named for itself goes before a
preset's.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import itertools
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
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
        "boa-kept": "fairlead.policy.sizing.boa_kept:BoaKept",
        "pollux": "fairlead.policy.sizing.pollux:Pollux",
        "sia": "fairlead.policy.sizing.sia:Sia",
        "optimus": "fairlead.policy.sizing.optimus:Optimus",
    },
    "ordering": {
        "fifo": "fairlead.policy.ordering.fifo:Fifo",
        "srtf": "fairlead.policy.ordering.srtf:Srtf",
        "srsf": "fairlead.policy.ordering.srsf:Srsf",
        "sjf": "fairlead.policy.ordering.sjf:Sjf",
        "las": "fairlead.policy.ordering.las:Las",
        "priority": "fairlead.policy.ordering.priority:Priority",
        "fair": "fairlead.policy.ordering.fair:Fair",
        "deadline": "fairlead.policy.ordering.deadline:Deadline",
    },
    "placing": {
        "packed": "fairlead.policy.placing.packed:Packed",
        "consolidated": "fairlead.policy.placing.consolidated:Consolidated",
        "spread": "fairlead.policy.placing.spread:Spread",
        "random": "fairlead.policy.placing.random:Random",
        "best-fit": "fairlead.policy.placing.best_fit:BestFit",
        "fgd": "fairlead.policy.placing.fgd:Fgd",
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
    "tiresias": "ordering=las:queues=2:within=running",
    "pal": "ordering=fifo,placing=pal",
    "boa": "sizing=boa,powering=rent",
    "muxflow": "ordering=fifo:backfill=greedy,sharing=muxflow",
    "eaco": "ordering=priority:preempt=false,sharing=eaco,powering=sleep",
    "fairlead": ("sizing=boa-kept,ordering=priority:preempt=false,placing=pal:gather=0.2,sharing=eaco,powering=sleep"),
}
_LEAST_S, _MOST_S = 1e-3, 1e9
"""Of times that are no 0: with others a clock of floats stands still, or never gets there."""
_STICKINESS = {"-nonsticky": "false", "-sticky": "true"}


@dataclass(frozen=True)
class Entry:
    """A policy that is registered under a name in a stage."""

    stage: str
    name: str
    cls: type[Any]

    @property
    def doc(self) -> str:
        """The policy's page: its whole docstring."""
        return inspect.getdoc(self.cls) or ""

    @property
    def summary(self) -> str:
        """The first paragraph of the policy's page."""
        return " ".join(self.doc.split("\n\n")[0].split())

    @property
    def options(self) -> dict[str, tuple[Any, str]]:
        """Each option with its default and what it does."""
        return {
            f.name: ("" if "parse" in f.metadata else f.default, f.metadata.get("help", ""))
            for f in dataclasses.fields(self.cls)
            if "help" in f.metadata
        }


def stages() -> dict[str, list[Entry]]:
    """All registered policies, stage by stage, by name."""
    return {stage: [_entry(stage, name) for name in sorted(_names(stage))] for stage in STAGES}


def every_stack() -> list[str]:
    """Every choice of one built-in policy for each stage, at default options."""
    named = ([f"{stage}={name}" for name in policies] for stage, policies in BUILT_IN.items())
    return [",".join(choice) for choice in itertools.product(*named)]


def presets() -> dict[str, str]:
    """Presets and the stacks that they stand for."""
    return dict(PRESETS)


def no_files(path: Path) -> str:
    """Read nothing: for texts of people whose word is not to open files here."""
    raise InputError(f"{path}: no file is read for a policy that is named here")


def build(
    spec: str,
    *,
    round_s: float | None = None,
    seed: int = 0,
    plain: bool = False,
    read: Callable[[Path], str] = no_files,
) -> Stack:
    """The stack that a text names; see the module's docstring. A `plain` one decides the same without indexes.

    `read` gives the text of a file that an option names.
    """
    if round_s is not None:
        _check_seconds("round_s", round_s)
    chosen = {**DEFAULTS, **_parse(spec)}
    made = {stage: _make(stage, text, seed, read) for stage, text in chosen.items()}
    return Stack(
        cast(Sizing, made["sizing"]),
        cast(Ordering, made["ordering"]),
        cast(Sharing, made["sharing"]),
        cast(Placing, made["placing"]),
        cast(Powering, made["powering"]),
        round_s=round_s,
        spec=",".join(f"{stage}={text}" for stage, text in chosen.items()),
        plain=plain,
    )


def _parse(spec: str) -> dict[str, str]:
    given: dict[str, str] = {}
    preset: dict[str, str] = {}
    clashes: dict[str, str] = {}
    for part in spec.split(","):
        part = part.strip()
        head, _, tail = part.partition("=")
        if head in STAGES:
            found, rest = {head: tail}, dict[str, str]()
        elif ":" not in head and tail:
            raise InputError(f"policy {spec!r}: unknown stage {head!r}", hint=did_you_mean(head, STAGES))
        else:
            found, rest = _alone(part, spec)
        for stage, text in found.items():
            if stage in given:
                raise InputError(f"policy {spec!r} names the stage {stage} twice: {given[stage]!r} and {text!r}")
        given |= found
        clashes |= {stage: text for stage, text in rest.items() if preset.get(stage, text) != text}
        preset = rest | preset
    for stage, text in clashes.items():
        if stage not in given:
            raise InputError(
                f"policy {spec!r}: its presets have two of the stage {stage}, {preset[stage]!r} and {text!r}",
                hint=f"say which, for example {stage}={text}",
            )
    return preset | given


def _alone(text: str, spec: str) -> tuple[dict[str, str], dict[str, str]]:
    """The stages that a name stands for: those that are the user's own words, and those that a preset brings along."""
    name, *options = text.split(":")
    if name in PRESETS:
        return _with_options(name, options, spec)
    where = [stage for stage in STAGES if _base_name(stage, name) in _names(stage)]
    if len(where) == 1:
        return {where[0]: text}, {}
    known = {*PRESETS, *(n for stage in STAGES for n in _names(stage))}
    if not where:
        raise InputError(f"policy {spec!r}: unknown policy {name!r}", hint=did_you_mean(name, known))
    raise InputError(f"policy {spec!r}: {name!r} is in several stages", hint=f"write {where[0]}={text}")


def _with_options(preset: str, options: list[str], spec: str) -> tuple[dict[str, str], dict[str, str]]:
    """A preset whose options go to the stages that have them, in the place of its own values."""
    stages = _parse(PRESETS[preset])
    known = {stage: _entry(stage, _base_name(stage, text.split(":")[0])).options for stage, text in stages.items()}
    wanted: dict[str, list[str]] = {}
    for part in options:
        option = part.partition("=")[0]
        where = [stage for stage in stages if option in known[stage]]
        if not where:
            hint = did_you_mean(option, {name for names in known.values() for name in names})
            raise InputError(f"policy {spec!r}: unknown option {option!r} of {preset}", hint=hint)
        if len(where) > 1:
            named = ", ".join(f"{stage}={stages[stage].split(':')[0]}" for stage in where)
            hint = f"say which, for example {preset},{where[0]}={stages[where[0]]}:{part}"
            raise InputError(
                f"policy {spec!r}: {option} is an option of several stages of {preset}: {named}", hint=hint
            )
        wanted.setdefault(where[0], []).append(part)
    changed = {}
    for stage, parts in wanted.items():
        name, *own = stages.pop(stage).split(":")
        names = {part.partition("=")[0] for part in parts}
        changed[stage] = ":".join((name, *(part for part in own if part.partition("=")[0] not in names), *parts))
    return changed, stages


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


def _make(stage: str, text: str, seed: int, read: Callable[[Path], str]) -> object:
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
    types = typing.get_type_hints(entry.cls) if values else {}
    parsers = {f.name: f.metadata["parse"] for f in dataclasses.fields(entry.cls) if "parse" in f.metadata}
    options = {
        option: parsers[option](read(Path(value)), value)
        if option in parsers
        else _convert(f"{stage}={text}: {option}", value, types[option])
        for option, value in values.items()
        if value or option not in parsers  # no file is the default
    }
    for option, value in options.items():
        if option.endswith("_s"):
            _check_seconds(f"{stage}={text}: {option}", value)
    if "seed" in entry.options:
        options.setdefault("seed", seed)
    try:
        return entry.cls(**options)
    except ValueError as error:
        raise InputError(f"{stage}={text}: {error}") from None
    except (OverflowError, MemoryError):
        raise InputError(f"{stage}={text}: a value is too large") from None


def _check_seconds(what: str, seconds: float) -> None:
    if seconds > 0.0 and not _LEAST_S <= seconds <= _MOST_S:
        raise InputError(f"{what} is {seconds:g}; expected {_LEAST_S:g} to {_MOST_S:g} seconds")


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
        value = wanted(text)
        if wanted is float and not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        kind = {int: "a whole number", float: "a number"}.get(wanted, wanted.__name__)
        raise InputError(f"{where}: found {text!r}, expected {kind}") from None

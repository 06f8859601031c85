"""`fairlead measure counters`, `colocation` and `scaling`: experiments on the GPUs of this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import options
from fairlead.cli.console import print_json, say
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.measure.on_gpu.trials import Watching
    from fairlead.measure.on_gpu.watched import Command
    from fairlead.model.profile import Profile

CommandsOption = Annotated[
    list[str], typer.Option("--command", metavar="NAME=COMMAND", help="What to run; prints a line per step. Repeat it.")
]
StepOption = Annotated[str, typer.Option("--step", metavar="REGEX", help="Lines on stdout that are a step.")]
SecondsOption = Annotated[float, typer.Option("--seconds", min=1.0, help="How long each run is watched.")]
WarmOption = Annotated[int, typer.Option("--warm-steps", min=1, help="Steps before that.")]
OutOption = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.")]
GpuOption = Annotated[int, typer.Option("--gpu", min=0, help="Which GPU of this machine.")]
_STEP = r"(?i)\bstep\b"


def counters(
    command: CommandsOption,
    out: OutOption,
    gpu: GpuOption = 0,
    step: StepOption = _STEP,
    seconds: SecondsOption = 15.0,
    warm_steps: WarmOption = 20,
    json: options.JsonOption = False,
) -> None:
    """DRAM and SM activity of each command alone (GPM): the csv that `measure classes` reads."""
    _expect_folder(out)
    meter, uuid = _meter(gpu)
    watching, rows = _watching(step, seconds, warm_steps), []
    for one in _commands(command):
        seen = watching.trial([_on(one, uuid)], "alone", meter, [uuid]).seen
        dram, sm = seen.means["dram_activity_frac"], seen.means["sm_activity_frac"]
        if dram is None or sm is None:
            raise InputError(
                "this GPU tells no DRAM and SM activity", hint="GPM needs Hopper or newer; `fairlead doctor`"
            )
        rows.append({"application": one.name, "dram_frac": dram, "sm_frac": sm})
    lines = [
        "application,dram_frac,sm_frac",
        *(f"{r['application']},{r['dram_frac']!r},{r['sm_frac']!r}" for r in rows),
    ]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    _done(out, {"path": out, "applications": rows}, json)


def colocation(
    command: CommandsOption,
    out: OutOption,
    gpu: GpuOption = 0,
    most: Annotated[int, typer.Option("--most", min=2, max=4, help="Jobs on the GPU at a time.")] = 2,
    mps: Annotated[bool, typer.Option("--mps/--no-mps", help="Measure under MPS, too.")] = True,
    step: StepOption = _STEP,
    seconds: SecondsOption = 15.0,
    warm_steps: WarmOption = 20,
    json: options.JsonOption = False,
) -> None:
    """Jobs alone and together: step times, watts, joules a step; profiles, and a table for each way of sharing."""
    from tempfile import TemporaryDirectory

    from fairlead.measure.on_gpu import trials
    from fairlead.node.mps.daemon import MpsDaemon

    _expect_folder(out)
    meter, uuid = _meter(gpu)
    with TemporaryDirectory(prefix="fl-mps-") as folder:
        daemon = MpsDaemon(uuid, Path(folder)) if mps else None
        found = trials.colocation(
            _commands(command),
            meter,
            uuid,
            _watching(step, seconds, warm_steps),
            daemon,
            client_env=_shim() if mps else {},
            most=most,
        )
    written = {}
    for way in ("sliced", "mps") if mps else ("sliced",):
        written[way] = out.with_suffix(f".{way}.json")
        written[way].write_text(_dumps(trials.interference(found, way).to_dict()), encoding="utf-8")
    room_mib = meter.gpus[gpu].memory_total_mib
    known = [trials.profile(trial, room_mib) for trial in found if trial.way == "alone"]
    report = {"tables": written, "profiles": _profiles(out, known), "runs": [trial.as_json() for trial in found]}
    out.write_text(_dumps(report), encoding="utf-8")
    for path in written.values():
        say("wrote", f"{path} (for --interference)")
    _done(out, report, json)


def scaling(
    command: CommandsOption,
    out: OutOption,
    widths: Annotated[str, typer.Option("--widths", help="Numbers of GPUs, by commas. Default: 1, 2, 4, ...")] = "",
    step: StepOption = _STEP,
    seconds: SecondsOption = 15.0,
    warm_steps: WarmOption = 20,
    json: options.JsonOption = False,
) -> None:
    """Step time against GPUs: `{gpus}` in the command becomes their number. Gives widths and speedups of job types."""
    from fairlead.measure.on_gpu import trials

    _expect_folder(out)
    meter, _ = _meter(0)
    try:
        wanted = [int(word) for word in widths.split(",")] if widths else _doubling(len(meter.gpus))
    except ValueError:
        raise InputError(f"--widths {widths}: expected whole numbers, by commas") from None
    types, known = [], []
    for one in _commands(command):
        found = trials.scaling(one, meter, _watching(step, seconds, warm_steps), wanted)
        steps = [{"gpus": width, **trial.as_json()} for width, trial in found]
        curve = trials.speedups(found)
        types.append({"name": one.name, **curve, "runs": steps})
        known.append(trials.profile(found[0][1], meter.gpus[0].memory_total_mib, curve))
    _profiles(out, known)
    out.write_text(_dumps({"types": types}), encoding="utf-8")
    _done(out, {"types": types}, json)


def _expect_folder(out: Path) -> None:
    """Now, and not after minutes of measuring."""
    if not out.parent.is_dir() or out.is_dir():
        raise InputError(f"--out {out}: expected a file in a folder that exists")


def _profiles(out: Path, known: list[Profile]) -> Path:
    from fairlead.model.profile_json import profiles_as_toml

    path = out.with_suffix(".profiles.toml")
    path.write_text(profiles_as_toml(known), encoding="utf-8")
    say("wrote", f"{path} (for --profiles)")
    return path


def _meter(gpu: int) -> tuple[Any, str]:
    from fairlead.node.gpu.nvml import NvmlMeter

    meter = NvmlMeter()
    if gpu >= len(meter.gpus):
        raise InputError(f"--gpu {gpu}: this machine has {len(meter.gpus)} GPUs, counted from 0")
    return meter, meter.gpus[gpu].uuid


def _shim() -> dict[str, str]:
    """For clients of MPS: ending a busy one without it can break the server for the trials that follow."""
    from fairlead.node import shim

    try:
        return shim.environment(shim.build())
    except shim.ShimUnavailableError as error:
        say("note", f"{error}; clients of MPS are stopped without it, which can break the MPS server")
        return {}


def _commands(given: list[str]) -> list[Command]:
    from fairlead.measure.on_gpu.watched import Command

    found = []
    for text in given:
        name, equals, line = text.partition("=")
        if not equals or not name or not line.strip():
            raise InputError(f"--command {text}: expected NAME=COMMAND", hint='for example "resnet=python train.py"')
        found.append(Command(name, tuple(shlex.split(line))))
    return found


def _on(command: Command, uuid: str) -> Command:
    from dataclasses import replace

    return replace(command, env={**command.env, "CUDA_VISIBLE_DEVICES": uuid})


def _watching(step: str, seconds: float, warm_steps: int) -> Watching:
    from fairlead.measure.on_gpu.trials import Watching

    return Watching(step, warm_steps, seconds, lambda trial: say("note", str(trial)))


def _doubling(count: int) -> list[int]:
    return [1 << i for i in range(count.bit_length()) if 1 << i <= count]


def _dumps(value: Any) -> str:
    from fairlead.report import as_json

    return as_json.dumps(value) + "\n"


def _done(out: Path, about: Any, json: bool) -> None:
    say("wrote", str(out))
    if json:
        print_json(about)

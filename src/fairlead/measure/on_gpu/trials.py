"""Jobs alone and together on one GPU, and one job over more and more GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fairlead.errors import InputError
from fairlead.measure.on_gpu.watched import Command, Watched, watch
from fairlead.model.contention import Solo
from fairlead.model.interference import Interference
from fairlead.model.profile import GENERIC, Profile, Table
from fairlead.node.gpu.meter import Meter
from fairlead.node.mps.daemon import MpsDaemon

MOST_TOGETHER = 4
NO_ENV: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of jobs, in one way."""

    names: tuple[str, ...]
    way: str
    """alone, sliced or mps."""
    seen: Watched

    def __str__(self) -> str:
        seen, steps = self.seen, ", ".join(f"{1e3 * step_s:.1f}" for step_s in self.seen.step_s)
        words = [f"{' + '.join(self.names)} ({self.way}): {steps} ms a step"]
        if (busy := seen.means["utilisation_frac"]) is not None:
            words.append(f"{100.0 * busy:.0f} % busy")
        if seen.watts is not None and seen.joules_per_step is not None:
            words += [f"{seen.watts:.0f} W", f"{seen.joules_per_step:.2f} J a step"]
        return ", ".join(words)

    def as_json(self) -> dict[str, Any]:
        """The trial in plain types, with what follows from it."""
        more = {"step_s": self.seen.step_s, "watts": self.seen.watts, "joules_per_step": self.seen.joules_per_step}
        return {"names": self.names, "way": self.way, **asdict(self.seen), **more}


@dataclass(frozen=True, slots=True)
class Watching:
    """How each trial is watched."""

    pattern: str = r"(?i)\bstep\b"
    warm_steps: int = 20
    seconds: float = 15.0
    tell: Callable[[Trial], None] = lambda trial: None
    """Called with each of them when it is over."""

    def trial(self, commands: Sequence[Command], way: str, meter: Meter, gpus: Sequence[str]) -> Trial:
        """Run these commands together, and tell of the trial when it is over."""
        seen = watch(
            commands, meter, gpus, pattern=self.pattern, warm_steps=self.warm_steps, seconds=self.seconds
        )  # fmt: skip
        made = Trial(tuple(command.name for command in commands), way, seen)
        self.tell(made)
        return made


def colocation(
    commands: Sequence[Command], meter: Meter, gpu: str, watching: Watching, mps: MpsDaemon | None, *,
    client_env: Mapping[str, str] = NO_ENV, most: int = 2,
) -> list[Trial]:  # fmt: skip
    """Each command alone, then every set of 2 up to `most` of them, taking turns and, with a daemon, under MPS.

    `client_env` is for the clients of MPS: the shim, with which a busy one can be stopped without harm to the server.
    """
    if not 2 <= most <= MOST_TOGETHER or len(commands) < 2:
        raise InputError(f"{len(commands)} commands, sets of up to {most}: expected 2 or more, sets of 2 to 4")
    own = [replace(c, env={**c.env, "CUDA_VISIBLE_DEVICES": gpu}) for c in commands]
    found = [watching.trial([command], "alone", meter, [gpu]) for command in own]
    for size in range(2, min(most, len(own)) + 1):
        for chosen in itertools.combinations(own, size):
            found.append(watching.trial(chosen, "sliced", meter, [gpu]))
            if mps is not None:
                mps.start()
                try:
                    clients = [replace(c, env={**c.env, **mps.client_env(), **client_env}) for c in chosen]
                    found.append(watching.trial(clients, "mps", meter, [gpu]))
                finally:
                    mps.stop()
    return found


def interference(trials: Sequence[Trial], way: str) -> Interference:
    """What the sets left of each job's speed, as the table that `--interference` and EaCO's history read."""
    alone = {trial.names[0]: trial.seen.step_s[0] for trial in trials if trial.way == "alone"}
    table = Interference()
    for trial in trials:
        if trial.way == way:
            speeds = [
                min(alone[name] / step_s, 1.0) for name, step_s in zip(trial.names, trial.seen.step_s, strict=True)
            ]
            table.record(trial.names, speeds, trial.seen.means["utilisation_frac"])
    return table


def profile(trial: Trial, room_mib: float, curve: Mapping[str, Sequence[float]] | None = None) -> Profile:
    """What one command used of a GPU alone, and how it grows with GPUs, where that was measured."""
    means = trial.seen.means
    busy, active, memory_mib = means["utilisation_frac"], means["sm_activity_frac"], means["memory_used_mib"]
    occupied, bandwidth = means["sm_occupancy_frac"], means["dram_activity_frac"]
    found = replace(GENERIC, name=trial.names[0])
    if busy is not None:
        found = replace(found, activity_frac=busy)
    if memory_mib is not None:
        found = replace(found, memory_mib=memory_mib)
    if busy is not None and active is not None and occupied is not None and bandwidth is not None and memory_mib:
        solo = Solo(busy, active, occupied, bandwidth, memory_mib / room_mib, trial.seen.step_s[0])
        found = replace(found, solo=solo)
    if curve is not None and len(curve["widths"]) > 1:
        found = replace(found, speedup=Table(tuple(curve["widths"]), tuple(curve["speedups"])))
    return found


def scaling(command: Command, meter: Meter, watching: Watching, widths: Sequence[int]) -> list[tuple[int, Trial]]:
    """The command with the first 1, 2, ... GPUs; words `{gpus}` of it become their number."""
    gpus = [gpu.uuid for gpu in meter.gpus]
    if not widths or max(widths) > len(gpus) or min(widths) < 1:
        raise InputError(
            f"widths {', '.join(map(str, widths))}: expected numbers from 1 to {len(gpus)}, this machine's GPUs"
        )
    found = []
    for width in widths:
        argv = tuple(word.replace("{gpus}", str(width)) for word in command.argv)
        own = replace(command, argv=argv, env={**command.env, "CUDA_VISIBLE_DEVICES": ",".join(gpus[:width])})
        found.append((width, watching.trial([own], "alone", meter, gpus[:width])))
    return found


def speedups(found: Sequence[tuple[int, Trial]]) -> dict[str, list[float]]:
    """Steps a second over those of the narrowest, as `widths` and `speedups` of a job type (`fairlead widths`)."""
    first = found[0][1].seen.step_s[0]
    return {
        "widths": [float(width) for width, _ in found],
        "speedups": [found[0][0] * first / trial.seen.step_s[0] for _, trial in found],
    }

"""Commands on GPUs while they are watched: steps by the lines they print, watts and joules by the meter."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import RunError
from fairlead.node.gpu.meter import GpuSample, Meter
from fairlead.node.process.log_tail import Tail

_LOOK_S = 0.05
_STOP_S = 20.0
_MEANS = ("utilisation_frac", "sm_activity_frac", "sm_occupancy_frac", "dram_activity_frac", "memory_used_mib")


@dataclass(frozen=True, slots=True)
class Command:
    """A command to be measured, with its name and environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen in the window, all commands running."""

    seconds: float
    steps: tuple[float, ...]
    """Of each command."""
    joules: float | None
    means: dict[str, float | None]
    """Of what the meter tells, over the window."""

    @property
    def watts(self) -> float | None:
        """The mean power over the window; None where the meter has no joules."""
        return None if self.joules is None else self.joules / self.seconds

    @property
    def step_s(self) -> tuple[float, ...]:
        """Mean time of a step, of each command."""
        return tuple(self.seconds / steps for steps in self.steps)

    @property
    def joules_per_step(self) -> float | None:
        """Over the steps of all commands together."""
        return None if self.joules is None else self.joules / sum(self.steps)


def watch(
    commands: Sequence[Command], meter: Meter, gpus: Sequence[str], *, pattern: str, warm_steps: int, seconds: float,
    timeout_s: float = 600.0,
) -> Watched:  # fmt: skip
    """Run them together; once each has made `warm_steps` steps, watch for so long; then stop them."""
    counted = re.compile(pattern)
    with _running(commands) as jobs:
        counts = [0] * len(jobs)
        until_s = time.monotonic() + timeout_s
        while min(counts) < warm_steps:
            _count(jobs, counts, counted)
            if time.monotonic() > until_s:
                slow = commands[counts.index(min(counts))].name
                raise RunError(
                    f"{slow} made {min(counts)} of {warm_steps} steps in {timeout_s:g} s",
                    hint=f"a step is a line on stdout that matches {pattern!r}",
                )
            time.sleep(_LOOK_S)
        begun, samples = list(counts), [_of(meter, gpus)]
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + seconds:
            time.sleep(_LOOK_S)
            _count(jobs, counts, counted)
            samples.append(_of(meter, gpus))
        passed_s = time.monotonic() - begin_s
    steps = tuple(float(after - before) for after, before in zip(counts, begun, strict=True))
    if min(steps) < 1:
        raise RunError(f"{commands[steps.index(min(steps))].name} made no step in {seconds:g} s", hint="watch longer")
    return Watched(passed_s, steps, _joules(samples), {name: _mean(samples, name) for name in _MEANS})


@dataclass(slots=True)
class _Job:
    command: Command
    process: subprocess.Popen[bytes]
    tail: Tail
    errors: Path


@contextlib.contextmanager
def _running(commands: Sequence[Command]) -> Iterator[list[_Job]]:
    jobs: list[_Job] = []
    with tempfile.TemporaryDirectory(prefix="fl-measure-") as folder:
        try:
            for i, command in enumerate(commands):
                out, errors = Path(folder) / f"{i}.out", Path(folder) / f"{i}.err"
                env = {**os.environ, "PYTHONUNBUFFERED": "1", **command.env}
                with out.open("wb") as stdout, errors.open("wb") as stderr:
                    made = subprocess.Popen(
                        command.argv, env=env, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )  # fmt: skip
                jobs.append(_Job(command, made, Tail(out), errors))
            yield jobs
        except OSError as error:
            raise RunError(f"{error.filename or commands[len(jobs)].name}: {error.strerror}") from None
        finally:
            _stop(jobs)


def _stop(jobs: Sequence[_Job]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for job in jobs:
            if job.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.process.pid, number)
        for job in jobs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(_STOP_S)


def _count(jobs: Sequence[_Job], counts: list[int], counted: re.Pattern[str]) -> None:
    for i, job in enumerate(jobs):
        counts[i] += sum(1 for line in job.tail.new_lines() if counted.search(line))
        if job.process.poll() is not None:
            said = job.errors.read_text(errors="replace").strip().splitlines()
            why = said[-1] if said else "it said nothing"
            raise RunError(f"{job.command.name} ended with {job.process.returncode} before it was measured: {why}")


def _of(meter: Meter, gpus: Sequence[str]) -> list[GpuSample]:
    return [sample for sample in meter.read(processes=False) if sample.uuid in gpus]


def _joules(samples: Sequence[Sequence[GpuSample]]) -> float | None:
    total = 0.0
    for first, last in zip(samples[0], samples[-1], strict=True):
        if first.energy_mj is None or last.energy_mj is None or last.energy_mj < first.energy_mj:
            return None
        total += (last.energy_mj - first.energy_mj) / 1000.0
    return total


def _mean(samples: Sequence[Sequence[GpuSample]], name: str) -> float | None:
    values = [value for row in samples for sample in row if (value := getattr(sample, name)) is not None]
    return statistics.fmean(values) if values else None

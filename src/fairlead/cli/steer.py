"""`fairlead steer`: decide order and nodes for jobs that users submit with plain sbatch."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from fairlead.cli.console import say


def steer(
    partition: Annotated[str, typer.Option("--partition", "-p", help="The partition to steer.")],
    policy: Annotated[str, typer.Option("--policy", help="Orderings and placings. See `fairlead policies`.")] = "fifo",
    failsafe: Annotated[
        str, typer.Option("--failsafe", metavar="TIME", help="Slurm goes on by itself so long after we are gone.")
    ] = "10m",
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often to look.")] = "2s",
) -> None:
    """Decide when and where held jobs of a Slurm partition run; users keep their sbatch. Until Ctrl-C or SIGTERM."""
    from fairlead.live.engines.engine import EngineError
    from fairlead.live.engines.slurm.steer import Steering
    from fairlead.live.jobs.quantities import seconds
    from fairlead.model.files import read_text
    from fairlead.policy import registry

    failsafe_s, every_s = seconds(failsafe, "--failsafe"), seconds(every, "--every")
    steering = Steering(registry.build(policy, read=read_text), partition, failsafe_s=failsafe_s)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    say("note", f"steering {partition}; jobs that arrive held are taken on")
    while True:
        try:
            steering.step()
        except EngineError as error:
            say("error", f"Slurm is not heard of: {error.message}")
        if stopping.wait(every_s):
            break
    say("note", f"{steering.started} starts, {steering.preempted} preemptions; Slurm goes on by itself in {failsafe}")

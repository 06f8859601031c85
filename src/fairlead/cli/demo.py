"""`fairlead demo`: a controller on made-up GPUs and some real processes to schedule, for a minute."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.live.client import Client

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
_GPUS = 8
_POLICY = "ordering=priority:preempt=false,sharing=eaco:history=eaco,powering=sleep"
"""EaCO with what its authors measured, so that jobs share from the first minute on."""
_LOOK_S = 0.5
_LONGEST_S = 300.0
_OVER = ("finished", "parked", "cancelled")


def demo(json: JsonOption = False) -> None:
    """Schedule a few example jobs on made-up GPUs and show how; nothing is left behind. Ctrl-C ends it."""
    from fairlead.cli.connect import connect
    from fairlead.cli.live import start
    from fairlead.live.home import Home

    if not (_EXAMPLES / "train.py").is_file():
        raise InputError(f"the demo runs examples/train.py, and {_EXAMPLES} has none", hint="run it from a checkout")
    home = Home(Path(tempfile.mkdtemp(prefix="fairlead-demo-")))
    try:
        start(home, [f"--fake-gpus={_GPUS}", "--port=0", f"--policy={_POLICY}"])
        with connect(home.path) as client:
            numbers = [client.submit({**job, "cwd": str(home.path)})["id"] for job in _workload()]
            with contextlib.suppress(KeyboardInterrupt):
                _show(client, quiet=json)
            found = [client.job(number) for number in numbers]
        _conclude(found, json)
    finally:
        _clean_up(home.path)


def _workload() -> list[dict[str, Any]]:
    """A little more than fits: one elastic job, one with a deadline, one service, some that have to wait or share."""

    def train(profile: str, epochs: int, epoch_s: float, **asked: Any) -> dict[str, Any]:
        words = [sys.executable, str(_EXAMPLES / "train.py"), "--epochs", str(epochs), "--epoch-s", str(epoch_s)]
        return {"name": profile.lower(), "command": words, "profile": profile, "grace_s": 5, **asked}

    served = [sys.executable, str(_EXAMPLES / "service.py"), "--latency-ms", "20"]
    return [
        {"name": "search", "command": served, "kind": "service", "slo_s": 0.05, "grace_s": 5},
        train("ResNet-50", 6, 7.0, gpus=4),
        train("VGG-16", 5, 4.0, gpus=2, deadline_s=3600.0, estimate_s=60.0),
        train("BERT", 8, 2.0, gpus=1, min_gpus=1, max_gpus=4),
        train("AlexNet", 5, 6.0, gpus=4),
        train("ResNet-18", 4, 3.0, gpus=2),
        train("GPT2", 4, 4.0, gpus=4, priority=1),
    ]


def _show(client: Client, *, quiet: bool) -> None:
    """Until all that ends by itself is over: the picture in a terminal, else what happens, line by line."""
    from fairlead.cli.live_tables import event_text
    from fairlead.cli.top import Eyes, watch

    console = stdout_console()
    if console.is_terminal and not quiet:
        watch(Eyes(client), until=lambda seen: not any(_ends(job) for job in (*seen["running"], *seen["waiting"])))
        return
    after, until_s, is_over = 0, time.monotonic() + _LONGEST_S, False
    while not is_over and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
        is_over = not any(_ends(job) for job in client.jobs() if job["state"] not in _OVER)
        for event in client.events(after=after):
            after = event["id"]
            if not quiet:
                console.print(event_text(event), soft_wrap=True)


def _ends(job: dict[str, Any]) -> bool:
    return bool(job["kind"] != "service")


def _conclude(jobs: list[dict[str, Any]], json: bool) -> None:
    from fairlead.cli.live_tables import job_table

    if json:
        print_json({"jobs": jobs})
    else:
        stdout_console().print(job_table(jobs))
        say("note", "the GPUs were made up, the processes were real, and all of it is gone again")
        say("hint", "your turn: fairlead up --fake-gpus 8 --detach; fairlead submit -g 2 -- sleep 60; fairlead top")
    failed = [job for job in jobs if job["failures"]]
    for job in failed:
        say("error", f"job {job['id']}, {job['name']}, has failed: {job['detail'] or job['reason']}")
    if failed:
        raise typer.Exit(1)


def _clean_up(home: Path) -> None:
    from fairlead.live.home import Home
    from fairlead.live.shutdown import stop_agents, stop_controller

    stop_controller(Home(home))
    stop_agents(Home(home), kill_jobs=True)
    shutil.rmtree(home, ignore_errors=True)

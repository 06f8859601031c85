"""`fairlead up` and `fairlead down`: the controller of a live cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.connect import HomeOption
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption
from fairlead.errors import FairleadError

if TYPE_CHECKING:
    from fairlead.live.config import Config
    from fairlead.live.home import Home

_COME_UP_S = 60.0

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Default: FAIRLEAD_CONFIG, else fairlead.toml in the home folder."),
]
FakeGpusOption = Annotated[
    int | None,
    typer.Option("--fake-gpus", min=0, help="So many made-up GPUs (per node) instead of the machine's own."),
]
FakeNodesOption = Annotated[int | None, typer.Option("--fake-nodes", min=1, help="On so many made-up nodes.")]
GpuModelOption = Annotated[str | None, typer.Option("--gpu-model", help="Of made-up GPUs: H200, A100, ...")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="A preset, or stage=name pairs. See `fairlead policies`.")
]
HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on. Default: 127.0.0.1.")]
PortOption = Annotated[int | None, typer.Option("--port", help="Default: 7317; 0 is any that is free.")]


def up(
    config: ConfigOption = None,
    fake_gpus: FakeGpusOption = None,
    fake_nodes: FakeNodesOption = None,
    gpu_model: GpuModelOption = None,
    policy: PolicyOption = None,
    home: HomeOption = None,
    host: HostOption = None,
    port: PortOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it answers; it runs on by itself.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log to the file in the home folder only.")] = False,
    json: JsonOption = False,
) -> None:
    """Start the controller: it schedules submitted jobs on this machine's GPUs until it is stopped."""
    from fairlead.live.config import SETTINGS
    from fairlead.live.home import Home, home_folder

    folder = Home(home_folder(home))
    options = {
        "engine.fake_gpus": fake_gpus,
        "engine.fake_nodes": fake_nodes,
        "engine.gpu_model": gpu_model,
        "policy.stack": policy,
        "server.host": host,
        "server.port": port,
    }
    wanted = effective(config, folder.path, options)  # also where detached: mistakes are told at once
    if detach:
        words = [f"{SETTINGS[name].option}={value}" for name, value in options.items() if value is not None]
        url = start(folder, [*words, *([f"--config={config}"] if config else [])])
        _ready(url, folder, json)
        return
    from fairlead.live.service import serve

    serve(folder, wanted, lambda url: _ready(url, folder, json), log_to_stderr=not quiet)


def effective(config: Path | None, home: Path, options: dict[str, Any]) -> Config:
    """The configuration as it is in force here."""
    from fairlead.live.config import find_file, load

    return load(find_file(config, home), os.environ, options)


def _ready(url: str, home: Home, json: bool) -> None:
    if json:
        print_json({"url": url, "home": str(home.path)})
        sys.stdout.flush()
    else:
        say("note", f"the controller answers at {url}; its folder is {home.path}")
        say("hint", "submit a job: fairlead submit -g 1 -- sleep 60; watch: fairlead top; stop: fairlead down")


def start(home: Home, words: list[str]) -> str:
    """`fairlead up` in a session of its own; where it answers. What it complains of before that is told here."""
    from fairlead.live.home import read

    home.prepare()
    program = "from fairlead.cli.main import run; run()"
    line = [sys.executable, "-c", program, "up", "--quiet", f"--home={home.path}", *words]
    with (home.path / "up.log").open("w+b") as said:
        child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        until_s = time.monotonic() + _COME_UP_S
        while not _is_up(home, child.pid):
            code = child.poll()
            if code is not None:
                said.seek(0)
                sys.stderr.write(said.read().decode(errors="replace"))
                raise typer.Exit(code if code > 0 else 1)
            if time.monotonic() > until_s:
                raise FairleadError(f"the controller does not answer after {_COME_UP_S:g} s", hint=f"see {home.log}")
            time.sleep(0.05)
    child.returncode = 0  # it is on its own from here; without this Python would warn of it
    return read(home.url)


def _is_up(home: Home, pid: int) -> bool:
    holder = home.holder()
    return holder is not None and holder[0] == pid and home.url.exists()


def down(
    home: HomeOption = None,
    kill_jobs: Annotated[bool, typer.Option("--kill-jobs", help="Kill running jobs, too.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the controller and its agents. Running jobs go on with theirs, unless they are to be killed."""
    from fairlead.live.home import Home, home_folder
    from fairlead.live.shutdown import stop_agents, stop_controller

    folder = Home(home_folder(home))
    pid = stop_controller(folder)
    running, killed = stop_agents(folder, kill_jobs=kill_jobs)
    if json:
        print_json({"stopped_pid": pid, "jobs_left_running": running, "jobs_killed": killed})
        return
    say("note", f"no controller ran in {folder.path}" if pid is None else f"stopped the controller, process {pid}")
    if running:
        say("note", f"jobs that go on running, with their agents: {running}")
        say("hint", "the next `fairlead up` takes them over; `fairlead down --kill-jobs` ends them")
    if killed:
        say("note", f"jobs that were killed, and will be tried again by the next `fairlead up`: {killed}")

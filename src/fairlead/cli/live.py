"""`fairlead up` and `fairlead down`: the controller of a live cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fairlead.cli.connect import HomeOption
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption
from fairlead.cli.page import link, page_url, sign_in_link
from fairlead.errors import FairleadError, InputError, RunError

if TYPE_CHECKING:
    from fairlead.live.config import Config
    from fairlead.live.home import Home
    from fairlead.live.shutdown import Left

_MOST_NAMED = 10
_COME_UP_S = 60.0

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file. Default: FAIRLEAD_CONFIG, else fairlead.toml in the home folder.",
    ),
]
EngineOption = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="Who brings nodes: local (default), join or slurm.")
]
FakeGpusOption = Annotated[
    int | None,
    typer.Option("--fake-gpus", min=0, help="Make up N GPUs per node, instead of using this machine's."),
]
FakeNodesOption = Annotated[int | None, typer.Option("--fake-nodes", min=1, help="Make up N nodes.")]
GpuModelOption = Annotated[str | None, typer.Option("--gpu-model", help="Model of made-up GPUs: H200, A100, ...")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="A preset, or stage=name pairs. See `fairlead policies`.")
]
HostOption = Annotated[str | None, typer.Option("--host", help="The address to listen on. Default: 127.0.0.1.")]
PortOption = Annotated[
    int | None, typer.Option("--port", help="The port to listen on. Default: 7317; 0 takes a free one.")
]


def up(
    config: ConfigOption = None,
    engine: EngineOption = None,
    fake_gpus: FakeGpusOption = None,
    fake_nodes: FakeNodesOption = None,
    gpu_model: GpuModelOption = None,
    policy: PolicyOption = None,
    home: HomeOption = None,
    host: HostOption = None,
    port: PortOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start it in the background, and return when it answers.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log to the file in the home folder only.")] = False,
    json: JsonOption = False,
) -> None:
    """Start the controller: it schedules jobs on this machine's GPUs, or its engine's, until it is stopped."""
    from fairlead.live.config import SETTINGS
    from fairlead.live.home import Home, home_folder

    folder = Home(home_folder(home))
    options = {
        "engine.name": engine,
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
        _ready(url, folder, json, _link(folder))
        return
    from fairlead.live.daemon import serve

    def ready(url: str, make_code: Callable[[], str]) -> None:
        _ready(url, folder, json, link(url, make_code()) if sys.stderr.isatty() else "")

    serve(folder, wanted, ready, log_to_stderr=not quiet)


def effective(config: Path | None, home: Path, options: dict[str, Any]) -> Config:
    """The configuration as it is in force here."""
    from fairlead.live.config import find_file, load

    return load(find_file(config, home), os.environ, options)


def _link(home: Home) -> str:
    """Signs in to the page; only for somebody who looks, since what goes into a file may be read by others."""
    from fairlead.cli.connect import connect

    if not sys.stderr.isatty():
        return ""
    with connect(home.path) as client:
        return sign_in_link(client)


def _ready(url: str, home: Home, json: bool, link: str = "") -> None:
    if json:
        print_json({"url": url, "home": str(home.path)})
        sys.stdout.flush()
    else:
        say("note", f"the controller answers at {url}; its folder is {home.path}")
        if link:
            say("note", f"its page, by a link that works once: {link}")
        else:
            say("note", f"its page is {page_url(url)}; `fairlead page` prints a link that signs you in")
        say("hint", "submit a job: fairlead submit -g 1 -- sleep 60; watch: fairlead top; stop: fairlead down")


def start(home: Home, words: list[str], *, warn: bool = True) -> str:
    """`fairlead up` in a session of its own; where it answers. Errors are shown here, and with `warn` warnings."""
    from fairlead.live.home import WARNING, read

    home.prepare()
    program = "from fairlead.cli.main import run; run()"
    line = [sys.executable, "-c", program, "up", "--quiet", f"--home={home.path}", *words]
    path = home.path / "up.log"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as said:
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
    # Not by the file that is open here: it has one position for the child and us.
    lines = path.read_text(errors="replace").splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if warn and line.startswith(WARNING))
    child.returncode = 0  # it is on its own from here; without this Python would warn of it
    return read(home.url)


def _is_up(home: Home, pid: int) -> bool:
    holder = home.holder()
    return holder is not None and holder[0] == pid and home.url.exists()


def down(
    home: HomeOption = None,
    kill_jobs: Annotated[
        bool, typer.Option("--kill-jobs", help="Stop running jobs too: SIGTERM, then SIGKILL after their grace.")
    ] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace", metavar="TIME", help="With --kill-jobs: the grace for all jobs, instead of each job's own."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Stop the controller. Running jobs keep running, unless you say --kill-jobs."""
    from fairlead.live.home import Home, home_folder
    from fairlead.live.jobs.quantities import seconds
    from fairlead.live.shutdown import stop_agents, stop_controller

    if grace is not None and not kill_jobs:
        raise InputError(f"--grace {grace} without --kill-jobs, and no job is ended", hint="give both, or neither")
    grace_s = None if grace is None else seconds(grace, "--grace")
    folder = Home(home_folder(home))
    pid = stop_controller(folder)
    left = stop_agents(folder, kill_jobs=kill_jobs, grace_s=grace_s)
    if json:
        print_json({"stopped_pid": pid, "jobs_left_running": len(left.running), "jobs_killed": len(left.killed)})
    else:
        say("note", f"no controller ran in {folder.path}" if pid is None else f"stopped the controller, process {pid}")
        if left.killed:
            say("note", f"jobs that were killed, and go on with the next `fairlead up`: {len(left.killed)}")
        if left.running and not kill_jobs:
            say("note", f"jobs that go on running, with their agents: {len(left.running)}")
            say("hint", "the next `fairlead up` takes them over; `fairlead down --kill-jobs` ends them")
    if left.running and kill_jobs:
        _complain(left)


def _complain(left: Left) -> NoReturn:
    """Jobs run on that should not."""
    numbers = ", ".join(map(str, sorted(left.running)[:_MOST_NAMED]))
    more = ", ..." if len(left.running) > _MOST_NAMED else ""
    message = f"jobs that still run: {len(left.running)} ({numbers}{more})"
    if not left.silent:
        raise RunError(f"{message}; they have not ended within their grace, and SIGKILL did not help")
    where = ", ".join(str(folder) for folder in left.silent)
    raise RunError(
        f"{message}; their agents do not answer: {where}",
        hint="`fairlead up` starts dead agents again, and after it `fairlead down --kill-jobs` works; one that is"
        " stopped needs SIGCONT or SIGKILL first",
    )

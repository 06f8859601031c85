"""`fairlead demo`: a cluster of made-up GPUs tells in a minute what Fairlead does, with real processes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import demo_story as story
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.cli.options import JsonOption

if TYPE_CHECKING:
    from rich.live import Live

    from fairlead.cli.demo_costs import Costs
    from fairlead.cli.demo_picture import Teller
    from fairlead.live.client import Client

_LOOK_S = 0.5
_LONGEST_S = 300.0
_SHARED_S = 5.0
"""How long a training has run beside a service when the service's burst begins."""
_OVER = ("finished", "parked", "cancelled")
_ENCORE_S = 12.0


def demo(
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep it running afterwards, with more jobs, until Ctrl-C: to look around.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Watch two users share eight made-up GPUs for a minute, then see what that saved. It leaves nothing behind."""
    from fairlead.cli.connect import connect
    from fairlead.cli.live import start
    from fairlead.live.home import Home

    home = Home(Path(tempfile.mkdtemp(prefix="fairlead-demo-")))
    try:
        story.write_configuration(home.path)
        start(home, [], warn=False)
        with connect(home.path) as client, contextlib.suppress(KeyboardInterrupt):
            told = Story(client, home.path, quiet=json)
            told.run()
            _conclude(told, json)
            if stay:
                told.stay()
    finally:
        _clean_up(home.path)


class Story:
    """Submits the scenes, starts a burst where a training runs beside a service, and tells what happens."""

    def __init__(self, client: Client, home: Path, *, quiet: bool) -> None:
        from fairlead.cli.demo_picture import Teller
        from fairlead.live.client import Client

        self._client, self._home, self._quiet = client, home, quiet
        self._users = {user: Client(client.url, client.make_token(user, "user")["token"]) for user in story.USERS}
        self._scenes: dict[int, story.Scene] = {}
        self._teller: Teller = Teller(self._scenes)
        self._after = 0
        self._beside: tuple[int, float] | None = None
        """The training that runs beside a service, and since when."""
        self._burst: Path | None = None
        self._began_s = time.monotonic()
        self.lines: list[dict[str, Any]] = []
        """What was said, and when."""
        self.paid_gpu_s = 0.0

    def run(self) -> None:
        """Until all trainings are done."""
        from fairlead.cli.page import sign_in_link

        self._say(f"the page, while this runs: {sign_in_link(self._client)}", "bold")
        scenes = list(story.SCENES)
        with self._shown() as live:
            while time.monotonic() - self._began_s < _LONGEST_S:
                while scenes and self._now_s() >= scenes[0].at_s:
                    self.submit(scenes.pop(0))
                self._hear()
                self._stage_burst()
                jobs = self.jobs()
                if live is not None:
                    live.update(self._picture(jobs), refresh=True)
                if not scenes and all(job["state"] in _OVER for job in jobs if job["kind"] != "service"):
                    self.paid_gpu_s = float(self._client.snapshot()["paid_gpu_s"])
                    return
                time.sleep(_LOOK_S)

    def stay(self) -> None:
        """More of the same, so that there is something to look at."""
        trainings = [scene for scene in story.SCENES if scene.profile]
        say("note", f"the cluster stays until Ctrl-C; another link to its page: fairlead page --home {self._home}")
        for turn in range(10**9):
            self.submit(trainings[turn % len(trainings)])
            until_s = time.monotonic() + _ENCORE_S
            while time.monotonic() < until_s:
                self._hear()
                time.sleep(_LOOK_S)

    def submit(self, scene: story.Scene) -> None:
        """Submit a scene's job as the user of that scene, and say what it is."""
        number = self._users[scene.user].submit(story.request(scene, self._home))["id"]
        self._scenes[number] = scene
        if not scene.profile:
            what = f"a service that must answer within {1000 * story.SLO_S:g} ms"
        elif scene.most_gpus > 1:
            what = f"a training that asks for {scene.gpus} GPUs and can use 1 to {scene.most_gpus}"
        else:
            what = "a training on 1 GPU"
        self._say(f"{scene.user} submits {scene.name}, {what}", "cyan")

    def jobs(self) -> list[dict[str, Any]]:
        """All so far, with their attempts."""
        return [self._client.job(number) for number in self._scenes]

    def _hear(self) -> None:
        for event in self._client.events(after=self._after):
            self._after = event["id"]
            if event["what"] == "evicting" and self._burst is not None:
                self._burst.unlink(missing_ok=True)
            if sentence := self._teller.tell(event):
                self._say(sentence)

    def _stage_burst(self) -> None:
        """Once, when a training that stays where it is has run beside a service for some seconds."""
        if self._burst is not None:
            return
        found = next(
            (n for n, s in self._scenes.items() if s.profile and s.most_gpus == 1 and self._teller.beside(n)), None
        )
        if found is None:
            self._beside = None
        elif self._beside is None or self._beside[0] != found:
            self._beside = found, time.monotonic()
        elif time.monotonic() - self._beside[1] >= _SHARED_S:
            service = self._scenes[self._teller.beside(found)[0]].name
            self._burst = story.burst_file(self._home, service)
            self._burst.touch()
            self._say(f"{service} gets a burst of requests, and its latency rises", "bold yellow")

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _say(self, sentence: str, style: str = "") -> None:
        from fairlead.cli.demo_picture import story_line

        told = {"at_s": round(self._now_s(), 1), "said": sentence}
        self.lines.append(told)
        if not self._quiet:
            (self._console or stdout_console()).print(story_line(told, style), soft_wrap=True)

    _console: Any = None

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Live | None]:
        """The picture below the sentences, where this is a terminal."""
        console = stdout_console()
        if self._quiet or not console.is_terminal:
            yield None
            return
        from rich.live import Live

        self._console = console
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield live

    def _picture(self, jobs: list[dict[str, Any]]) -> Any:
        from fairlead.cli.demo_picture import picture

        return picture(jobs, time.time(), stdout_console().width) if jobs else ""


def _conclude(told: Story, json: bool) -> None:
    from dataclasses import asdict

    from fairlead.cli.demo_costs import as_it_ran, span_s, without_sharing

    jobs = told.jobs()
    failed = [job for job in jobs if job["failures"] or (job["kind"] != "service" and job["state"] != "finished")]
    if failed:
        for job in failed:
            why = job["detail"] or job["reason"] or job["state"]
            say("error", f"job {job['id']}, {job['name']}, has not finished: {why}")
        raise typer.Exit(1)
    ran, alone = as_it_ran(jobs, told.paid_gpu_s), without_sharing(jobs)
    if json:
        costs = {"as_it_ran": asdict(ran), "without_sharing": {**asdict(alone), "is_simulated": True}}
        print_json({"jobs": jobs, "story": told.lines, "budget_gpus": story.BUDGET_GPUS, **costs})
    else:
        _show_end(jobs, span_s(jobs)[1], ran, alone)


def _show_end(jobs: list[dict[str, Any]], end_s: float, ran: Costs, alone: Costs) -> None:
    from fairlead.cli.demo_picture import cost_table, picture

    console = stdout_console()
    console.print("\nWho ran where (letters that alternate share a GPU, dots are GPUs without a job):\n")
    console.print(picture(jobs, end_s, console.width))
    console.print("\nWhat it cost, until the last training was done:\n")
    console.print(cost_table(ran, alone))
    console.print(_budget_line(ran.paid_gpus), soft_wrap=True)
    say("note", "the processes were real; the GPUs, their power and their price were made up")
    say(
        "note",
        "'without sharing' is simulated from the log of this run: the same jobs at the same times, each alone on the "
        "GPUs it asked for, on the same rented nodes",
    )
    say("hint", "your turn: fairlead up --fake-gpus 8 --detach; fairlead submit -g 2 -- sleep 60; fairlead top")


def _budget_line(paid_gpus: float) -> str:
    said = f"\nBudget: {story.BUDGET_GPUS:g} GPUs on average; paid for: {paid_gpus:.1f}."
    return said if paid_gpus <= story.BUDGET_GPUS else f"{said} It is kept over hours; a minute can be above it."


def _clean_up(home: Path) -> None:
    from fairlead.live.home import Home
    from fairlead.live.shutdown import stop_agents, stop_controller

    stop_controller(Home(home))
    stop_agents(Home(home), kill_jobs=True)
    shutil.rmtree(home, ignore_errors=True)

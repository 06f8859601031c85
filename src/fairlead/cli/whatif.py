"""`fairlead whatif`: when jobs start and end, and what another policy, more jobs or other nodes would change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli import options
from fairlead.cli.connect import HomeOption, connect
from fairlead.cli.console import print_json, say, stdout_console
from fairlead.errors import InputError

if TYPE_CHECKING:
    from fairlead.model.snapshot import Snapshot

_JOB_HINT = "for example gpus=4,duration_s=3600,profile=BERT, or a TOML file of [[job]] tables"


def whatif(
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="FILE", help="The state to start from. Default: the live cluster's, now."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="Another policy. See `fairlead policies`.", rich_help_panel="What if")
    ] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="FIELD=VALUE,...|FILE",
            help="A job submitted now: gpus=4,duration_s=3600,profile=BERT; or a job file. May be repeated.",
            rich_help_panel="What if",
        ),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            "--nodes",
            metavar="+N|-N",
            help="Add N nodes like the last one, or remove N.",
            rich_help_panel="What if",
        ),
    ] = 0,
    seed: options.SeedOption = 0,
    home: HomeOption = None,
    json: options.JsonOption = False,
) -> None:
    """Predict when jobs start and end; with --policy, --job or --nodes also what that would change."""
    from fairlead import whatif as futures
    from fairlead.report.whatif import comparison_table, prediction_table

    found = load(snapshot, home)
    extra = [one for text in job or () for one in read_jobs(text)]
    if policy is None and not extra and not nodes:
        prediction = futures.predict(found, seed=seed)
        told, shown, notes = prediction.as_json(), prediction_table(prediction), prediction.notes
    else:
        comparison = futures.whatif(found, policy=policy, jobs=extra, nodes=nodes, seed=seed)
        told, shown = comparison.as_json(), comparison_table(comparison)
        notes = (*comparison.as_is.notes, *comparison.what_if.notes)
    for note in dict.fromkeys(notes):
        say("note", note)
    if json:
        print_json(told)
    else:
        stdout_console().print(shown)


def load(source: str | None, home: Path | None) -> Snapshot:
    """The state in a file, else that of the live cluster."""
    from fairlead.model.snapshot import Snapshot, load_snapshot

    if source is not None:
        return load_snapshot(Path(source))
    with connect(home) as client:
        return Snapshot.from_dict(client.snapshot())


def read_jobs(text: str) -> list[dict[str, Any]]:
    """The jobs of one `--job`: one in line, or those of a file."""
    path = Path(text)
    if path.suffix == ".toml" or path.is_file():
        return _read_file(path)
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name:
            raise InputError(f"--job {text!r}: {part!r} is not FIELD=VALUE", hint=_JOB_HINT)
        if name in found:
            raise InputError(f"--job {text!r} gives {name} twice")
        found[name] = value
    return [found]


def _read_file(path: Path) -> list[dict[str, Any]]:
    """Those of a job file, as `submit` takes it; without commands, a file of what-if alone."""
    from fairlead.model.files import read_toml

    if path.suffix.lower() in (".yaml", ".yml"):
        return _submittable(path)
    tables = read_toml(path)
    jobs = tables.get("job")
    listed = jobs if isinstance(jobs, list) else []
    if "command" in tables or any("command" in job for job in listed if isinstance(job, dict)):
        return _submittable(path)
    if not listed or not all(isinstance(job, dict) for job in listed) or len(tables) > 1:
        raise InputError(f"{path}: expected [[job]] tables, found {', '.join(tables) or 'nothing'}", hint=_JOB_HINT)
    return listed


def _submittable(path: Path) -> list[dict[str, Any]]:
    from fairlead.live.jobs.job_files import load_jobs

    same = ("kind", "gpu_frac", "profile", "priority", "deadline_s", "memory_mib", "batch")
    return [
        {
            **{name: getattr(job, name) for name in same},
            "name": job.shown_name,
            "gpus": job.asked_gpus,
            "min_gpus": job.least_gpus,
            "max_gpus": job.most_gpus,
            "duration_s": job.estimate_s,
        }
        for job in load_jobs(path, Path.cwd())
    ]

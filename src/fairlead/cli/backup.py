"""`fairlead backup` and `fairlead restore`: the controller's database, copied away and put back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; replaces an older backup.")],
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Copy the controller's database to a file, also while the controller runs."""
    from fairlead.live.home import Home, home_folder
    from fairlead.live.storage.backup import back_up

    jobs = back_up(Home(home_folder(home)), file)
    if json:
        print_json({"file": str(file.absolute()), "jobs": jobs, "bytes": file.stat().st_size})
    else:
        say("note", f"{jobs} jobs are in {file}; `fairlead restore` puts them back")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `fairlead backup` wrote.")],
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Restore a backup of the controller's database; the present one is kept. Stop the controller first."""
    from fairlead.live.home import Home, home_folder
    from fairlead.live.storage.backup import restore as put_back

    folder = Home(home_folder(home))
    done = put_back(folder, file)
    if json:
        kept = None if done.kept is None else str(done.kept)
        print_json({"home": str(folder.path), "jobs": done.jobs, "next_job_id": done.next_job_id, "kept": kept})
        return
    say("note", f"restored {done.jobs} jobs to {folder.path}")
    if done.kept is not None:
        say("note", f"the database from before is {done.kept}")
        if not done.knows_before:
            say("note", "it cannot be read: check with `fairlead token list` whom you had revoked since the backup")
    say("hint", "fairlead up goes on from there: jobs submitted since are lost, what runs of them is stopped")

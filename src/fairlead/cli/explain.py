"""`fairlead explain`: why a job waits or runs where it does, and when it is expected to start and end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairlead.cli.connect import HomeOption, JobArgument, connect, job_number
from fairlead.cli.console import print_json, stdout_console
from fairlead.cli.options import JsonOption

if TYPE_CHECKING:
    from fairlead.live.client import Client


def explain(job: JobArgument, home: HomeOption = None, json: JsonOption = False) -> None:
    """Say why a job waits, or runs where it does, and when it is expected to start and end."""
    with connect(home) as client:
        found = client.explain(job_number(client, job))
        found["expected"] = _expected(client, found["id"])
    if json:
        print_json(found)
        return
    from rich.text import Text

    console = stdout_console()
    word = found.get("wait_reason") or found["reason"]
    console.print(Text(f"job {found['id']} is {found['state']}{f' ({word})' if word else ''}:", style="bold"))
    for line in found["why"]:
        console.print(Text(f"- {line}"))
    for one in found["rejected"]:
        console.print(Text(f"- not {one['where']}: {one['why']}"))
    for line in _foreseen(found["expected"]):
        console.print(Text(f"- {line}"))


def _expected(client: Client, job_id: int) -> dict[str, Any] | None:
    """By the simulator, from how things stand now; None for a job that is held."""
    from fairlead import whatif
    from fairlead.model.snapshot import Snapshot

    found = whatif.predict(Snapshot.from_dict(client.snapshot()))
    one = next((job for job in found.jobs if job.id == job_id), None)
    if one is None:
        return None
    return {
        "starts_in_s": one.wait_s,
        "ends_in_s": None if one.end_s is None else one.end_s - found.now_s,
        "meets_deadline": one.meets_deadline,
        "is_guess": one.is_guess,
        "is_service": one.kind == "service",
    }


def _foreseen(expected: Mapping[str, Any] | None) -> list[str]:
    from fairlead.report.units import duration

    if expected is None:
        return []
    starts_s, ends_s = expected["starts_in_s"], expected["ends_in_s"]
    if starts_s is None:
        return ["as things stand it never starts"]
    parts = [f"to start in {duration(starts_s)}"] if starts_s else []
    if ends_s is not None:
        parts.append(f"to end in {duration(ends_s)}")
    told = [f"expected {' and '.join(parts)}, if nobody else comes"] if parts else []
    if expected["meets_deadline"] is False:
        told.append("that is after its deadline")
    if expected["is_guess"] and not expected["is_service"]:
        told.append("how long it takes is a guess: say --estimate, or let it report its epochs")
    return told

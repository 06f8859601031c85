"""The demo's picture, sentences and costs, from a log that was made up."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cli.console import stdout_console
from fairlead.cli.demo_costs import as_it_ran, without_sharing
from fairlead.cli.demo_picture import Teller, picture
from fairlead.cli.demo_story import Scene


def attempt(gpus: list[str], start_s: float, end_s: float | None) -> dict[str, Any]:
    return {"placement": gpus, "started_at_s": start_s, "ended_at_s": end_s, "reason": ""}


def job(name: str, submitted_s: float, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """On one GPU, 20 s alone, unless told otherwise."""
    usual = {"kind": "training", "user": "ana", "profile": "vision", "gpus": 1, "estimate_s": 20.0, "energy_j": 1000.0}
    ended_s = attempts[-1]["ended_at_s"]
    return {"name": name, "submitted_at_s": submitted_s, "ended_at_s": ended_s, "attempts": attempts, **usual, **more}


def log() -> list[dict[str, Any]]:
    service = job("search", 0.0, attempt(["node-0:0"], 0.0, None), kind="service", profile=None)
    moved = job("vgg", 0.0, attempt(["node-0:0"], 0.0, 10.0), attempt(["node-1:1"], 10.0, 20.0))
    return [service, moved]


def lines(width: int = 72) -> dict[str, str]:
    console = stdout_console()
    with console.capture() as captured:
        console.print(picture(log(), 20.0, width))
    return {line[:8]: line[10:].rstrip() for line in captured.get().splitlines()}


def test_letters_that_alternate_share_a_gpu_and_one_that_moved_is_in_two_lines() -> None:
    drawn = lines()
    assert set(drawn["node-0:0"][:30]) == {"S", "v"}
    assert set(drawn["node-0:0"][30:]) == {"S"}
    assert drawn["node-1:1"] == "·" * 30 + "v" * 30
    assert set(drawn["node-3:0"]) == {"·"}


def test_the_story_says_beside_whom_who_was_evicted_and_where_it_goes_on() -> None:
    teller = Teller({1: Scene(0.0, "ana", "search"), 2: Scene(0.0, "ben", "vgg", "vision", 1)})

    def tell(what: str, job_id: int | None = None, about: str = "", node: str = "") -> str | None:
        return teller.tell({"what": what, "job_id": job_id, "about": about, "node": node})

    assert tell("placed", 1, "on node-0:0") == "search starts on node-0:0"
    assert tell("placed", 2, "on node-0:0, shared, 55% of the SMs") == "vgg starts on node-0:0, beside search"
    assert (tell("evicting", 2) or "").startswith("search is over its SLO: the guard freezes vgg")
    assert tell("waiting", 2) is None
    assert tell("placed", 2, "on node-1:1") == "vgg has moved and goes on from its checkpoint: node-1:1"
    assert "grows from 1 GPU to 2 GPUs" in (tell("resized", 2, "on node-2:0, node-2:1") or "")
    assert tell("finished", 2) == "vgg is done"
    assert tell("started", 9) is None
    assert "2 GPUs paid for" in (tell("node-rented", node="node-0") or "")


def test_costs_of_the_run_count_idle_gpus_and_nodes_by_the_same_equation_as_the_simulation() -> None:
    ran = as_it_ran(log(), paid_gpu_s=80.0)
    # 80 GPU-seconds were paid for on nodes of two, 20 + 10 of them with somebody on the GPU.
    assert ran.energy_j == pytest.approx(2000.0 + 50.0 * 78.0 + 40.0 * 200.0)
    assert ran.mean_jct_s == 20.0
    assert ran.paid_gpus == 4.0
    assert ran.cost_usd == pytest.approx(80.0 / 3600.0 * 7.90)


def test_without_sharing_each_job_has_a_gpu_of_its_own() -> None:
    alone = without_sharing(log())
    assert alone.mean_jct_s == pytest.approx(21.0, abs=0.1), "20 s of work, and a second for the rented node to boot"
    assert alone.paid_gpus == pytest.approx(2.0, abs=0.1)

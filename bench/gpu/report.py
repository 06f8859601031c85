"""Fills the tables of docs/h200.md from the results.

    python bench/gpu/report.py --results bench/gpu/results --page docs/h200.md

Each table stands between `<!-- table: NAME -->` and `<!-- end -->`. With --check nothing is written, and the exit code
says whether the page is up to date.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_SLOT = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_DRAWS = 400


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    at = 0.99 * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread(mine: Sequence[float], alone: Sequence[float]) -> tuple[float, float]:
    """The middle 90 % of the p99's ratio over resampled requests."""
    draw = random.Random(1)
    found = sorted(p99(draw.choices(mine, k=len(mine))) / p99(draw.choices(alone, k=len(alone))) for _ in range(_DRAWS))
    return found[int(0.05 * _DRAWS)], found[int(0.95 * _DRAWS)]


def stalled(found: dict[str, Any]) -> str:
    names = {"alone": "one alone", "sliced": "four, taking turns", "mps": "four, under MPS"}
    rows = []
    for run in found["runs"]:
        off = run["attributed_sum_j"] + run["attributed_idle_j"] - run["agent_metered_j"]
        rows.append(
            (
                names[run["name"]],
                f"{run['mean_step_ms']:.1f}",
                f"{run['step_ratio']:.2f}",
                f"{run['meter']['watts']:.0f}",
                f"{100 * run['meter']['utilisation_frac']:.0f} %",
                f"{run['joules_per_step']:.2f}",
                f"{100 * run['energy_saved_frac']:.0f} %" if run["jobs"] > 1 else "",
                f"{abs(off):.3f}",
            )
        )
    heads = ("run", "ms a step", "of alone", "W", "utilisation", "J a step", "saved", "jobs + idle - counter (J)")
    return markdown(heads, rows)


def alternating(found: dict[str, Any]) -> str:
    names = {
        "alone": "nobody (both trainings stopped)",
        "guard": "training, guarded, 90 % of the SMs",
        "guard-all-sms": "training, guarded, all SMs",
    }
    alone = [x for x in found["alternating"]["alone"]["latency_ms"] if x is not None]
    rows = []
    for key, one in found["alternating"].items():
        got = [x for x in one["latency_ms"] if x is not None]
        low, high = spread(got, alone)
        rows.append(
            (
                names[key],
                f"{one['steady']['requests']:,}",
                str(one["steady"]["failed"]),
                f"{one['steady']['p50_ms']:.2f}",
                f"{one['steady']['p90_ms']:.2f}",
                f"{one['steady']['p99_ms']:.2f}",
                "" if key == "alone" else f"{p99(got) / p99(alone):.2f} ({low:.2f} to {high:.2f})",
                "" if key == "alone" else f"{100 * one['training_kept_frac']:.0f} %",
            )
        )
    heads = ("beside the service", "requests", "failed", "p50 ms", "p90 ms", "p99 ms", "p99 of alone", "training keeps")
    return markdown(heads, rows)


def blocks(found: dict[str, Any]) -> str:
    names = {
        "alone-no-mps": "nobody, no MPS",
        "sliced": "training, taking turns",
        "alone": "nobody",
        "guard-1": "training, guarded, all SMs",
        "priority": "training, MPS with priority",
        "mps": "training, plain MPS",
    }
    rows = []
    for one in found["blocks"]:
        kept = one.get("training_kept_frac")
        s = one["steady"]
        figures = [f"{s[key]:.2f}" for key in ("p50_ms", "p90_ms", "p99_ms")]
        rows.append(
            (
                names[one["name"]],
                f"{s['requests']:,}",
                str(s["failed"]),
                *figures,
                f"{100 * kept:.0f} %" if kept else "",
            )
        )
    return markdown(("beside the service", "requests", "failed", "p50 ms", "p90 ms", "p99 ms", "training keeps"), rows)


def first(found: dict[str, Any]) -> str:
    names = {
        "alone": "nobody",
        "sliced": "training, taking turns",
        "mps": "training, plain MPS",
        "priority": "training, MPS with priority",
        "guard": "training, guarded",
        "alone-again": "nobody, once more",
    }
    rows = []
    for one in found["runs"]:
        kept = one.get("training_kept_frac")
        rows.append(
            (
                names[one["name"]],
                f"{one['steady']['p50_ms']:.2f}",
                f"{one['steady']['p99_ms']:.1f}",
                f"{one['burst_after_a_second']['p99_ms']:.0f}",
                f"{100 * kept:.0f} %" if kept else "",
            )
        )
    return markdown(("beside the service", "p50 ms", "p99 ms", "p99 in the burst, ms", "training keeps"), rows)


def burst(found: dict[str, Any]) -> str:
    rows = []
    for key, name in (("burst_alone", "nobody"), ("burst_guard", "training, guarded, 90 % of the SMs")):
        one = found[key]
        parts = ("before", "first_second", "after_a_second", "afterwards")
        rows.append((name, *(f"{one[part]['p99_ms']:.1f}" for part in parts)))
    return markdown(("beside the service", "p99 before", "first second", "rest of the burst", "after it"), rows)


def rates(found: dict[str, Any]) -> str:
    shown, last = [], None
    for at_s, rate, latency_ms in found["burst_guard"]["rates"]:
        if rate != last and (last is None or rate < last) and at_s >= -1.0:
            shown.append((f"{at_s:+.2f}", f"{rate:.2f}", "" if latency_ms is None else f"{latency_ms:.1f}"))
        last = rate
    return markdown(("s since the burst began", "launch rate", "recent latency, ms"), shown[:8])


def quota(found: dict[str, Any]) -> str:
    rows = []
    for one in found["quota"]["paths"]:
        taken = "?" if one["taken_bytes"] is None else f"{one['taken_bytes'] / 2**30:.2f} GiB"
        rows.append((one["path"], taken, "out of memory" if one["is_refused"] else str(one["said"])[:60]))
    return markdown(("taken by", "got, of 4 GiB", "then"), rows)


def cost(found: dict[str, Any]) -> str:
    launch, step = found["launches"], found["steps"][0]

    def listed(values: Sequence[float], digits: int) -> str:
        return ", ".join(f"{value:,.{digits}f}" for value in values)

    rows = [
        ("host time of a launch, ns", listed(launch["bare"], 0), listed(launch["shim"], 0),
         f"{launch['added_ns']:+.0f} ns"),
        (f"step of {step['model']}, batch {step['batch']}, ms", listed(step["step_ms"]["bare"], 2),
         listed(step["step_ms"]["shim"], 2), f"{100 * step['added_frac']:+.2f} %"),
    ]  # fmt: skip
    return markdown(("what", "without the shim", "with it", "median, added"), rows)


def kills(found: dict[str, Any]) -> str:
    names = {"sigint": "SIGINT", "sigterm": "SIGTERM", "evict": "the agent's eviction"}
    rows = []
    for one in found["kills"]:
        times = sorted(kill["gone_after_s"] for kill in one["kills"])
        rows.append(
            (
                names[one["kind"]],
                str(len(one["kills"])),
                f"{times[len(times) // 2]:.1f} / {times[-1]:.1f}",
                str(one["requests"]),
                str(one["failed"]),
                f"{1e3 * one['longest_latency_s']:.0f}",
            )
        )
    return markdown(
        ("killed by", "times", "gone after s, median / longest", "requests", "failed", "slowest answer, ms"), rows
    )


def faults(found: dict[str, Any]) -> str:
    rows = []
    for one in found["faults"]:
        is_hit = one["failed"] > 0
        restarted = any(event["what"] == "mps-restarted" for event in one["events"])
        rows.append(
            (
                one["kind"].replace("sigkill", "SIGKILL").replace("-", " "),
                str(one["exit_code"]),
                "ended with it" if is_hit else "untouched",
                "restarted" if restarted else "went on",
                str(one["failed"]),
                f"{one['restored_after_s']:.1f} s" if is_hit else "",
            )
        )
    return markdown(
        ("the offline client", "its exit code", "service", "MPS", "failed requests", "service back after"), rows
    )


def doctor(found: dict[str, Any]) -> str:
    words = {True: "yes", False: "no", None: "?"}
    rows = [
        (f["name"], words[f["works"]], re.sub(r", GPU-[0-9a-f-]+", "", f["found"])) for f in found["doctor"]["findings"]
    ]
    return markdown(("what", "works", "found"), rows)


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "doctor": ("machine.json", doctor),
    "stalled": ("stalled.json", stalled),
    "alternating": ("alternating.json", alternating),
    "blocks": ("guarded.json", blocks),
    "first": ("guarded-first.json", first),
    "burst": ("alternating.json", burst),
    "rates": ("alternating.json", rates),
    "quota": ("quota.json", quota),
    "cost": ("quota.json", cost),
    "kills": ("kills.json", kills),
    "faults": ("kills.json", faults),
}


def filled(page: str, results: Path) -> str:
    """The page with every table made anew."""

    def table(match: re.Match[str]) -> str:
        name, make = TABLES[match[2]]
        found = json.loads((results / name).read_text(encoding="utf-8"))
        return f"{match[1]}{make(found)}\n{match[3]}"

    return _SLOT.sub(table, page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).resolve().parent
    parser.add_argument("--results", type=Path, default=here / "results")
    parser.add_argument("--page", type=Path, default=here.parents[1] / "docs" / "h200.md")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = options.page.read_text(encoding="utf-8")
    after = filled(before, options.results)
    if options.check:
        sys.exit(before != after)
    options.page.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()

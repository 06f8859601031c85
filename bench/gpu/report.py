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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from common import percentile

_SLOT = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_DRAWS = 400


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def p99(values: Sequence[float]) -> float:
    return percentile(values, 0.99)


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


def paired(found: dict[str, Any]) -> str:
    each = [turn["step_ms"] for turn in found["turns"] if turn["name"] == "guard"]
    kept = found["solo_step_ms"] * sum(1.0 / step_ms for step_ms in each) / len(each)
    steady = [(turn["name"], turn["pair"], turn["latency_ms"]) for turn in found["turns"]]
    between = [(turn["name"], turn["pair"], turn["before"]) for turn in found["bursts"]]
    rows = [*compared(steady, "", f"{100 * kept:.0f} %"), *compared(steady + between, ", calm before bursts too", "")]
    heads = ("beside the service", "requests", "failed", "p50 ms", "p90 ms", "p99 ms", "p99 of alone", "training keeps")
    return markdown(heads, rows)


def compared(told: Sequence[tuple[str, int, list[float | None]]], which: str, kept: str) -> list[tuple[str, ...]]:
    """Alone and guarded, over these turns."""
    turns: dict[str, dict[int, list[float]]] = {"alone": {}, "guard": {}}
    failed = dict.fromkeys(turns, 0)
    for name, pair, latency_ms in told:
        turns[name][pair] = [x for x in latency_ms if x is not None]
        failed[name] += latency_ms.count(None)
    rows = []
    alone = pooled(turns["alone"], turns["alone"])
    low, high = spread(turns)
    for key, name in (("alone", "nobody (the training stopped)"), ("guard", "training, guarded, 90 % of the SMs")):
        mine = pooled(turns[key], turns[key])
        figures = [f"{percentile(mine, part):.2f}" for part in (0.5, 0.9, 0.99)]
        ratio = f"{p99(mine) / p99(alone):.3f} ({low:.3f} to {high:.3f})" if key == "guard" else ""
        rows.append((name + which, f"{len(mine):,}", str(failed[key]), *figures, ratio, kept if ratio else ""))
    return rows


def pooled(turns: dict[int, list[float]], pairs: Iterable[int]) -> list[float]:
    return [x for pair in pairs for x in turns[pair]]


def spread(turns: dict[str, dict[int, list[float]]]) -> tuple[float, float]:
    """The middle 90 % of the p99s' ratio over resampled pairs of turns."""
    draw = random.Random(1)
    pairs = list(turns["alone"])
    found = []
    for _ in range(_DRAWS):
        drawn = draw.choices(pairs, k=len(pairs))
        found.append(p99(pooled(turns["guard"], drawn)) / p99(pooled(turns["alone"], drawn)))
    found.sort()
    return found[int(0.05 * _DRAWS)], found[int(0.95 * _DRAWS)]


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


def bursts(found: dict[str, Any]) -> str:
    rows = []
    for key, name in (("alone", "nobody"), ("guard", "training, guarded, 90 % of the SMs")):
        mine = [one for one in found["bursts"] if one["name"] == key]
        cells = []
        for part in ("before", "first_second", "rest", "after"):
            got = [x for one in mine for x in one[part] if x is not None]
            cells.append(f"{p99(got):.1f} ({len(got):,})")
        failed = sum(
            x is None for one in mine for part in ("before", "first_second", "rest", "after") for x in one[part]
        )
        rows.append((name, *cells, str(failed)))
    heads = ("beside the service", "before", "first second", "rest of the burst", "after it", "failed")
    return markdown(heads, rows)


def rates(found: dict[str, Any]) -> str:
    alone = {one["pair"]: one for one in found["bursts"] if one["name"] == "alone"}
    rows = []
    for one in found["bursts"]:
        if one["name"] != "guard":
            continue
        within = [row for row in one["rates"] if 0.0 <= row[0] <= 3.0]
        halved = one["rate_halved_after_s"]
        parts = [f"{p99(one[part]):.1f} / {p99(alone[one['pair']][part]):.1f}" for part in ("first_second", "rest")]
        rows.append(
            (
                str(len(rows) + 1),
                *parts,
                f"{max(latency or 0.0 for _, _, latency in within):.1f}",
                "never" if halved is None else f"{halved:.1f} s",
                f"{min(rate for _, rate, _ in within):.2f}",
                f"{100 * found['solo_step_ms'] / one['step_ms']:.0f} %",
            )
        )
    heads = (
        "burst", "p99 of the first second, beside / alone", "of the rest", "highest recent latency, ms",
        "rate halved after", "lowest rate", "training keeps meanwhile",
    )  # fmt: skip
    return markdown(heads, rows)


def together(found: dict[str, Any]) -> str:
    ways = {"alone": "alone", "sliced": "taking turns", "mps": "MPS"}
    alone = {run["names"][0]: run["step_s"][0] for run in found["runs"] if run["way"] == "alone"}
    rows = []
    for run in found["runs"]:
        kept = [min(alone[name] / step_s, 1.0) for name, step_s in zip(run["names"], run["step_s"], strict=True)]
        rows.append(
            (
                " + ".join(run["names"]),
                ways[run["way"]],
                ", ".join(f"{1e3 * step_s:.1f}" for step_s in run["step_s"]),
                ", ".join(f"{100 * part:.0f} %" for part in kept),
                f"{100 * run['means']['utilisation_frac']:.0f} %",
                f"{run['watts']:.0f}",
                f"{run['joules_per_step']:.2f}",
            )
        )
    return markdown(("jobs", "how", "ms a step", "of their speed alone", "utilisation", "W", "J a step"), rows)


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
    "paired": ("paired.json", paired),
    "blocks": ("guarded.json", blocks),
    "first": ("guarded-first.json", first),
    "bursts": ("paired.json", bursts),
    "rates": ("paired.json", rates),
    "together": ("colocation.json", together),
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

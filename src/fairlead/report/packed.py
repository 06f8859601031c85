"""Who was on which GPU when, small enough for a page: thinned to a number of blocks, and packed into base64 text.

What is too short to be seen from afar goes first: blocks that follow each other closely become one that says "many".
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fairlead.sim.recording import Occupancy
    from fairlead.sim.result import Result

Ints = NDArray[np.int64]
BLOCKS = 250_000
"""Of all runs of a page; some nine bytes each."""
OUTAGES = 20_000
TICKS = 1_000_000
"""Moments that can be told apart: a thousandth of a screen, zoomed in a thousand times."""
MANY, UNMEASURED = 2**32 - 1, 2**32 - 2
"""Instead of a job's row: too many to tell, and a job of a later lap, which has no row."""


def of_runs(runs: Mapping[str, Result]) -> dict[str, Any] | None:
    """For the page's script; None where nothing was recorded."""
    told = {name: result for name, result in runs.items() if result.occupancy is not None and result.occupancy.nodes}
    if not told:
        return None
    most = BLOCKS // len(told)
    return {
        "jobs": _jobs(next(iter(told.values())).jobs),
        "runs": [{"name": name, **_run(r.occupancy, r.jobs.height, most)} for name, r in told.items() if r.occupancy],
    }


def _run(found: Occupancy, jobs: int, most: int) -> dict[str, Any]:
    ends_s = [float(frame["end_s"].max() or 0.0) for frame in (found.held, found.off) if frame.height]  # type: ignore[arg-type]
    starts_s = [float(frame["start_s"].min() or 0.0) for frame in (found.held, found.off) if frame.height]  # type: ignore[arg-type]
    begin_s, end_s = min(starts_s, default=0.0), max(ends_s, default=1.0)
    tick_s = max(end_s - begin_s, 1e-3) / TICKS
    who, sets = _who(found.held["jobs"], jobs)
    gpu = found.held["gpu"].to_numpy().astype(np.int64)
    start, end = (_ticks(found.held[name], begin_s, tick_s) for name in ("start_s", "end_s"))
    (gpu, start, end, who), merged = thinned(gpu, start, np.maximum(end, start + 1), who, most)
    who, sets = _used(who, sets, jobs)
    before = np.where(np.append([True], gpu[1:] != gpu[:-1])[: len(gpu)], 0, np.append([0], end[:-1])[: len(gpu)])
    off = found.off.sort(pl.col("end_s") - pl.col("start_s"), descending=True).head(OUTAGES).sort("node", "start_s")
    return {
        "begin_s": begin_s,
        "tick_s": tick_s,
        "nodes": [list(node) for node in found.nodes],
        "counts": pack(np.bincount(gpu, minlength=sum(gpus for _, gpus in found.nodes))),
        "gap": pack(np.maximum(start - before, 0)),
        "length": pack(end - start),
        "who": pack(who),
        "set_sizes": pack(np.array([len(one) for one in sets], np.int64)),
        "set_jobs": pack(np.array([job for one in sets for job in one], np.int64)),
        "merged_s": merged * tick_s if merged else None,
        "off": [
            [node, *(round((moment_s - begin_s) / tick_s) for moment_s in (start_s, end_s)), state]
            for node, start_s, end_s, state in off.iter_rows()
        ],
    }


def thinned(gpu: Ints, start: Ints, end: Ints, who: Ints, most: int) -> tuple[tuple[Ints, Ints, Ints, Ints], int]:
    """At most so many blocks, or one for each GPU; and how long is too short, 0 where all are there.

    Blocks are sorted by GPU and start and do not overlap. Short ones become one block with the next as long as that is
    on the same GPU, short too, and near.
    """
    columns, short = (gpu, start, end, who), 0
    while len(columns[0]) > most and short < 2 * TICKS:
        short = max(2 * short, 16)
        columns = _merged(gpu, start, end, who, short)
    return columns, short


def _merged(gpu: Ints, start: Ints, end: Ints, who: Ints, short: int) -> tuple[Ints, Ints, Ints, Ints]:
    is_short = end - start < short
    joins = is_short[1:] & is_short[:-1] & (gpu[1:] == gpu[:-1]) & (start[1:] - end[:-1] < short)
    first = np.flatnonzero(np.append([True], ~joins))
    last = np.append(first[1:], len(gpu)) - 1
    return gpu[first], start[first], end[last], np.where(last > first, MANY, who[first])


def _who(held: pl.Series, jobs: int) -> tuple[Ints, list[list[int]]]:
    """The row of the job on a GPU, or behind all rows the number of a set of several."""
    sizes = held.list.len().to_numpy()
    who = held.list.first().to_numpy().astype(np.int64) if len(held) else np.zeros(0, np.int64)
    who[who >= jobs] = UNMEASURED
    several = np.flatnonzero(sizes > 1)
    numbers: dict[tuple[int, ...], int] = {}
    for at, found in zip(several, held.gather(several).to_list(), strict=True):
        key = tuple(job if job < jobs else UNMEASURED for job in found)
        who[at] = jobs + numbers.setdefault(key, len(numbers))
    return who, [list(key) for key in numbers]


def _used(who: Ints, sets: list[list[int]], jobs: int) -> tuple[Ints, list[list[int]]]:
    """Without the sets that no block is left of."""
    is_set = (who >= jobs) & (who < UNMEASURED)
    kept, numbers = np.unique(who[is_set] - jobs, return_inverse=True)
    who = who.copy()
    who[is_set] = jobs + numbers
    return who, [sets[number] for number in kept.tolist()]


def _jobs(jobs: pl.DataFrame) -> dict[str, Any]:
    """What a block says of its job. The user who holds most is first."""
    users = jobs["user"].fill_null("").cast(pl.String)
    held = jobs.select(users.alias("user"), pl.col("gpu_s").fill_null(0.0)).group_by("user").agg(pl.sum("gpu_s"))
    ranked = held.sort("gpu_s", "user", descending=[True, False])["user"].to_list()
    rank = {user: number for number, user in enumerate(ranked)}
    names = "\n".join(name.replace("\n", " ") for name in jobs["job_id"].cast(pl.String).fill_null("").to_list())
    return {
        "names": _packed(names.encode()),
        "users": ranked,
        "user": pack(np.array([rank[user] for user in users.to_list()], np.int64)),
        "gpus": pack(jobs["gpus"].to_numpy().astype(np.int64)),
    }


def _ticks(moments: pl.Series, begin_s: float, tick_s: float) -> Ints:
    return np.rint((moments.to_numpy() - begin_s) / tick_s).astype(np.int64)


def pack(values: NDArray[Any]) -> str:
    """Unsigned numbers of 32 bits; all of their lowest bytes first, as those above are mostly zero."""
    return _packed(values.astype("<u4").view(np.uint8).reshape(-1, 4).T.tobytes())


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")

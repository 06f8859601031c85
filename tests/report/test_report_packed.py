"""GPUs over time, packed for a page: what comes out is what went in, or fewer blocks over the same time."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.report import html, packed
from fairlead.sim.recording import Occupancy
from fairlead.sim.result import Result
from tests.made_up_results import MakeResult

NODES = (("n0", 2), ("n1", 2))


def unpacked(text: str) -> np.ndarray[Any, Any]:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return planes.reshape(4, -1).T.copy().view("<u4").ravel().astype(np.int64)


def with_blocks(result: Result, blocks: list[tuple[int, float, float, list[int]]]) -> Result:
    held = pl.DataFrame(
        blocks,
        {"gpu": pl.Int64, "start_s": pl.Float64, "end_s": pl.Float64, "jobs": pl.List(pl.Int64)},
        orient="row",
    )
    off = pl.DataFrame({"node": [1], "start_s": [0.0], "end_s": [100.0], "state": ["asleep"]})
    object.__setattr__(result, "occupancy", Occupancy(NODES, held.sort("gpu", "start_s"), off))
    return result


def test_every_block_is_there_with_its_jobs(make_result: MakeResult) -> None:
    blocks = [(0, 0.0, 50.0, [3]), (0, 60.0, 100.0, [3, 7]), (2, 10.0, 90.0, [7, 3]), (3, 0.0, 100.0, [9999])]
    found = packed.of_runs({"one": with_blocks(make_result(), blocks)})
    assert found is not None
    run = found["runs"][0]
    assert unpacked(run["counts"]).tolist() == [2, 0, 1, 1]
    assert (unpacked(run["gap"]) * run["tick_s"]).tolist() == [0.0, 10.0, 10.0, 0.0]
    assert (unpacked(run["length"]) * run["tick_s"]).tolist() == [50.0, 40.0, 80.0, 100.0]
    assert unpacked(run["who"]).tolist() == [3, 200, 201, packed.UNMEASURED]
    assert unpacked(run["set_sizes"]).tolist() == [2, 2]
    assert unpacked(run["set_jobs"]).tolist() == [3, 7, 7, 3]
    assert run["merged_s"] is None
    assert run["off"] == [[1, 0, packed.TICKS, "asleep"]]


def test_a_run_that_recorded_nothing_has_no_timeline(make_result: MakeResult) -> None:
    assert packed.of_runs({"one": make_result()}) is None
    empty = packed.of_runs({"one": with_blocks(make_result(), [])})
    assert empty is not None
    assert unpacked(empty["runs"][0]["counts"]).tolist() == [0, 0, 0, 0]


@st.composite
def rows(draw: st.DrawFn) -> tuple[Any, ...]:
    gpu, start, end = [], [], []
    for number in range(draw(st.integers(1, 4))):
        at = 0
        for gap, length in draw(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=40)):
            gpu.append(number)
            start.append(at + gap)
            at = at + gap + length
            end.append(at)
    return tuple(np.array(column, np.int64) for column in (gpu, start, end, range(len(gpu))))


@settings(max_examples=100, deadline=None)
@given(rows(), st.integers(1, 60))
def test_fewer_blocks_cover_the_same_time_in_the_same_order(columns: tuple[Any, ...], most: int) -> None:
    (gpu, start, end, who), short = packed.thinned(*columns, most)
    assert len(gpu) <= max(most, len(set(columns[0].tolist())))
    assert all((start[1:] >= end[:-1]) | (gpu[1:] != gpu[:-1]))
    for number in set(columns[0].tolist()):
        of, now = columns[0] == number, gpu == number
        assert (start[now][0], end[now][-1]) == (columns[1][of][0], columns[2][of][-1])
    kept = who != packed.MANY
    assert set(who[kept].tolist()) <= set(columns[3].tolist())
    long = columns[2] - columns[1] >= max(short, 1)
    assert set(columns[3][long].tolist()) <= set(who[kept].tolist()), "what can be seen stays"


def test_a_million_blocks_of_eighty_thousand_jobs_still_make_a_file_under_five_megabytes(
    make_result: MakeResult,
) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.lognormal(6.0, 2.0, (480, 2000))
    ends = np.cumsum(lengths, axis=1)
    held = pl.DataFrame({
        "gpu": np.repeat(np.arange(480), 2000),
        "start_s": (ends - lengths).ravel(),
        "end_s": ends.ravel(),
        "jobs": rng.integers(0, 82_000, (960_000, 1)),
    }).with_columns(pl.col("jobs").arr.to_list())  # fmt: skip
    result = make_result(jobs=82_000)
    off = pl.DataFrame(schema={"node": pl.Int64, "start_s": pl.Float64, "end_s": pl.Float64, "state": pl.String})
    object.__setattr__(result, "occupancy", Occupancy((("n0", 480),), held, off))
    runs = dict.fromkeys(("one", "two", "three"), result)
    assert len(html.page(runs).encode()) < 5_000_000
    found = packed.of_runs(runs)
    assert found is not None
    assert all(unpacked(run["counts"]).sum() <= packed.BLOCKS // 3 for run in found["runs"])

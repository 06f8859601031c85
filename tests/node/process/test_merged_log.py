"""Both streams of a job, read in the order in which they were written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.node.process import log_index
from fairlead.node.process.log_index import NAME, RECORD, LogIndex
from fairlead.node.process.merged_log import MergedLog, offset_since, read_launches
from fairlead.node.process.output import Outputs


def write(folder: Path, said: list[tuple[int, bytes]], most_bytes: int = 1 << 20) -> None:
    outputs = Outputs(str(folder), most_bytes, 0)
    readers = outputs.readers
    for stream, piece in said:
        os.write(outputs.writers[stream], piece)
        outputs.take(readers[stream])
    outputs.close()


@given(st.lists(st.tuples(st.integers(0, 1), st.binary(min_size=1, max_size=9)), max_size=20), st.data())
def test_any_piece_of_both_streams_is_that_piece_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("launch")
    write(folder, said)
    whole = b"".join(piece for _, piece in said)
    offset = data.draw(st.integers(-len(whole) - 2, len(whole) + 2))
    limit = data.draw(st.integers(0, len(whole) + 2))
    start = offset if offset >= 0 else max(len(whole) + offset, 0)
    assert read_launches([folder], "all", offset, limit) == whole[start : start + limit]
    assert MergedLog(folder).size == len(whole)


def test_what_was_left_out_of_one_stream_is_told_where_it_happened(tmp_path: Path) -> None:
    write(tmp_path, [(0, b"begin\n"), (1, b"oh\n"), (0, b"x" * 50_000), (1, b"end\n")], most_bytes=100)
    found = read_launches([tmp_path], "all", 0, 1 << 20)
    assert found.startswith(b"begin\noh\nx")
    assert found.index(b"output is not kept") < found.index(b"end\n")
    assert len(found) == sum((tmp_path / f"{name}.log").stat().st_size for name in ("stdout", "stderr"))


def test_the_output_of_restarts_follows_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        write(folder, [(0, b"out "), (1, b"err ")])
    assert read_launches(folders, "all", 4, 8) == b"err out "
    assert read_launches(folders, "stderr", -4, 100) == b"err "


def test_output_from_before_there_was_an_index_is_read_stream_by_stream(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(b"out")
    (tmp_path / "stderr.log").write_bytes(b"err")
    assert read_launches([tmp_path], "all", 2, 3) == b"ter"
    assert read_launches([tmp_path / "none"], "all", 0, 3) == b""


def test_a_moment_is_found_in_each_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(log_index.time, "time", lambda: now[0])
    outputs = Outputs(str(tmp_path), 1000, 0)
    for at_s, stream, piece in ((100.0, 0, b"one"), (200.0, 1, b"three"), (300.0, 0, b"four")):
        now[0] = at_s
        os.write(outputs.writers[stream], piece)
        outputs.take(outputs.readers[stream])
    outputs.close()
    assert [offset_since([tmp_path], "all", at_s) for at_s in (0.0, 150.0, 200.0, 250.0, 301.0)] == [0, 3, 3, 8, 12]
    assert [offset_since([tmp_path], "stdout", at_s) for at_s in (0.0, 150.0, 301.0)] == [0, 3, 7]


def test_who_writes_byte_by_byte_does_not_fill_the_disk_with_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "_MANY", 10)
    monkeypatch.setattr(log_index.time, "time", lambda: 5.0)
    index = LogIndex(str(tmp_path / NAME))
    for size in range(1, 1001):
        index.note(0, size)
    index.note(0, 1000, at_once=True)
    index.close()
    assert (tmp_path / NAME).stat().st_size == 11 * RECORD.size
    (tmp_path / "stdout.log").write_bytes(b"x" * 1000)
    assert MergedLog(tmp_path).size == 1000

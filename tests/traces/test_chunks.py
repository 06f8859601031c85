"""Files that are longer than one chunk: nothing is lost, doubled or misnumbered where two chunks meet."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.traces import load, rows

HEAD = "job_id,submit_s,gpus,duration_s,user"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(rows, "_CHUNK_ROWS", 3)


def text_of(count: int, end: str = "\n", user: str = "u") -> str:
    return end.join([HEAD, *(f"j{i},{i},{1 + i % 8},{i + 0.5},{user}{i % 3}" for i in range(count))]) + end


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("user", ["u", '"u, ""v"" ', "ü"])
def test_rows_are_the_same_however_they_are_cut(written, end, user):
    text = text_of(50, end, user) if '"' not in user else text_of(50, end).replace(",u1", f',{user}"')
    if '"' in user and end == "\r":
        pytest.skip("where quotes are, rows end with a line feed")
    frame = load(written(text)).frame
    assert frame["job_id"].to_list() == [f"j{i}" for i in range(50)]
    assert frame["duration_s"].to_list() == [i + 0.5 for i in range(50)]


def test_quotes_that_begin_late_are_quotes(written):
    text = text_of(30) + '"last, with ""marks""\nand a line",99,1,1,u\n' + "after,100,1,1,u\n"
    frame = load(written(text)).frame
    assert frame["job_id"].to_list()[-2:] == ['last, with "marks"\nand a line', "after"]


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("at", [0, 3, 17, 39])
def test_a_bad_row_has_the_line_that_an_editor_shows(written, at, quoted):
    lines = text_of(40).splitlines()
    lines[at + 1] = f"bad,{at},none,1,u"
    if quoted:
        lines[1] = lines[1].replace("j0", '"j0"') if at else '"bad",0,none,1,u'
    path = written("\n\n".join(lines))
    with pytest.raises(InputError, match=f"line {2 * (at + 1) + 1}, column gpus: found 'none'"):
        load(path)


def test_bad_rows_of_all_chunks_are_counted_and_the_first_is_shown(written):
    lines = text_of(60).splitlines()
    for at in (10, 30, 50):
        lines[at] = "x,y"
    path = written("\n".join(lines))
    with pytest.raises(InputError, match="line 11: found 2 fields, expected 5") as error:
        load(path)
    assert "3 bad rows in all" in (error.value.hint or "")
    trace = load(path, skip_bad_rows=True)
    assert (trace.skipped_rows, len(trace)) == (3, 57)


def test_a_short_row_and_a_long_one_do_not_make_up_for_each_other(written):
    path = written(f"{HEAD}\na,0,1,1\nb,0,1,1,u,u\nc,0,1,1,u\n")
    trace = load(path, skip_bad_rows=True)
    assert (trace.skipped_rows, trace.frame["job_id"].to_list()) == (2, ["c"])


@pytest.mark.parametrize("wrong", [b"\xff\xfe", b"\0"])
@pytest.mark.parametrize("quoted", [False, True])
def test_bytes_that_are_no_text_are_found_wherever_they_are(written, wrong, quoted):
    text = text_of(40).encode()
    tail = b'"q"' + wrong if quoted else b"q" + wrong
    with pytest.raises(InputError, match="is not text"):
        load(written(text + tail + b",1,1,1,u\n"))


def test_a_name_that_comes_again_in_another_chunk_is_found(written):
    with pytest.raises(InputError, match=r"line 42, column job_id: found 'j0'.*line 2 has it"):
        load(written(text_of(40) + "j0,50,1,1,u\n"))


def test_a_line_without_end_is_no_trace(written, monkeypatch):
    monkeypatch.setattr(rows, "LONGEST_LINE_BYTES", 4096)
    with pytest.raises(InputError, match="a line of more than"):
        load(written(HEAD + "\n" + "x" * 9000))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=60
)
@given(
    size=st.integers(1, 200),
    cells=st.lists(st.text('ab,"\n é|\t', max_size=6), min_size=1, max_size=12),
)
def test_any_cut_gives_what_the_whole_gives(tmp_path, monkeypatch, size, cells):
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD.split(","))
    for number, cell in enumerate(cells):
        writer.writerow([f"j{number}", number, 1, 1, cell])
    path = tmp_path / "t.csv"
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    monkeypatch.setattr(rows, "_CHUNK_BYTES", 1 << 20)
    whole = load(path).frame
    monkeypatch.setattr(rows, "_CHUNK_BYTES", size)
    assert load(path).frame.equals(whole)
    assert whole["user"].to_list() == [cell if cell.strip() else "" for cell in cells]

from __future__ import annotations

import polars as pl
import pytest

from fairlead.errors import InputError
from fairlead.traces import Trace, load
from tests.traces.samples import OWN, PHILLY_CSV

HEAD = "job_id,submit_s,gpus,duration_s"


def refuse(path: object, **options: object) -> InputError:
    with pytest.raises(InputError) as error:
        load(path, **options)  # type: ignore[arg-type]
    assert error.value.exit_code == 2
    return error.value


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("duration_s", "-5", "a number of seconds above 0"),
        ("duration_s", "0", "a number of seconds above 0"),
        ("duration_s", "inf", "a number of seconds above 0"),
        ("duration_s", "nan", "a number of seconds above 0"),
        ("duration_s", "1h", "a number of seconds above 0"),
        ("submit_s", "-1", "a number of seconds, 0 or more, since the start"),
        ("submit_s", "inf", "a number of seconds, 0 or more, since the start"),
        ("gpus", "0", "a whole number of GPUs, 1 or more"),
        ("gpus", "1.5", "a whole number of GPUs, 1 or more"),
        ("gpus", "two", "a whole number of GPUs, 1 or more"),
        ("gpus", "1e30", "a whole number of GPUs, 1 or more"),
        ("min_gpus", "0", "a whole number from 1 to the job's gpus"),
        ("min_gpus", "5", "a whole number from 1 to the job's gpus"),
        ("max_gpus", "3", "a whole number, the job's gpus or more"),
        ("kind", "batch", "training or service"),
        ("memory_mib", "-1", "a number of MiB, 0 or more"),
        ("gpu_frac", "0", "a number above 0 and at most 1, below 1 only where gpus is 1"),
        ("gpu_frac", "1.1", "a number above 0 and at most 1, below 1 only where gpus is 1"),
        ("deadline_s", "0", "a number of seconds above 0"),
        ("priority", "high", "a whole number"),
    ],
)
@pytest.mark.parametrize("quoted", [False, True])
def test_a_bad_cell_is_named_with_file_line_column_value_and_what_was_expected(written, column, cell, expected, quoted):
    good = {"job_id": "a", "submit_s": "0", "gpus": "4", "duration_s": "9"}
    columns = [*good, *([] if column in good else [column])]
    fine = ",".join(good.get(c, "") for c in columns)
    bad = ",".join({**good, "job_id": "'b'", column: cell}[c] for c in columns)
    text = f"{','.join(columns)}\n{fine}\n\n{bad}\n"
    path = written(text.replace("'b'", '"b"' if quoted else "b"))
    assert refuse(path).message == f"{path} line 4, column {column}: found '{cell}', expected {expected}"


@pytest.mark.parametrize("column", HEAD.split(","))
def test_an_empty_cell_that_is_needed_is_bad(written, column):
    row = {"job_id": "a", "submit_s": "0", "gpus": "4", "duration_s": "9", column: ""}
    path = written(f"{HEAD}\n{','.join(row.values())}\n")
    assert refuse(path).message.startswith(f"{path} line 2, column {column}: found nothing, expected ")


@pytest.mark.parametrize(("row", "fields"), [("b,1,2", 3), ("b,1,2,3,4", 5), ("b", 1)])
@pytest.mark.parametrize("user", ["a", '"a"'])
def test_a_wrong_number_of_fields_is_a_bad_row(written, row, fields, user):
    path = written(f"{HEAD}\n{user},0,1,9\n{row}\nc,0,1,9\n")
    assert (
        refuse(path).message == f"{path} line 3: found {fields} fields, expected 4 (job_id, submit_s, gpus, duration_s)"
    )
    assert load(path, skip_bad_rows=True).frame["job_id"].to_list() == ["a", "c"]


def test_the_first_bad_row_is_named_whichever_column_it_is_in(written):
    path = written(f"{HEAD}\na,0,1,9\nb,0,1,-1\nc,0,0,9\nd,x,1\n")
    error = refuse(path)
    assert "line 3, column duration_s" in error.message
    assert "3 bad rows in all" in (error.hint or "")


def test_a_name_twice_is_named_with_both_lines(written):
    path = written(f"{HEAD}\na,0,1,9\nb,0,1,9\na,5,1,9\n")
    message = refuse(path).message
    assert message.startswith(f"{path} line 4, column job_id: found 'a'")
    assert "line 2 has it" in message


def test_bad_rows_can_be_skipped_and_are_counted_with_an_example(written):
    path = written(f"{HEAD}\na,0,1,9\nb,0,1,-1\na,5,1,9\nc,1\nd,0,0,0\ne,3,1,1\n")
    trace = load(path, skip_bad_rows=True)
    assert trace.frame["job_id"].to_list() == ["a", "e"]
    assert trace.skipped_rows == 4
    assert trace.notes[0].startswith("skipped 4 bad rows; the first: ")
    assert "line 3, column duration_s: found '-1'" in trace.notes[0]


def test_skipping_every_row_leaves_no_trace(written):
    assert "no jobs left" in refuse(written(f"{HEAD}\na,0,1,-9\n"), skip_bad_rows=True).message


def test_bad_rows_of_public_formats_name_the_files_own_columns(written):
    path = written(PHILLY_CSV.replace("2951.0,8", "2951.0,eight"))
    assert (
        refuse(path).message
        == f"{path} line 3, column num_gpus: found 'eight', expected a whole number of GPUs, 1 or more"
    )
    path = written(PHILLY_CSV.replace("2017-10-09 06:13:03", "9 October"))
    assert "line 3, column timestamp: found '9 October', expected a time like" in refuse(path).message


def test_a_bad_parquet_row_is_named_by_its_row(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"job_id": ["a", "b"], "submit_s": [0, 1], "gpus": [1.0, 1.5], "duration_s": [1, 2]}).write_parquet(
        path
    )
    assert "row 2, column gpus: found '1.5'" in refuse(path).message
    assert len(load(path, skip_bad_rows=True)) == 1


def test_a_parquet_column_of_an_impossible_type_is_an_error_for_people(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"job_id": ["a"], "submit_s": [[0]], "gpus": [1], "duration_s": [1]}).write_parquet(path)
    assert "submit_s" in str(refuse(path))


def test_missing_file(tmp_path):
    error = refuse(tmp_path / "nothing.csv")
    assert "there is no trace file" in error.message
    assert "synthetic:" in (error.hint or "")


def test_directory(tmp_path):
    assert "is a directory" in refuse(tmp_path).message


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_empty_file(written, content):
    assert "is empty" in refuse(written(content)).message


@pytest.mark.parametrize("content", [b"\x89PNG\x00\x01", b"job_id,\xff\xfe\n", OWN.encode("utf-16")])
def test_binary_file(written, content):
    assert "is not text" in refuse(written(content)).message


def test_compressed_file_says_to_decompress(written):
    assert refuse(written(b"\x1f\x8b\x08\x00\x00")).hint == "decompress it first"


@pytest.mark.parametrize("content", [b"PAR1 but not really", b"PAR1"])
def test_damaged_parquet_file(written, content):
    assert "can't be read" in refuse(written(content)).message


@pytest.mark.parametrize("content", [HEAD, HEAD + "\n", HEAD + "\n\n\n"])
def test_header_only(written, content):
    assert "has a header and no rows" in refuse(written(content)).message


def test_no_format_matches_says_what_was_found_and_the_closest(written):
    error = refuse(written("job_id,submit_s,gpus,seconds\na,0,1,2\n"))
    assert "columns found: job_id, submit_s, gpus, seconds" in error.message
    assert "closest is 'fairlead', which also needs duration_s" in (error.hint or "")


def test_closest_format_may_be_a_public_one(written):
    hint = refuse(written("timestamp,duration,num_gpus\n2017-10-09 07:01:55,1,1\n")).hint or ""
    assert "closest is 'philly-csv', which also needs cluster" in hint


def test_other_separators_are_named(written):
    assert "commas" in (refuse(written(OWN.replace(",", ";"))).hint or "")


def test_nothing_in_common_lists_our_own_columns(written):
    assert "job_id, submit_s, gpus, duration_s" in (refuse(written("x,y\n1,2\n")).hint or "")


def test_unknown_format_name(written):
    error = refuse(written(OWN), format="phily-csv")
    assert "did you mean 'philly-csv'" in (error.hint or "")


def test_a_named_format_has_to_fit(written):
    assert "lacks timestamp, duration, num_gpus, cluster" in refuse(written(OWN), format="philly-csv").message
    assert "is a csv file" in refuse(written(OWN), format="philly-json").message


def test_a_column_twice(written):
    assert "'gpus' more than once" in refuse(written(HEAD + ",gpus\na,0,1,2,3\n")).message


def test_invalid_json(written):
    assert "line 2: not valid JSON" in refuse(written("[{\n]")).message


@pytest.mark.parametrize("content", ["{}", "[]", "[1, 2]"])
def test_json_that_holds_no_jobs(written, content):
    assert "holds no list of jobs" in refuse(written(content)).message


def test_json_with_other_keys(written):
    assert "keys found: a, b" in refuse(written('[{"a": 1, "b": 2}]')).message


def test_an_open_quote(written):
    assert "not valid csv" in refuse(written(f'{HEAD}\n"a,0,1,2\n')).message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": [0]}, "job 'a', gpus: found 0, expected a whole number of GPUs, 1 or more"),
        ({"duration_s": [float("nan")]}, "job 'a', duration_s: found nan"),
        ({"submit_s": [None]}, "job 'a', submit_s: found None"),
        ({"deadline_s": [-1.0]}, "job 'a', deadline_s: found -1.0"),
        ({"gpus": ["four"]}, "wrong type"),
    ],
)
def test_a_frame_made_in_python_obeys_the_same_rules(change, message):
    columns = {"job_id": ["a"], "submit_s": [0.0], "gpus": [1], "duration_s": [1.0], **change}
    with pytest.raises(InputError, match=message):
        Trace.from_columns(pl.DataFrame(columns))


def test_a_frame_made_in_python_needs_its_columns_and_names_once():
    with pytest.raises(InputError, match="missing: duration_s"):
        Trace.from_columns(pl.DataFrame({"job_id": ["a"], "submit_s": [0.0], "gpus": [1]}))
    with pytest.raises(InputError, match="more than once"):
        Trace.from_columns(
            pl.DataFrame({"job_id": ["a", "a"], "submit_s": [0, 0], "gpus": [1, 1], "duration_s": [1, 1]})
        )

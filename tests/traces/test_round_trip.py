from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.errors import InputError
from fairlead.traces import Trace, generate, load, save
from fairlead.traces.trace import SCHEMA

# Zero bytes make a file binary, and surrogates can't be written as UTF-8.
words = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=8)
names = words.filter(lambda w: w.strip() != "")
seconds = st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, object]:
    gpus = draw(st.integers(1, 2**40))
    return {
        "submit_s": draw(st.floats(0, 9e8)),  # beyond lies Unix time, which is shifted to its own zero
        "gpus": gpus,
        "duration_s": draw(seconds),
        "profile": draw(names),
        "kind": draw(st.sampled_from(["training", "service"])),
        "min_gpus": draw(st.integers(1, gpus)),
        "max_gpus": draw(st.integers(gpus, 2**62)),
        "memory_mib": draw(st.floats(0, allow_infinity=False, allow_nan=False)),
        "gpu_frac": draw(st.floats(0, 1, exclude_min=True)) if gpus == 1 else 1.0,
        "deadline_s": draw(st.none() | seconds),
        "priority": draw(st.integers(-(2**63), 2**63 - 1)),
        "user": draw(names | st.just("")),
        "cpus": draw(st.floats(0, 1e6)),
        "ram_mib": draw(st.floats(0, 1e9)),
    }


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(rows=st.lists(jobs(), min_size=1, max_size=6), ids=st.sets(names, min_size=6, max_size=6))
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, suffix, rows, ids):
    named = [{"job_id": name, **row} for name, row in zip(sorted(ids), rows, strict=False)]
    trace = Trace.from_columns(pl.DataFrame(named, schema=SCHEMA))
    path = tmp_path / f"trace{suffix}"
    save(trace, path)
    again = load(path)
    assert again.frame.equals(trace.frame, null_equal=True)
    assert again.format == "fairlead"


def test_a_large_synthetic_trace_survives_csv_exactly(tmp_path):
    trace = generate("philly", jobs=20_000)
    save(trace, tmp_path / "t.csv")
    assert load(tmp_path / "t.csv").frame.equals(trace.frame)


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.json"])
def test_other_suffixes_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        save(generate("poisson", jobs=1), tmp_path / name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_folder_that_does_not_exist_is_an_error_for_people(tmp_path, suffix):
    with pytest.raises(InputError, match="can't be written"):
        save(generate("poisson", jobs=1), tmp_path / "no" / f"t{suffix}")


@pytest.mark.parametrize(
    "name", ["a\rb", "a\r\nb", "\ufeffa", "a\n", "a\u2028b", " a ", "#a", "a,b", 'a"b', "null", "NA"]
)
def test_odd_names_survive_csv(tmp_path, name):
    columns = {"job_id": [name], "submit_s": [0.0], "gpus": [1], "duration_s": [1.0], "user": [name]}
    trace = Trace.from_columns(pl.DataFrame(columns))
    save(trace, tmp_path / "t.csv")
    assert load(tmp_path / "t.csv").frame.equals(trace.frame)

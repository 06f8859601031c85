"""Services from TOML: what is read, and errors that name the file and the field."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import fairlead
from fairlead.errors import InputError
from fairlead.model.service import DailyLoad, TableLoad
from fairlead.model.service_files import load_services
from fairlead.report.write import write
from fairlead.traces import generate
from tests.conftest import make_trace

GOOD = """
[[service]]
name = "search"
count = 3
request_ms = 10
slo_ms = 60
memory_frac = 0.3
daily = {mean_frac = 0.25, amplitude = 0.5, peak_h = 13}
bursts = [{at_h = 0.5, hours = 0.25, factor = 5}]
hours = 1

[[service]]
name = "ads"
request_ms = 5
slo_ms = 40
curve = "ads.csv"
hours = 1
"""


def write_files(folder: Path, text: str = GOOD, curve: str = "time_s,qps\n0,20\n1800,60\n3600,20\n") -> Path:
    (folder / "ads.csv").write_text(curve)
    (folder / "services.toml").write_text(text)
    return folder / "services.toml"


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    search, ads = load_services(write_files(tmp_path))
    assert (search.name, search.count, search.lasts_s) == ("search", 3, 3600.0)
    assert search.profile.service is not None
    assert search.profile.service.slo_s == pytest.approx(0.06)
    load = search.profile.service.load
    assert isinstance(load, DailyLoad)
    assert (load.mean_frac, load.bursts[0].start_s, load.bursts[0].end_s) == (0.25, 1800.0, 2700.0)
    assert ads.profile.service is not None
    assert isinstance(ads.profile.service.load, TableLoad)
    assert ads.profile.service.load.fracs == pytest.approx((0.1, 0.3, 0.1))  # requests a second times 5 ms


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("request_ms = 10", "request_ms = -1", "service.0.request_ms"),
        ("slo_ms = 60", "slo_ms = 5", "service.0: a request takes 0.01 s alone"),
        ("count = 3", "cuont = 3", "service.0.cuont"),
        ('curve = "ads.csv"', "", "service.1: expected either daily or curve"),
        ('curve = "ads.csv"', 'curve = "no.csv"', "no.csv: no such file"),
        ('name = "ads"', 'name = "search"', "service.1.name"),
        ("amplitude = 0.5", "amplitude = 2", "service.0.daily.amplitude"),
        ("[[service]]", "[[service", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_services(write_files(tmp_path, GOOD.replace(old, new, 1)))
    assert said in error.value.message


@pytest.mark.parametrize("curve", ["when,qps\n0,1\n", "time_s,qps\n0,one\n", "time_s,load_frac\n5,0.1\n5,0.2\n"])
def test_bad_curves_are_named(tmp_path: Path, curve: str) -> None:
    with pytest.raises(InputError, match=r"ads\.csv"):
        load_services(write_files(tmp_path, curve=curve))


def test_services_join_the_jobs_of_a_trace_and_what_they_show_is_written(tmp_path: Path) -> None:
    trace = make_trace([(0, 1, 600), (100, 1, 600)])
    policies = ["ordering=fifo:backfill=greedy,sharing=muxflow", "ordering=fifo:backfill=greedy,sharing=online-only"]
    found = fairlead.compare(policies, trace, "1x4:T4", services=write_files(tmp_path), workers=1)
    assert found[0].jobs["kind"].to_list().count("service") == 4
    assert found[0].summary["offline_mean_jct_s"] < found[1].summary["offline_mean_jct_s"]
    written = write(found, tmp_path / "out", names=["mux", "alone"])
    assert {"fleet-activity.png", "service-slowdown.png"} <= {path.name for path in written.plots}
    fleet = pl.read_parquet(tmp_path / "out" / "fleet-mux.parquet")
    assert fleet["services"].max() == 4.0
    assert pl.read_parquet(tmp_path / "out" / "evictions-mux.parquet").height == found[0].summary["evictions"]
    assert "SM activity" in (tmp_path / "out" / "report.html").read_text()


def test_a_service_with_the_name_of_a_job_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace('name = "ads"', 'name = "j0"')
    with pytest.raises(InputError, match="both called 'j0'"):
        fairlead.simulate(make_trace([(0, 1, 60)]), "1x4:T4", services=write_files(tmp_path, text))


def test_a_fleet_is_a_synthetic_trace() -> None:
    trace = generate("fleet:services=5:hours=2:load=0.5:start_h=8:seed=3")
    assert trace.frame["kind"].to_list().count("service") == 5
    assert trace.profile("service-0").service is not None
    assert trace.source.startswith("synthetic:fleet:")
    assert len(generate("fleet:services=5:hours=2:jobs=3")) == 8

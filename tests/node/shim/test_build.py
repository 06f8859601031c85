"""Building the shim: once per version, and a clear word where it can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.node import shim

UUID = "GPU-8e1f5a3c-0d3c-11ef-9f4b-0242ac120002"
needs_compiler = pytest.mark.skipif(shim.find_compiler() is None, reason="no C compiler")


@needs_compiler
def test_it_is_built_once_and_anew_when_flags_differ(tmp_path: Path) -> None:
    first = shim.build(tmp_path)
    before = first.stat().st_mtime_ns
    assert shim.build(tmp_path) == first
    assert first.stat().st_mtime_ns == before
    other = shim.build(tmp_path, extra_flags=["-DANY"])
    assert other != first
    assert [p.name for p in first.parent.iterdir()] == [shim.LIBRARY_NAME]


def test_without_a_compiler_it_says_what_is_missing_and_what_that_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert shim.find_compiler() is None
    with pytest.raises(shim.ShimUnavailableError) as error:
        shim.build(tmp_path)
    assert "no C compiler found" in error.value.message
    assert error.value.hint is not None
    assert "no memory quota" in error.value.hint


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'stdio.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(shim.ShimUnavailableError, match=r"stdio\.h"):
        shim.build(tmp_path / "cache")
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


@needs_compiler
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "file"))
    with pytest.raises(shim.ShimUnavailableError, match="can't be written") as error:
        shim.build()
    assert "FAIRLEAD_CACHE" in (error.value.hint or "")


def test_the_environment_switches_it_on(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    found = shim.environment(
        library, page=Path("/p"), usage=Path("/u"), quota_bytes=5, log=Path("/l"), preload="/other.so"
    )
    assert found == {
        "LD_PRELOAD": f"{library}:/other.so",
        "FAIRLEAD_SHIM_PAGE": "/p",
        "FAIRLEAD_SHIM_USAGE": "/u",
        "FAIRLEAD_SHIM_QUOTA": "5",
        "FAIRLEAD_SHIM_LOG": "/l",
    }
    assert shim.environment(library) == {"LD_PRELOAD": str(library)}
    assert shim.environment(library, quota_bytes={UUID: 7})["FAIRLEAD_SHIM_QUOTA"] == f"{UUID}=7"


def test_the_sources_are_beside_the_package() -> None:
    names = {path.name for path in shim.sources()}
    assert {"shim.h", "driver.h", "page.h", "lookup.c", "memory.c", "gate.c", "signals.c"} <= names

"""Policies decide from what they are shown: no file, no clock, no process, no network."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fairlead.policy
from fairlead.errors import InputError
from fairlead.model.files import read_text
from fairlead.policy import registry

FOLDER = Path(fairlead.policy.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
OUTSIDE = {"os", "io", "socket", "subprocess", "threading", "time", "tempfile", "urllib", "http", "logging", "secrets"}
READING = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "read_toml",
    "load_cluster",
    "print",
    "input",
}
TYPES = '[[type]]\nname = "bert"\narrival_rate_per_s = 0.01\nmean_size_s = 3600\npower = 0.8\n'


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_nothing_in_policy_reads_or_writes_or_looks_at_a_clock(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            assert not {name.name.split(".")[0] for name in node.names} & OUTSIDE
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in OUTSIDE
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            assert called not in READING, f"line {node.lineno}"


def test_a_file_that_an_option_names_is_read_by_who_builds_the_stack(tmp_path: Path) -> None:
    file = tmp_path / "types.toml"
    file.write_text(TYPES)
    stack = registry.build(f"boa:types={file}", read=read_text)
    assert [kind.name for kind in stack.sizing.types] == ["bert"]  # type: ignore[attr-defined]
    assert f"types={file}" in stack.spec


def test_without_leave_to_read_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "types.toml"
    file.write_text(TYPES)
    with pytest.raises(InputError, match=r"types\.toml: no file is read"):
        registry.build(f"boa:types={file}")


def test_what_is_wrong_with_such_a_file_is_told_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "types.toml"
    file.write_text(TYPES.replace("3600", "-1"))
    with pytest.raises(InputError, match=r"types\.toml: type\.0\.mean_size_s"):
        registry.build(f"boa:types={file}", read=read_text)
    with pytest.raises(InputError, match="no such file"):
        registry.build(f"muxflow:predictor={tmp_path}/none.json", read=read_text)

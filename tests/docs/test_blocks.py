"""Every console and python block of the documentation does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import DOCUMENTS, ROOT, Block, blocks_of, shown_in

EXAMPLES = ROOT / "examples"
LANGUAGES = {"console", "python", "toml", "json", "csv", "text", "{toctree}"}
BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
NOT_RUN = [block for block in BLOCKS if "not run" in block.marks]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a page may start a controller; what it leaves running is ended."""
    folder = Path(tempfile.mkdtemp(prefix="fairlead-"))  # short: sockets are made in it
    monkeypatch.setenv("FAIRLEAD_HOME", str(folder))
    monkeypatch.setenv("FAIRLEAD_SERVER_PORT", "0")
    yield folder
    if (folder / "lock").exists():
        run("fairlead down --kill-jobs", folder)
    shutil.rmtree(folder)


@pytest.fixture
def workdir(tmp_path: Path, home: Path) -> Path:
    """A copy of examples/, with its policy package installed as pip would: a module and its entry points."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__", "out"))
    site = tmp_path / "site"
    package = EXAMPLES / "policies"
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
            for group, points in project["entry-points"].items()
        )
    )
    for module in package.glob("*.py"):
        shutil.copy(module, site)
    return folder


def run(command: list[str] | str, workdir: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(workdir.parent / "site"),
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "utf-8",
        "COLUMNS": "160",
    }
    shell = isinstance(command, str)
    return subprocess.run(
        command,
        shell=shell,
        cwd=workdir,
        env=environment,
        timeout=600,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_run_as_stated(document: Path, workdir: Path) -> None:
    # In order and in one folder: a block may read what an earlier one of the same page wrote.
    for block in blocks_of(document):
        if block.language in ("console", "python") and "not run" not in block.marks:
            (run_console if block.language == "console" else run_python)(block, workdir)


def run_console(block: Block, workdir: Path) -> None:
    assert block.commands, f"{block.where}: no line starts with `$ `"
    for number, (command, shown) in enumerate(block.commands, start=1):
        wanted = int(block.marks.get("exit", 0)) if number == len(block.commands) else 0
        done = run(command, workdir)
        output = done.stdout + done.stderr
        assert done.returncode == wanted, f"{block.where}: `{command}` ended with {done.returncode}:\n{output}"
        if "output" in block.marks:
            missing = shown_in(shown, output)
            assert missing is None, f"{block.where}: `{command}` did not print {missing!r}, but:\n{output}"


def run_python(block: Block, workdir: Path) -> None:
    script = workdir / "block.py"
    script.write_text(block.text, encoding="utf-8")
    done = run([sys.executable, script.name], workdir)
    assert done.returncode == 0, f"{block.where} ended with {done.returncode}:\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.where)
def test_blocks_that_are_not_run_are_listed(block: Block) -> None:
    assert block.marks["not run"], f"{block.where} is not run and does not say why"
    pytest.skip(f"{block.where}: {block.marks['not run']}")


def test_every_block_has_a_known_language() -> None:
    # A shell block by another name would escape being run.
    assert [f"{b.where}: {b.language!r}" for b in BLOCKS if b.language not in LANGUAGES] == []


def test_files_are_shown_as_they_are() -> None:
    shown = [block for block in BLOCKS if "file" in block.marks]
    assert shown
    for block in shown:
        assert block.text == (ROOT / block.marks["file"]).read_text(encoding="utf-8"), block.where


def test_the_example_script_runs(workdir: Path) -> None:
    done = run([sys.executable, "compare.py"], workdir)
    assert done.returncode == 0, done.stderr
    assert (workdir / "out" / "example" / "report.html").is_file()

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.live.jobs.job_files import load_jobs
from fairlead.live.jobs.quantities import mebibytes, seconds


def written(folder: Path, text: str, name: str = "job.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("50ms", 0.05), ("90s", 90.0), ("6h", 21600.0), ("1h30m", 5400.0), ("1h 30min", 5400.0), ("1.5d", 129600.0)],
)
def test_durations_have_units(text: str, expected_s: float) -> None:
    assert seconds(text, "--deadline") == pytest.approx(expected_s)


@pytest.mark.parametrize("text", ["", " ", "6", "h", "6 hours", "-1h", "1h30", "nan", "1e400h", "6hh"])
def test_what_is_no_duration_is_named_with_examples(text: str) -> None:
    with pytest.raises(InputError, match="--deadline is ") as raised:
        seconds(text, "--deadline")
    assert "1h30m" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "expected_mib"),
    [("512MiB", 512.0), ("20GiB", 20480.0), ("1.5 TiB", 1572864.0), ("1GB", 1e9 / 2**20), ("20gib", 20480.0)],
)
def test_sizes_have_units(text: str, expected_mib: float) -> None:
    assert mebibytes(text, "--mem") == pytest.approx(expected_mib)


@pytest.mark.parametrize("text", ["", "20", "20G", "GiB", "-1GiB", "1GiB2MiB", "20 apples"])
def test_what_is_no_size_is_named_with_examples(text: str) -> None:
    with pytest.raises(InputError, match="--mem is ") as raised:
        mebibytes(text, "--mem")
    assert "20GiB" in str(raised.value.hint)


def test_one_job_needs_no_table(tmp_path: Path) -> None:
    file = written(tmp_path, 'command = ["python", "train.py"]\ngpus = 2\nmemory = "20GiB"\ndeadline = "6h"\n')
    (job,) = load_jobs(file, Path("/work"))
    assert (job.command, job.gpus, job.memory_mib, job.deadline_s) == (["python", "train.py"], 2, 20480.0, 21600.0)
    assert job.cwd == "/work"


def test_several_jobs_are_several_tables(tmp_path: Path) -> None:
    text = """
        [[job]]
        name = "a"
        command = ["true"]
        priority = "high"
        cwd = "sub"

        [[job]]
        name = "b"
        command = ["true"]
        kind = "service"
        slo = "50ms"
        grace_s = 5
        env = { A = "1" }
    """
    first, second = load_jobs(written(tmp_path, text), Path("/"))
    assert (first.name, first.priority, first.cwd) == ("a", 1, str(tmp_path / "sub"))
    assert (second.slo_s, second.grace_s, second.env) == (0.05, 5.0, {"A": "1"})


def test_yaml_says_the_same(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    text = "job:\n- command: [python, train.py]\n  memory: 1GiB\n- command: ['true']\n"
    first, second = load_jobs(written(tmp_path, text, "jobs.yaml"), Path("/"))
    assert (first.memory_mib, second.command) == (1024.0, ["true"])


def test_without_pyyaml_a_yaml_file_gets_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *rest: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InputError, match="PyYAML is needed") as raised:
        load_jobs(written(tmp_path, "command: ['true']", "job.yml"), Path("/"))
    assert "TOML" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "command"),
        ('command = "python train.py"', "command is a text; expected a list of words"),
        ('command = ["true"]\ngpu = 2', "unknown key 'gpu'"),
        ('command = ["true"]\ngpus = 0', "gpus is 0"),
        ('command = ["true"]\nmemory = "20"', "memory is '20'; expected a size"),
        ('command = ["true"]\nmemory = "1GiB"\nmemory_mib = 5', "are both given"),
        ('command = ["true"]\npriority = "urgent"', "priority 'urgent': expected low, normal, high"),
        ('command = ["true"]\nmin_gpus = 4\nmax_gpus = 2', "4 to 2 GPUs"),
        ('x = 1\n[[job]]\ncommand = ["true"]', "'x' stands beside the jobs"),
        ("job = []", "no jobs"),
        ("job = 3", "expected a table"),
        ("[[job]]\ncommand = ['true']\n[[job]]\ncommand = []", "job 2: command"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_mistake_names_the_file_and_what_is_wrong(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError) as raised:
        load_jobs(written(tmp_path, text), Path("/"))
    assert "job.toml" in raised.value.message
    assert named in raised.value.message

"""What a job learns from its environment."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fairlead
from fairlead import job
from fairlead.job.place import gpus_of, id_of, is_first_in
from tests.job.conftest import outside


def test_the_import_brings_the_standard_library_only() -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from fairlead import job\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=outside(), capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout.split() == ["fairlead"]


def test_it_is_also_an_attribute_of_the_package() -> None:
    assert fairlead.job is job
    assert "job" in dir(fairlead)


def test_outside_fairlead_there_is_no_job() -> None:
    assert (job.id, job.attempt, job.gpus, job.is_fake) == (None, None, 1, False)


def test_under_fairlead_the_job_knows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"JOB_ID": "7", "ATTEMPT": "2", "GPUS": "GPU-a,GPU-b", "NUM_GPUS": "16", "FAKE": "1"}
    for name, value in told.items():
        monkeypatch.setenv(f"FAIRLEAD_{name}", value)
    assert (job.id, job.attempt, job.gpus, job.is_fake) == (7, 2, 16, True)


@pytest.mark.parametrize(
    ("env", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"CUDA_VISIBLE_DEVICES": ""}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "FAIRLEAD_NUM_GPUS": "8"}, 8),
        ({"CUDA_VISIBLE_DEVICES": "", "FAIRLEAD_NUM_GPUS": "4"}, 4),
        ({"FAIRLEAD_NUM_GPUS": "many"}, 1),
    ],
)
def test_gpus_are_counted_over_all_nodes_or_as_cuda_shows_them(env: dict[str, str], gpus: int) -> None:
    assert gpus_of(env) == gpus


def test_a_job_whose_name_is_no_number_has_none() -> None:
    assert id_of({"FAIRLEAD_JOB_ID": "web"}) is None


@pytest.mark.parametrize(
    ("env", "is_first"),
    [
        ({}, True),
        ({"RANK": "0"}, True),
        ({"RANK": "3"}, False),
        ({"NODE_RANK": "0", "LOCAL_RANK": "0", "RANK": "0"}, True),
        ({"NODE_RANK": "0", "LOCAL_RANK": "1", "RANK": "1"}, False),
        ({"NODE_RANK": "1"}, False),
        # torchrun gave rank 0 to the second node; the agent reads on the first.
        ({"NODE_RANK": "1", "LOCAL_RANK": "0", "RANK": "0"}, False),
        ({"NODE_RANK": "0", "LOCAL_RANK": "0", "RANK": "4"}, True),
    ],
)
def test_one_process_of_a_job_reports(env: dict[str, str], is_first: bool) -> None:
    assert is_first_in(env) is is_first


def test_what_it_has_not_is_an_error_as_usual() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = job.nothing  # type: ignore[attr-defined]

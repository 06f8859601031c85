"""The examples do what their first lines say."""

from __future__ import annotations

import json
import py_compile
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job.conftest import Script, lines

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAIN = str(EXAMPLES / "train.py")


def checkpoint_in(temporary: Path) -> Path:
    """The only one, of job 7."""
    [found] = temporary.rglob("job-7.json")
    return found


def test_a_training_runs_to_its_end(start: Callable[..., Script], tmp_path: Path, temporary: Path) -> None:
    report = tmp_path / "report.jsonl"
    script = start(TRAIN, "--epochs", "3", "--epoch-s", "0.02", FAIRLEAD_REPORT=str(report), FAIRLEAD_JOB_ID="7")
    assert script.wait() == 0
    *found, end = lines(report)
    assert [(line["epoch"], line["of"], line["batch"]) for line in found[:3]] == [(1, 3, 256), (2, 3, 256), (3, 3, 256)]
    assert all(line["loss"] > 0 and line["samples_per_s"] > 0 for line in found[:3])
    assert end["finished"] is True
    assert json.loads(checkpoint_in(temporary).read_text()) == {"epochs_done": 3, "steps_done": 0}
    assert list(tmp_path.iterdir()) == [report], "nothing is left in the folder that it ran in"


def test_a_training_is_stopped_and_resumes_on_more_gpus(
    start: Callable[..., Script], tmp_path: Path, temporary: Path
) -> None:
    report = tmp_path / "report.jsonl"

    def attempt(number: int, gpus: int) -> Script:
        return start(
            *(TRAIN, "--epochs", "40", "--epoch-s", "1.6"),
            FAIRLEAD_REPORT=str(report),
            FAIRLEAD_JOB_ID="7",
            FAIRLEAD_ATTEMPT=str(number),
            FAIRLEAD_NUM_GPUS=str(gpus),
        )

    first = attempt(1, gpus=1)
    first.wait_for("epoch 1 of 40, loss")
    first.terminate()
    first.wait_for("stopped")
    assert first.wait() == 0
    saved = json.loads(checkpoint_in(temporary).read_text())
    *before, asked = lines(report)
    assert [line["epoch"] for line in before] == list(range(1, saved["epochs_done"] + 1))
    assert asked["asked_to_stop"] is True, "and nobody said that it has finished"

    second = attempt(2, gpus=64)
    told = second.wait_for("GPUs: 64")
    assert f"done: {saved['epochs_done']} of 40 epochs, {saved['steps_done']} of 8 steps" in told
    assert second.wait() == 0
    after = lines(report)
    assert [line["epoch"] for line in after if "epoch" in line] == list(range(1, 41))
    assert after[-1]["finished"] is True


def test_a_training_stops_for_the_file_too(start: Callable[..., Script], tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    script = start(TRAIN, "--epochs", "1000", FAIRLEAD_STOP=str(stop))
    script.wait_for("done: 0 of 1000")
    stop.touch()
    script.wait_for("stopped in epoch 1")
    assert script.wait() == 0


def test_a_first_attempt_does_not_go_on_with_another_jobs_checkpoint(
    start: Callable[..., Script], temporary: Path
) -> None:
    before = start(TRAIN, "--epochs", "2", "--epoch-s", "0.02", FAIRLEAD_JOB_ID="7", FAIRLEAD_ATTEMPT="1")
    assert before.wait() == 0
    assert json.loads(checkpoint_in(temporary).read_text())["epochs_done"] == 2
    script = start(TRAIN, "--epochs", "2", "--epoch-s", "0.02", FAIRLEAD_JOB_ID="7", FAIRLEAD_ATTEMPT="1")
    script.wait_for("done: 0 of 2")
    assert script.wait() == 0


def test_only_one_node_of_a_training_writes(start: Callable[..., Script], tmp_path: Path, temporary: Path) -> None:
    report = tmp_path / "report.jsonl"
    script = start(TRAIN, "--epochs", "1", "--epoch-s", "0.02", FAIRLEAD_REPORT=str(report), NODE_RANK="1")
    assert script.wait() == 0
    assert [*tmp_path.iterdir(), *temporary.iterdir()] == []


def test_a_service_reports_until_it_is_stopped(start: Callable[..., Script]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="la") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent,
    ):
        agent.bind(f"{folder}/s")
        agent.settimeout(60.0)
        words = ("--latency-ms", "20", "--requests-per-s", "50", "--burst-every-s", "0.5", "--burst-s", "0.25")
        script = start(str(EXAMPLES / "service.py"), *words, FAIRLEAD_LATENCY=f"{folder}/s", FAIRLEAD_LAUNCH="k")
        found = [json.loads(agent.recv(4096)) for _ in range(5)]
        assert {line["key"] for line in found} == {"k"}
        assert all(0.005 < line["latency_s"] < 0.5 for line in found)
        while json.loads(agent.recv(4096))["latency_s"] < 0.05:
            pass
        script.wait_for("a burst begins")
        script.terminate()
        script.wait_for("stopped")
        assert script.wait() == 0


def test_the_pytorch_example_compiles(tmp_path: Path) -> None:
    py_compile.compile(str(EXAMPLES / "train_torch.py"), cfile=str(tmp_path / "compiled.pyc"), doraise=True)


def test_without_pytorch_its_example_says_so(start: Callable[..., Script]) -> None:
    code = f"import runpy, sys; sys.modules['torch'] = None; runpy.run_path({str(EXAMPLES / 'train_torch.py')!r})"
    script = start("-c", code)
    script.wait_for("needs PyTorch")
    assert script.wait() == 1


def test_the_pytorch_example_is_stopped_and_resumes(start: Callable[..., Script], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = (str(EXAMPLES / "train_torch.py"), "--epochs", "2", "--checkpoint", "c.pt")
    first = start(*words)
    first.wait_for("epoch 1 of 2")
    first.terminate()
    first.wait_for("stopped in epoch 2")
    assert first.wait() == 0
    second = start("-m", "torch.distributed.run", "--nproc-per-node=2", *words, CUDA_VISIBLE_DEVICES="")
    second.wait_for("epoch 2 of 2")
    assert second.wait() == 0

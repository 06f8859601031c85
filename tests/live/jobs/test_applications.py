"""Which jobs are taken for runs of one program."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.live.jobs.applications import application_of
from fairlead.live.jobs.request import JobRequest

PROJECT = "/home/ada/project"
WORD = st.text(string.ascii_lowercase, min_size=1, max_size=8)
IRRELEVANT = st.sampled_from(
    [
        "--seed",
        "--lr",
        "--learning-rate",
        "--output-dir",
        "--log_dir",
        "--run-name",
        "--model-dir",
        "--epochs",
        "--port",
    ]
)
VALUE = st.one_of(WORD, st.integers(0, 10**6).map(str), st.floats(-1, 1).map(str), WORD.map("/tmp/{}".format))


def of(line: str, cwd: str = PROJECT) -> str:
    return application_of(line.split(), cwd)


@given(st.lists(st.tuples(IRRELEVANT, VALUE)), st.lists(st.tuples(IRRELEVANT, VALUE)), st.booleans())
def test_seeds_rates_and_outputs_leave_the_application_as_it_is(
    some: list[tuple[str, str]], others: list[tuple[str, str]], joined: bool
) -> None:
    def command(options: list[tuple[str, str]]) -> list[str]:
        words = [f"{name}={value}" if joined else f"{name} {value}" for name, value in options]
        return ["python", "train.py", "--model=gpt2", *(part for word in words for part in word.split(" "))]

    assert application_of(command(some), PROJECT) == application_of(command(others), PROJECT)


@given(WORD, WORD, st.integers(1, 4096), st.integers(1, 4096))
def test_another_model_or_batch_is_another_application(a: str, b: str, few: int, many: int) -> None:
    is_same = (a, few) == (b, many)
    one, other = (of(f"python train.py --model {m} --batch-size {n}") for m, n in ((a, few), (b, many)))
    assert (one == other) is is_same


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8).filter(lambda words: bool(words[0])), WORD)
def test_whatever_is_run_has_a_name_that_can_be_printed_and_is_always_the_same(words: list[str], folder: str) -> None:
    found = application_of(words, f"/{folder}")
    assert found == application_of(list(words), f"/{folder}")
    assert found.isascii()
    assert found.isprintable()
    assert 13 < len(found) <= 60


@pytest.mark.parametrize(
    "other",
    [
        "python3.11 train.py --model gpt2 -b 8",
        "python -u ./train.py -b 8 --model=gpt2 --seed 3",
        f"/usr/bin/python {PROJECT}/train.py --model gpt2 -b 8 --lr 1e-3",
        "torchrun --nproc_per_node 4 train.py --model gpt2 -b 8",
        "env OMP_NUM_THREADS=4 python train.py --model gpt2 -b 8",
        "nice -n 5 python train.py --model gpt2 -b 8",
        "uv run train.py --model gpt2 -b 8",
    ],
)
def test_how_a_script_is_launched_does_not_matter(other: str) -> None:
    assert of(other) == of("python train.py --model gpt2 -b 8")


def test_a_shell_around_one_command_does_not_matter() -> None:
    assert application_of(["bash", "-c", "python train.py --seed 4"], PROJECT) == of("python train.py")
    several = application_of(["bash", "-c", "cd x && python train.py"], PROJECT)
    assert several != of("python train.py")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("python train.py", "python evaluate.py"),
        ("python train.py --fp16", "python train.py"),
        ("python train.py model=a seed=1", "python train.py model=b seed=1"),
        ("python -m vision.train", "python -m speech.train"),
        ("python train.py configs/small.yaml", "python train.py configs/large.yaml"),
        ("python -c pass", "python -c print"),
        ("./train", "./serve"),
    ],
)
def test_what_differs_in_shape_is_another_application(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_scripts_of_one_name_in_two_projects_are_two_applications() -> None:
    assert of("python train.py") != of("python train.py", "/home/ada/other")


def test_hydra_style_seeds_do_not_matter() -> None:
    assert of("python train.py model=a trainer.seed=1 +optim.lr=3") == of("python train.py model=a trainer.seed=2")


def test_thousands_of_programs_hardly_ever_meet() -> None:
    names = {of(f"python train{i % 100}.py --layers {i // 100}") for i in range(10_000)}
    assert len(names) == 10_000


def test_a_name_that_was_given_goes_before_a_profile_and_that_before_the_command() -> None:
    request = JobRequest(command=["python", "train.py"], cwd=PROJECT)
    assert request.recognised().application == of("python train.py")
    with_profile = request.model_copy(update={"profile": "resnet50"})
    assert with_profile.recognised().application == "resnet50"
    assert with_profile.model_copy(update={"application": "mine"}).recognised().application == "mine"


def test_services_are_not_taken_for_the_training_of_their_script() -> None:
    service = JobRequest(command=["python", "train.py"], cwd=PROJECT, kind="service")
    assert service.recognised().application != of("python train.py")

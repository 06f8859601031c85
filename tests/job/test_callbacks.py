"""The callbacks, driven by stand-ins that call the documented hooks in the libraries' order; then the real classes."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.job.conftest import lines

BATCHES = 4


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """A callback's module takes its base class from the library that it finds."""
    names = ("fairlead.job.lightning", "fairlead.job.huggingface")
    for name in names:
        sys.modules.pop(name, None)
    yield
    for name in names:
        sys.modules.pop(name, None)


def library(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    made = ModuleType(name)
    made.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, made)
    if "." in name:
        library(monkeypatch, name.partition(".")[0], __path__=[])


def epochs(report: Path) -> list[int]:
    return [line["epoch"] for line in lines(report) if "epoch" in line] if report.exists() else []


def has_finished(report: Path) -> bool:
    return report.exists() and any("finished" in line for line in lines(report))


class LightningCallback:
    """The hooks of Lightning's that are used."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None: ...
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None: ...
    def on_train_end(self, trainer: Any, pl_module: Any) -> None: ...


@dataclass
class LightningTrainer:
    """`fit`; when `should_stop` is set the epoch is cut short, and its end is called all the same."""

    default_root_dir: str
    max_epochs: int | None
    on_batch: Callable[[int, int], None] = lambda epoch, batch: None
    num_training_batches: float = BATCHES
    current_epoch: int = 0
    should_stop: bool = False
    callback_metrics: dict[str, Any] = field(default_factory=dict)
    saved: list[str] = field(default_factory=list)

    def save_checkpoint(self, path: str) -> None:
        self.saved.append(path)
        Path(path).touch()

    def fit(self, callback: Any) -> None:
        while not self.should_stop and self.current_epoch != self.max_epochs:
            for batch in range(BATCHES):
                self.on_batch(self.current_epoch, batch)
                callback.on_train_batch_end(self, None, None, None, batch)
                if self.should_stop:
                    break
            self.callback_metrics["train_loss"] = 1.0 / (self.current_epoch + 1)
            callback.on_train_epoch_end(self, None)
            self.current_epoch += 1
        callback.on_train_end(self, None)


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]) -> Any:
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    library(monkeypatch, "lightning.pytorch", Callback=LightningCallback)
    return importlib.import_module("fairlead.job.lightning").FairleadCallback()


def test_lightning_reports_each_epoch_and_the_end(lightning: Any, report: Path, tmp_path: Path) -> None:
    trainer = LightningTrainer(str(tmp_path), max_epochs=3)
    assert lightning.resume_from(trainer) is None
    trainer.fit(lightning)
    found = [line for line in lines(report) if "epoch" in line]
    assert [(line["epoch"], line["of"]) for line in found] == [(1, 3), (2, 3), (3, 3)]
    assert [line["loss"] for line in found] == pytest.approx([1.0, 0.5, 0.333], abs=0.001)
    assert has_finished(report)
    assert trainer.saved == []


@pytest.mark.parametrize(
    ("at", "reported"),
    [((1, 0), [1]), ((1, BATCHES - 1), [1, 2]), ((0, 1), [])],
    ids=["within an epoch", "in its last batch", "within the first"],
)
def test_lightning_saves_and_stops_when_asked(
    lightning: Any, stop: Callable[[], None], report: Path, tmp_path: Path, at: tuple[int, int], reported: list[int]
) -> None:
    trainer = LightningTrainer(str(tmp_path), 3, on_batch=lambda *now: stop() if now == at else None)
    trainer.fit(lightning)
    assert epochs(report) == reported
    assert trainer.saved == [str(tmp_path / "fairlead.ckpt")]
    assert not has_finished(report)
    assert lightning.resume_from(trainer) == trainer.saved[0]


def test_lightning_without_an_end_has_none(
    lightning: Any, stop: Callable[[], None], report: Path, tmp_path: Path
) -> None:
    trainer = LightningTrainer(str(tmp_path), -1, on_batch=lambda epoch, _: stop() if epoch == 2 else None)
    trainer.fit(lightning)
    assert [set(line) for line in lines(report)] == [{"epoch", "at_s", "clock_s", "loss"}] * 2


def test_the_lightning_that_the_user_imported_is_taken(
    monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]
) -> None:
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    library(monkeypatch, "pytorch_lightning", Callback=LightningCallback)
    assert issubclass(importlib.import_module("fairlead.job.lightning").FairleadCallback, LightningCallback)


class HuggingFaceCallback:
    """The hooks of the Trainer's that are used."""

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...


@dataclass
class HuggingFaceTrainer:
    """`train`, which counts epochs in fractions and calls the end of one that was cut short, too."""

    epochs: int
    max_steps: int = -1
    on_step: Callable[[int], None] = lambda step: None
    saved: list[int] = field(default_factory=list)

    def train(self, callback: Any, from_step: int = 0) -> None:
        args = SimpleNamespace(
            train_batch_size=8, gradient_accumulation_steps=2, world_size=4, max_steps=self.max_steps
        )
        control = SimpleNamespace(should_save=False, should_training_stop=False)
        last = self.max_steps if self.max_steps > 0 else self.epochs * BATCHES
        state = SimpleNamespace(
            epoch=from_step / BATCHES,
            global_step=from_step,
            max_steps=last,
            num_train_epochs=self.epochs,
            log_history=[{"loss": 0.75}, {"eval_loss": 2.0}],
        )
        while state.global_step < last and not control.should_training_stop:
            callback.on_epoch_begin(args, state, control, model=None)
            for _ in range(BATCHES - state.global_step % BATCHES):
                state.global_step += 1
                state.epoch = state.global_step / BATCHES
                self.on_step(state.global_step)
                control.should_training_stop = state.global_step >= last
                callback.on_step_end(args, state, control, model=None)
                if control.should_save:
                    self.saved.append(state.global_step)
                    control.should_save = False
                if control.should_training_stop:
                    break
            callback.on_epoch_end(args, state, control, model=None)
        callback.on_train_end(args, state, control, model=None)


@pytest.fixture
def huggingface(monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]) -> Any:
    library(monkeypatch, "transformers", TrainerCallback=HuggingFaceCallback)
    return importlib.import_module("fairlead.job.huggingface").FairleadCallback()


def test_huggingface_reports_each_epoch_and_the_end(huggingface: Any, report: Path) -> None:
    HuggingFaceTrainer(epochs=2).train(huggingface)
    found = [line for line in lines(report) if "epoch" in line]
    assert [(line["epoch"], line["of"], line["loss"], line["batch"]) for line in found] == [
        (1, 2, 0.75, 64),
        (2, 2, 0.75, 64),
    ]
    assert all(line["samples_per_s"] > 0 for line in found)
    assert has_finished(report)


@pytest.mark.parametrize(("at", "reported"), [(2, []), (4, [1]), (6, [1])])
def test_huggingface_saves_and_stops_when_asked(
    huggingface: Any, stop: Callable[[], None], report: Path, at: int, reported: list[int]
) -> None:
    trainer = HuggingFaceTrainer(epochs=3, on_step=lambda step: stop() if step == at else None)
    trainer.train(huggingface)
    assert trainer.saved == [at]
    assert epochs(report) == reported
    assert not has_finished(report)


def test_huggingface_goes_on_counting_where_it_was_stopped(huggingface: Any, report: Path) -> None:
    HuggingFaceTrainer(epochs=3).train(huggingface, from_step=6)
    assert epochs(report) == [2, 3]


def test_huggingface_asked_in_the_last_step_has_finished(
    huggingface: Any, stop: Callable[[], None], report: Path
) -> None:
    trainer = HuggingFaceTrainer(epochs=2, max_steps=6, on_step=lambda step: stop() if step == 6 else None)
    trainer.train(huggingface)
    assert has_finished(report)
    assert epochs(report) == [1]
    assert "of" not in lines(report)[0], "by steps it may end within an epoch"


@pytest.mark.parametrize("name", ["lightning", "huggingface"])
def test_without_the_library_the_import_says_which(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for absent in ("lightning", "lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.delitem(sys.modules, absent, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Without(), *sys.meta_path])
    with pytest.raises(ImportError, match=f"fairlead.job.{name} needs .* installed"):
        importlib.import_module(f"fairlead.job.{name}")


class Without:
    """An installation that lacks them."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ("lightning", "pytorch_lightning", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(
    ("library", "home"),
    [("lightning.pytorch", "lightning"), ("pytorch_lightning", "lightning"), ("transformers", "huggingface")],
)
def test_the_hooks_are_those_of_the_real_library(library: str, home: str, stop: Callable[[], None]) -> None:
    pytest.importorskip(library)
    callback = importlib.import_module(f"fairlead.job.{home}").FairleadCallback
    hooks = [name for name in vars(callback) if name.startswith("on_")]
    assert hooks
    for name in hooks:
        assert list(inspect.signature(getattr(callback, name)).parameters) == list(
            inspect.signature(getattr(callback.__base__, name)).parameters
        )
    callback()

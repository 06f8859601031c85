"""For Lightning, as `lightning` or `pytorch_lightning`.

    fairlead = FairleadCallback()
    trainer = Trainer(max_epochs=90, callbacks=[fairlead])
    trainer.fit(model, ckpt_path=fairlead.resume_from(trainer))

The checkpoint of a stop is `fairlead.ckpt` in the trainer's `default_root_dir`.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from fairlead import job


def _library() -> Any:
    """The one that the user's code has imported, or else the one that is installed: their classes don't mix."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as absent:
            if absent.name not in ("lightning", name):
                raise
    raise ImportError("fairlead.job.lightning needs lightning or pytorch_lightning, and neither is installed")


class FairleadCallback(_library().Callback):  # type: ignore[misc]
    """Reports epochs, and writes a checkpoint and stops when Fairlead asks for it, after the batch under way."""

    def __init__(self) -> None:
        super().__init__()
        self._is_stopping = False
        # Now, and not in the first batch: Lightning puts its own handler of SIGTERM over this one during `fit`.
        job.should_stop()

    def resume_from(self, trainer: Any) -> str | None:
        """The checkpoint of the last stop, for `fit`'s `ckpt_path`; None in a first attempt."""
        path = self._path(trainer)
        return path if os.path.exists(path) else None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop here if asked; after the last batch it is better done below, with the epoch complete."""
        if batch_idx + 1 < trainer.num_training_batches and job.all_should_stop():
            self._stop(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report, unless Lightning calls this because the epoch was cut short."""
        if self._is_stopping:
            return
        has_end = trainer.max_epochs is not None and trainer.max_epochs > 0  # -1 is no end
        loss = trainer.callback_metrics.get("train_loss", trainer.callback_metrics.get("loss"))
        job.epoch(trainer.current_epoch + 1, of=trainer.max_epochs if has_end else None, loss=loss)
        if job.all_should_stop():
            self._stop(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """All epochs are done, or Lightning itself found that it is enough."""
        if not self._is_stopping:
            job.finished()

    def _stop(self, trainer: Any) -> None:
        self._is_stopping = True
        trainer.save_checkpoint(self._path(trainer))  # in every process, as Lightning wants it
        trainer.should_stop = True

    def _path(self, trainer: Any) -> str:
        return os.path.join(trainer.default_root_dir, "fairlead.ckpt")

"""For the Trainer of Hugging Face's transformers.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[FairleadCallback()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))

The checkpoint of a stop is one of the Trainer's own; `get_last_checkpoint` is in `transformers.trainer_utils`.
"""

from __future__ import annotations

import time
from typing import Any

from fairlead import job

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as absent:
    if absent.name != "transformers":
        raise
    raise ImportError("fairlead.job.huggingface needs transformers, which is not installed") from None


class FairleadCallback(TrainerCallback):  # type: ignore[misc]
    """Reports epochs, and writes a checkpoint and stops when Fairlead asks for it, after the step under way."""

    def __init__(self) -> None:
        self._is_stopping = False
        self._began_at_s = 0.0
        self._began_at_step = 0
        self._done_before = 0

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock by which the epoch's length is reported."""
        self._began_at_s, self._began_at_step = time.monotonic(), state.global_step
        self._done_before = _whole(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Stop here if asked, unless this was the last step anyway."""
        if state.global_step < state.max_steps and job.all_should_stop():
            self._is_stopping = True
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report, unless the Trainer calls this because the epoch was cut short."""
        done = _whole(state) if control.should_training_stop else round(state.epoch)
        if done <= self._done_before:
            return
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        samples = (state.global_step - self._began_at_step) * batch
        job.epoch(
            done,
            of=None if args.max_steps > 0 else int(state.num_train_epochs),  # by steps: it may end within an epoch
            loss=next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), None),
            samples_per_s=samples / max(time.monotonic() - self._began_at_s, 1e-9),
            batch=batch,
        )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """All epochs are done, or another callback found that it is enough."""
        if not self._is_stopping:
            job.finished()


def _whole(state: Any) -> int:
    """The epochs that are done; the Trainer counts in fractions of one."""
    return int((state.epoch or 0) + 1e-6)

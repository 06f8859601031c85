"""For training code and services that run under Fairlead.

    from fairlead import job

    for done in range(load_checkpoint(), epochs):
        train_one_epoch()
        save_checkpoint(done + 1)
        job.epoch(done + 1, of=epochs, loss=loss)  # so many epochs are done, in all of the job's attempts
        if job.should_stop():                      # Fairlead wants the GPUs; it starts the job again, maybe on others
            break

Outside Fairlead the same code runs as it is, and reports go nowhere. None of the calls raises: whatever becomes of a
report, the training goes on. Only the standard library is imported, so this costs a few milliseconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fairlead.job.place import attempt_of, gpus_of, id_of, is_fake_in
from fairlead.job.progress import epoch, finished
from fairlead.job.service import report as latency
from fairlead.job.stopping import all_should_stop, should_stop

if TYPE_CHECKING:
    id: int | None
    """The job's number; None outside Fairlead."""
    attempt: int | None
    """Which start of the job this is, from 1 on; None outside Fairlead."""
    gpus: int
    """How many GPUs the job has, all nodes together. Outside Fairlead those that are visible, or else 1."""
    is_fake: bool
    """Whether the GPUs are made up, so that there is nothing to compute on."""
else:
    _FACTS = {"id": id_of, "attempt": attempt_of, "gpus": gpus_of, "is_fake": is_fake_in}

    def __getattr__(name: str) -> int | bool | None:
        if name in _FACTS:
            return _FACTS[name](os.environ)
        raise AttributeError(f"module 'fairlead.job' has no attribute {name!r}")


__all__ = [
    "all_should_stop",
    "attempt",
    "epoch",
    "finished",
    "gpus",
    "id",
    "is_fake",
    "latency",
    "should_stop",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

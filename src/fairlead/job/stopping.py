"""How a job learns that it should write its checkpoint and leave: SIGTERM, or a file that appears."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from fairlead.job.place import STOP

_LOOK_EVERY_S = 0.5
_SAME_REQUEST_S = 1.0
"""SIGTERM goes to the whole process group, and launchers in it pass it on: two that come together are one request."""


class StopRequest:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self._was_asked = False
        self._signalled_at_s: float | None = None
        self._looked_at_s = float("-inf")
        self._earlier: Any = signal.SIG_DFL
        self._pid: int | None = None

    def is_made(self) -> bool:
        """Look; the first look in the main thread starts listening to SIGTERM."""
        self._listen()
        if not self._was_asked:
            self._look()
        return self._was_asked

    def _listen(self) -> None:
        pid = os.getpid()
        if pid == self._pid or threading.current_thread() is not threading.main_thread():
            return
        found = signal.getsignal(signal.SIGTERM)
        if found is None:  # set by a C library: it could be neither called nor put back
            return
        if found != self._on_signal:  # a forked process has it from its parent
            self._earlier = found
            signal.signal(signal.SIGTERM, self._on_signal)
        self._pid = pid

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        path = os.environ.get(STOP)
        if path and os.path.exists(path):  # never set to False: a signal may come in between
            self._was_asked = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._signalled_at_s is None:
            self._signalled_at_s = now_s
        self._was_asked = True
        is_ours = os.getpid() == self._pid
        is_first = now_s - self._signalled_at_s < _SAME_REQUEST_S
        if callable(self._earlier):
            self._earlier(number, frame)
        elif self._earlier == signal.SIG_DFL and not (is_ours and is_first):
            # Asked again, or a forked helper (a data loader's worker) that nobody taught to stop: end, as usual.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)


_request = StopRequest()


def should_stop() -> bool:
    """Whether to write a checkpoint and leave now; the job is started again, maybe on other GPUs.

    From the first call on, SIGTERM no longer ends the process but makes this True; a second one ends it, and a handler
    that was there before is called as ever. Code that never calls this is ended by SIGTERM as usual. It costs less than
    a microsecond: call it after each step. Each process decides by itself; see `all_should_stop`.
    """
    return _request.is_made()


def all_should_stop() -> bool:
    """Like `should_stop`, and every process of a `torch.distributed` job gets the same answer: one asked, all stop.

    Without that one process leaves after step 10 and another waits for it in step 11. All processes must call it, at
    the same step; it costs one small all-reduce.
    """
    stop = should_stop()
    torch = sys.modules.get("torch")  # who has not imported it has not started its processes with it either
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return stop
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    votes = torch.tensor([int(stop)], device=device)
    torch.distributed.all_reduce(votes, op=torch.distributed.ReduceOp.MAX)
    return bool(votes.item())

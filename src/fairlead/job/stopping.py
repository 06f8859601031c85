"""How a job learns that it should write its checkpoint and end: SIGTERM, or a file that appears.

A process that got SIGTERM or SIGINT also says so in its report: it may then end with status 0 half way, and nobody else
knows of a signal that did not come from Fairlead.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from fairlead.job import reports
from fairlead.job.place import REPORT, STOP, processes_of

_LOOK_EVERY_S = 0.5
_SAME_REQUEST_S = 1.0
"""SIGTERM goes to the whole process group, and launchers in it pass it on: two that come together are one request."""


class StopRequest:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self._was_asked = False
        self._has_told = False
        self._signalled_at_s: float | None = None
        self._looked_at_s = float("-inf")
        self._earlier: dict[int, Any] = {}
        """The handlers that were there before ours."""
        self._pid: int | None = None
        """The process that asks for itself whether to stop."""
        self._noting_pid: int | None = None
        """The process that tells of its signals; one forked from it, like a data loader's worker, does not."""

    def is_made(self) -> bool:
        """Look; the first look in the main thread starts listening to SIGTERM."""
        if os.getpid() != self._pid and self._can_listen():
            self._listen(signal.SIGTERM)
            self._pid = os.getpid()
            self.note()
        if not self._was_asked:
            self._look()
        return self._was_asked

    def note(self) -> None:
        """Have signals told that a handler of the program's own takes; to others nothing is changed."""
        if REPORT not in os.environ or not self._can_listen():
            return
        if self._noting_pid != os.getpid():
            self._noting_pid, self._has_told = os.getpid(), False
        for number in (signal.SIGTERM, signal.SIGINT):
            if callable(signal.getsignal(number)):
                self._listen(number)

    def _can_listen(self) -> bool:
        return threading.current_thread() is threading.main_thread()

    def _listen(self, number: int) -> None:
        found = signal.getsignal(number)
        # None was set by a C library: it could be neither called nor put back. A forked process has ours already.
        if found is not None and found != self._on_signal:
            self._earlier[number] = found
            signal.signal(number, self._on_signal)

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
        is_ours = os.getpid() == self._pid
        is_first = now_s - self._signalled_at_s < _SAME_REQUEST_S
        earlier = self._earlier.get(number, signal.SIG_DFL)
        self._was_asked = self._was_asked or number == signal.SIGTERM
        self._tell()
        if callable(earlier):
            earlier(number, frame)
        elif earlier == signal.SIG_DFL and not (is_ours and is_first):
            # Asked again, or a forked helper (a data loader's worker) that nobody taught to stop: end, as usual.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _tell(self) -> None:
        if self._noting_pid == os.getpid() and not self._has_told:
            self._has_told = True
            reports.append([{"asked_to_stop": True, "pid": os.getpid(), "processes": processes_of(os.environ)}])


_request = StopRequest()


def should_stop() -> bool:
    """Whether to write a checkpoint and end now; the job is started again, maybe on other GPUs.

    From the first call on, SIGTERM no longer ends the process but makes this True; a second one ends it, and a handler
    that was there before is called as ever. Code that never calls this is ended by SIGTERM as usual. It costs less than
    a microsecond: call it after each step. Each process decides by itself; see `all_should_stop`.
    """
    return _request.is_made()


def note_signals() -> None:
    """From now on, report SIGTERM and SIGINT where the program handles them itself."""
    _request.note()


def all_should_stop() -> bool:
    """Like `should_stop`, and every process of a `torch.distributed` job gets the same answer: one asked, all stop.

    Without that one process ends after step 10 and another waits for it in step 11. All processes must call it, at
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

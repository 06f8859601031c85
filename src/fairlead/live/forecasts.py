"""When jobs are expected to start and end, and what-ifs: asked of a simulator in a process of its own.

The process is started with the first question and ends when nobody asks any more (`whatif_worker`). One question at a
time; one that takes too long costs that process its life, and the next question gets another.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fairlead.errors import FairleadError, InputError, RunError

LONGEST_S = 120.0
"""For one answer: less than the server waits for."""
MOST_WAITING = 8
"""Questions that wait for the one that is being answered."""
_WORKER = (sys.executable, "-m", "fairlead.whatif_worker")
_AGAIN_S, _TIMES = 5.0, 20.0
"""A prediction is made anew after this, or after so many times what it took of a core."""


class BusyError(FairleadError):
    """Others ask too; try again."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Of one job, as time of day; None is never, or not known."""

    start_at_s: float | None
    end_at_s: float | None
    is_guess: bool


class Simulator:
    """A process that answers questions, and whoever waits for it. Calls may come from any thread."""

    def __init__(self, worker: Sequence[str] = _WORKER, *, longest_s: float = LONGEST_S) -> None:
        self._command, self._longest_s = worker, longest_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simulator")
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._waiting = 0
        self._is_closed = False

    def ask(self, question: Mapping[str, Any]) -> Future[dict[str, Any]]:
        """The answer to come; an `InputError` where the question makes no sense, `BusyError` where too many ask."""
        with self._lock:
            if self._waiting > MOST_WAITING:
                raise BusyError(f"{self._waiting} questions wait for the simulator", hint="try again in a moment")
            self._waiting += 1
        try:
            return self._thread.submit(self._answer, question)
        except RuntimeError:
            raise BusyError("the controller is being stopped") from None

    def close(self) -> None:
        """Answer no more questions, and end the process that simulates."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_closed, process = True, self._process
        if process is not None:
            process.kill()
        self._thread.shutdown(wait=True)
        self._end()

    # ---- in its thread ----

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            told = self._told(json.dumps(question).encode() + b"\n")
        finally:
            with self._lock:
                self._waiting -= 1
        if "error" in told:
            raise InputError(told["error"], hint=told["hint"])
        answer: dict[str, Any] = told["answer"]
        return answer

    def _told(self, line: bytes) -> dict[str, Any]:
        for _ in range(2):  # one that nobody had asked for long may end just now
            process, is_late = self._running(), threading.Event()
            timer = threading.Timer(self._longest_s, lambda p=process, late=is_late: (late.set(), p.kill()))
            timer.start()
            said = _exchange(process, line)
            timer.cancel()
            if said.endswith(b"\n"):
                told: dict[str, Any] = json.loads(said)
                return told
            self._end()
            if is_late.is_set():
                raise RunError(f"the simulation has taken longer than {self._longest_s:g} s, and was stopped")
        raise RunError("the simulator has ended without an answer", hint="the controller's log may say why")

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and process.poll() is None:
            return process
        self._end()
        with self._lock:
            if self._is_closed:
                raise RunError("the controller is being stopped")
            made = self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return made

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError, ValueError):
                process.communicate()


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Its answer, a whole line; less where it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()
    return b""


class Forecasts:
    """Of one controller: what-ifs as they are asked, and a prediction that is made anew now and then."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.what_ifs, self.predictions = Simulator(), Simulator()
        """Apart, so that no question waits for a prediction that nobody has asked for."""
        self._clock = clock
        self._lock = threading.Lock()
        self.expected: Mapping[int, Expected] = {}
        """By job, as of the last prediction."""
        self.predicted_at_s: float | None = None
        """When that was made, as time of day."""
        self.made_of: object = None
        """What the caller says that it was made of."""
        self._is_under_way = False
        self._cpu_s = 0.0
        self._due_s = float("-inf")

    def try_begin(self) -> bool:
        """Whether to make a prediction now: none is under way, and the last was a while ago. `finish` must follow."""
        with self._lock:
            if self._is_under_way or self._clock() < self._due_s:
                return False
            self._is_under_way = True
            return True

    def keep(self, told: dict[str, Any], at_s: float, made_of: object) -> None:
        """What was predicted; what the snapshot calls now is `at_s` as time of day."""
        off_s = at_s - told["now_s"]
        self.expected = {
            job["id"]: Expected(_moved(job["start_s"], off_s), _moved(job["end_s"], off_s), job["is_guess"])
            for job in told["jobs"]
        }
        self.predicted_at_s, self.made_of, self._cpu_s = at_s, made_of, told["cpu_s"]

    def finish(self) -> None:
        """The next one may come after a while, the longer the more the last took."""
        with self._lock:
            self._is_under_way, self._due_s = False, self._clock() + max(_AGAIN_S, _TIMES * self._cpu_s)

    def close(self) -> None:
        """Answer no more questions, and end the processes that simulate."""
        self.what_ifs.close()
        self.predictions.close()


def _moved(moment_s: float | None, by_s: float) -> float | None:
    return None if moment_s is None else moment_s + by_s

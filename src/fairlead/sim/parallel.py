"""Many runs in parallel processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairlead.errors import RunError
from fairlead.sim.result import Result
from fairlead.sim.run import Progress, Run

_POLL_S = 0.1


def run_all(runs: Sequence[Run], *, workers: int | None = None, progress: Progress | None = None) -> list[Result]:
    """The results of all runs, in their order.

    `workers` is the number of processes: as many as there are runs or cores, whichever is fewer, unless given; 1 stays
    in this process. Progress counts the jobs of all runs together.
    """
    workers = min(workers or os.cpu_count() or 1, len(runs))
    return _run_in_turn(runs, progress) if workers <= 1 else _run_in_parallel(runs, workers, progress)


def _run_in_turn(runs: Sequence[Run], progress: Progress | None) -> list[Result]:
    results = []
    total, before = sum(len(run.trace) for run in runs), 0
    for run in runs:

        def report(done: int, _of: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        results.append(run.result(report))
        before += len(run.trace)
    return results


# In a worker process: all runs and the counters of finished jobs, one per run, shared with the parent.
_worker: tuple[Sequence[Run], Any] | None = None


def _start_worker(runs: Path, finished: Any) -> None:
    global _worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with runs.open("rb") as file:
        _worker = pickle.load(file), finished


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for ever on pipes of which it holds both ends itself."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_in_worker(number: int) -> Result:
    assert _worker is not None
    runs, finished = _worker

    def report(done: int, _of: int) -> None:
        finished[number] = done

    return runs[number].result(report)


def _run_in_parallel(runs: Sequence[Run], workers: int, progress: Progress | None) -> list[Result]:
    # Not fork: polars has threads, and a lock that one of them held stays held in the child.
    context = multiprocessing.get_context("spawn")
    finished = context.RawArray(ctypes.c_longlong, len(runs))
    with TemporaryDirectory(prefix="fairlead-") as folder:
        # By file, not as arguments: those go through a pipe, which hangs where a worker dies before it has read them,
        # and starts the next worker only when this one has.
        # In one pickle, a trace that several runs share is there once.
        shared = Path(folder) / "runs.pickle"
        shared.write_bytes(pickle.dumps(list(runs), protocol=pickle.HIGHEST_PROTOCOL))
        pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(shared, finished))
        try:
            with _interrupts_held():
                futures = [pool.submit(_run_in_worker, number) for number in range(len(runs))]
            _follow(futures, finished, sum(len(run.trace) for run in runs), progress)
        except BrokenProcessPool as broken:
            raise RunError("a worker process died", hint=_DIED_HINT) from broken
        finally:
            _stop(pool)
    return [future.result() for future in futures]


_DIED_HINT = (
    "it may have run out of memory: try fewer workers; in a script, call compare under `if __name__ == '__main__':`"
)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Start processes that never see a Ctrl-C, which goes to all of a terminal's; one that comes meanwhile waits.

    Blocked in this thread is blocked in the processes that it starts. Here another thread (polars has some) may still
    take the signal, and the main thread would be interrupted halfway through a start; so it is noted and raised after.
    """
    resource_tracker.ensure_running()  # started on the way it would unblock what it finds blocked
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if main:
            signal.signal(signal.SIGINT, handler)
    if came:
        raise KeyboardInterrupt


def _follow(futures: list[Future[Result]], finished: Any, total: int, progress: Progress | None) -> None:
    """Wait until all are done or the first has failed, telling how far they are together."""
    left = set(futures)
    while left:
        ended, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        for future in ended:
            future.result()
        if progress is not None:
            progress(sum(finished), total)


def _stop(pool: ProcessPoolExecutor) -> None:
    """Leave no worker behind: after a failure or an interrupt a simulation would otherwise run to its end."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()

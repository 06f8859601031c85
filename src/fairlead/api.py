"""Fairlead from Python: `simulate` one policy, `compare` several in parallel.

Both take what the command line takes, and raise `InputError` where that would exit with status 2.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairlead import traces
from fairlead.errors import InputError, RunError
from fairlead.model.cluster import Cluster
from fairlead.model.files import load_cluster, load_variability
from fairlead.policy import registry
from fairlead.policy.stack import Stack
from fairlead.sim.failures import Failures
from fairlead.sim.feasible import check_feasible
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.traces import Trace

Progress = Callable[[int, int], None]
"""Called with the jobs finished so far and the jobs in all."""

DEFAULT_CLUSTER = "16x4"
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class _Experiment:
    """All but the policy: what every run of a comparison shares. It is sent to worker processes."""

    trace: Trace
    cluster: Cluster
    round_s: float | None
    seed: int
    locality: float | None
    restart_s: float | None
    failures: Failures | None

    def run(self, policy: str, progress: Progress | None = None) -> Result:
        """One simulation."""
        simulation = Simulation(
            self.trace, self.cluster, self._stack(policy), seed=self.seed, locality=self.locality,
            restart_s=self.restart_s, failures=self.failures, progress=progress,
        )  # fmt: skip
        return simulation.run()

    def check(self, policy: str) -> None:
        """Raise what is wrong with a policy, or with the jobs that it would never run."""
        check_feasible(self.trace, self.cluster, self._stack(policy))

    def _stack(self, policy: str) -> Stack:
        return registry.build(policy, round_s=self.round_s, seed=self.seed)


def simulate(
    trace: str | Path | Trace | None = None,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    policy: str = "fifo",
    *,
    round_s: float | None = None,
    variability: str | Path | None = None,
    locality: float | None = None,
    seed: int = 0,
    restart_s: float | None = None,
    mtbf_h: float | None = None,
    repair_h: float | None = None,
    skip_bad_rows: bool = False,
    wrap: bool = True,
    progress: Progress | None = None,
) -> Result:
    """Replay a trace on a cluster under one policy.

    `trace` is a file, `synthetic:NAME`, a `Trace`, or None for the built-in demo; `cluster` is NODESxGPUS[:model], a
    TOML file or a `Cluster`; `policy` is a preset or `stage=name` pairs. `round_s` decides only every so many seconds;
    without it the policy decides at every event. `variability` is a file of GPU scores, `locality` the slowdown of jobs
    that span nodes, `restart_s` the cost of each preemption or move (these two override the jobs' profiles). `mtbf_h`
    lets every node fail, that long between failures on average, and come back after `repair_h` (1 h unless given). A
    trace that wraps (Sia-Philly) goes on arriving until its measured jobs are done, unless `wrap` is off.
    """
    experiment = _prepare(
        trace, cluster, round_s=round_s, variability=variability, locality=locality, seed=seed, restart_s=restart_s,
        mtbf_h=mtbf_h, repair_h=repair_h, skip_bad_rows=skip_bad_rows, wrap=wrap,
    )  # fmt: skip
    return experiment.run(policy, progress)


def compare(
    policies: Sequence[str],
    trace: str | Path | Trace | None = None,
    cluster: str | Path | Cluster = DEFAULT_CLUSTER,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Result]:
    """Replay the same trace under each policy, in parallel processes; the results are in the order of `policies`.

    `options` are those of `simulate`. `workers` is the number of processes: as many as there are policies or cores,
    whichever is fewer, unless given; 1 stays in this process. In a script, call it under `if __name__ == "__main__":`.
    """
    if isinstance(policies, str) or not policies:
        raise InputError(f"compare needs a list of policies, found {policies!r}", hint="for example ['fifo', 'srtf']")
    for number, policy in enumerate(policies):
        if policy in policies[:number]:
            raise InputError(f"policy {policy!r} is given twice")
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1")
    experiment = _prepare(trace, cluster, **options)
    for policy in policies:  # a misspelt name should not cost the time of the others
        experiment.check(policy)
    workers = min(workers or os.cpu_count() or 1, len(policies))
    if workers == 1:
        return _run_in_turn(experiment, policies, progress)
    return _run_in_parallel(experiment, policies, workers, progress)


def _prepare(
    trace: str | Path | Trace | None,
    cluster: str | Path | Cluster,
    *,
    round_s: float | None = None,
    variability: str | Path | None = None,
    locality: float | None = None,
    seed: int = 0,
    restart_s: float | None = None,
    mtbf_h: float | None = None,
    repair_h: float | None = None,
    skip_bad_rows: bool = False,
    wrap: bool = True,
) -> _Experiment:
    """Check the values first, as that is cheap, then read the files."""
    _check("round_s", round_s, above=0.0)
    _check("locality", locality, least=1.0)
    _check("restart_s", restart_s, least=0.0)
    _check("seed", seed, least=0)
    _check("mtbf_h", mtbf_h, above=0.0)
    _check("repair_h", repair_h, least=0.0)
    if repair_h is not None and mtbf_h is None:
        raise InputError(
            f"repair_h is {repair_h:g}, but no node ever fails without mtbf_h", hint="give mtbf_h, or drop repair_h"
        )
    if not isinstance(cluster, Cluster):
        cluster = load_cluster(str(cluster))
    if variability is not None:
        cluster = cluster.with_variability(load_variability(Path(variability), cluster))
    failures = None
    if mtbf_h is not None:
        failures = Failures(mtbf_h) if repair_h is None else Failures(mtbf_h, repair_h)
    return _Experiment(_read(trace, skip_bad_rows, wrap), cluster, round_s, seed, locality, restart_s, failures)


def _read(trace: str | Path | Trace | None, skip_bad_rows: bool, wrap: bool) -> Trace:
    if isinstance(trace, Trace):
        return trace
    if trace is None:
        return traces.builtin_demo()
    return traces.load(str(trace), skip_bad_rows=skip_bad_rows, wrap=wrap)


def _check(name: str, value: float | None, *, least: float | None = None, above: float | None = None) -> None:
    """A finite number within its bound; `nan` is within none."""
    if value is None:
        return
    if above is not None:
        fits, bound = value > above, f"above {above:g}"
    else:
        fits, bound = least is not None and value >= least, f"at least {least:g}"
    if not fits or not math.isfinite(value):
        raise InputError(f"{name} is {value:g}; it must be a finite number, {bound}")


def _run_in_turn(experiment: _Experiment, policies: Sequence[str], progress: Progress | None) -> list[Result]:
    results = []
    total = len(experiment.trace) * len(policies)
    for number, policy in enumerate(policies):
        before = number * len(experiment.trace)

        def report(done: int, _of: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        results.append(experiment.run(policy, report))
    return results


# In a worker process: the experiment and the counters of finished jobs, one per policy, shared with the parent.
_worker: tuple[_Experiment, Any] | None = None


def _start_worker(experiment: Path, finished: Any) -> None:
    global _worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with experiment.open("rb") as file:
        _worker = pickle.load(file), finished


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for ever on pipes of which it holds both ends itself."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_in_worker(number: int, policy: str) -> Result:
    assert _worker is not None
    experiment, finished = _worker

    def report(done: int, _of: int) -> None:
        finished[number] = done

    return experiment.run(policy, report)


def _run_in_parallel(
    experiment: _Experiment, policies: Sequence[str], workers: int, progress: Progress | None
) -> list[Result]:
    # Not fork: polars has threads, and a lock that one of them held stays held in the child.
    context = multiprocessing.get_context("spawn")
    finished = context.RawArray(ctypes.c_longlong, len(policies))
    with TemporaryDirectory(prefix="fairlead-") as folder:
        # By file, not as arguments: those go through a pipe, which hangs where a worker dies before it has read them,
        # and starts the next worker only when this one has.
        shared = Path(folder) / "experiment.pickle"
        shared.write_bytes(pickle.dumps(experiment, protocol=pickle.HIGHEST_PROTOCOL))
        pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(shared, finished))
        try:
            with _interrupts_held():
                runs = [pool.submit(_run_in_worker, number, policy) for number, policy in enumerate(policies)]
            _follow(runs, finished, len(experiment.trace), progress)
        except BrokenProcessPool as broken:
            raise RunError("a worker process of the comparison died", hint=_DIED_HINT) from broken
        finally:
            _stop(pool)
    return [run.result() for run in runs]


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


def _follow(runs: list[Future[Result]], finished: Any, jobs: int, progress: Progress | None) -> None:
    """Wait until all are done or the first has failed, telling how far they are together."""
    left = set(runs)
    while left:
        ended, left = wait(left, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
        for run in ended:
            run.result()
        if progress is not None:
            progress(sum(finished), jobs * len(runs))


def _stop(pool: ProcessPoolExecutor) -> None:
    """Leave no worker behind: after a failure or an interrupt a simulation would otherwise run to its end."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join()

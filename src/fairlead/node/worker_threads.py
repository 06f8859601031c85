"""Work that may take long, done by threads, with its outcome dealt with by whoever asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class WorkerThreads:
    """A few threads. Only their owner's thread calls `do` and `settle`; `call` tells it that there is something."""

    def __init__(self, count: int, call: Callable[[], None] = lambda: None) -> None:
        self._call = call
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="agent")
        self._doing: list[tuple[Future[Any], Callable[[Future[Any]], None]]] = []

    def do(self, work: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Have a thread do it; `then` gets the outcome in a later `settle`."""
        future = self._pool.submit(work)
        self._doing.append((future, then))
        future.add_done_callback(lambda done: self._call())

    def settle(self) -> None:
        """Deal with what is done. An error of one `then` leaves the others for the next time."""
        waiting, self._doing = self._doing, []
        while waiting:
            future, then = waiting.pop(0)
            if not future.done():
                self._doing.append((future, then))
                continue
            try:
                then(future)
            except BaseException:
                self._doing += waiting
                raise

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

"""Calls to the engine, carried out beside the loop: none is made twice at a time, and what failed is tried later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor

from fairlead.errors import FairleadError

log = logging.getLogger("fairlead")
AGAIN_S = 2.0
"""What could not be done is tried again after this."""
_AT_A_TIME = 8


class EngineCalls:
    """One call about one thing at a time; the same call not again for a while.

    Only a stop does not wait for a start, which takes as long as the slowest of its nodes: a node that is told of the
    stop first refuses the start.
    """

    def __init__(self, on_done: Callable[[], None], workers: Executor | None = None) -> None:
        self._on_done = on_done
        self._under_way: set[tuple[bool, str]] = set()
        """Whether it is a stop, and about what."""
        self._not_before_s: dict[tuple[str, str], float] = {}
        self._nodes: dict[str, frozenset[int]] = {}
        """Where starts under way may arrive, by what they are about."""
        self._workers = workers or ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="engine-call")

    def make(
        self,
        what: str,
        about: str,
        call: Callable[[], None],
        now_s: float,
        *,
        every_s: float = AGAIN_S,
        nodes: Iterable[int] = (),
    ) -> None:
        """Unless another one about the same is under way, or this was made a moment ago; `nodes` are where it goes."""
        call_about = what == "stop", about
        if call_about in self._under_way or self._not_before_s.get((what, about), 0.0) > now_s:
            return
        self._under_way.add(call_about)
        self._not_before_s[what, about] = now_s + every_s
        if nodes:
            self._nodes[about] = frozenset(nodes)

        def carry_out() -> None:
            try:
                call()
            except FairleadError as error:
                log.warning("cannot %s %s: %s", what, about, error.message)
            except Exception:
                log.exception("to %s %s failed", what, about)
            finally:
                if nodes:
                    self._nodes.pop(about, None)
                self._under_way.discard(call_about)
                self._on_done()

        self._workers.submit(carry_out)

    def is_under_way(self, about: str) -> bool:
        """Whether any call about this has been made and is not over."""
        return not self._under_way.isdisjoint({(True, about), (False, about)})

    @property
    def nodes_under_way(self) -> set[int]:
        """Nodes that a call under way may still reach."""
        return {node for nodes in tuple(self._nodes.values()) for node in nodes}

    def next_s(self, now_s: float) -> float:
        """When something may be tried again."""
        for name in [n for n, s in self._not_before_s.items() if s <= now_s]:
            del self._not_before_s[name]
        return min(self._not_before_s.values(), default=float("inf"))

    def close(self) -> None:
        """Let those under way finish, and make no more."""
        self._workers.shutdown(wait=True, cancel_futures=True)

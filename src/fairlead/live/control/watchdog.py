"""Has the policy decide, and interrupts one that does not come to an end.

The control loop's own thread decides: handing each decision to another thread costs two waits for the interpreter,
20 ms under load where the decision itself takes 0.2 ms. A second thread only looks at the clock, a few times within the
limit, and has the first raise once that is over. This ends a loop in Python at once, and a call into C as soon as it
returns; until then `trouble` says what the loop is stuck in.
"""

from __future__ import annotations

import ctypes
import threading
import time

from fairlead.errors import FairleadError
from fairlead.policy.plan import Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import View

_LOOKS = 4
"""Within the limit; so a policy may take longer than it by this part."""
_AGAIN_S = 1.0
"""A policy that has caught the interruption is interrupted again."""


class PolicyStuckError(FairleadError):
    """It has not decided in time."""


class _GiveUp(BaseException):
    """Raised within a policy that is to end; not an `Exception`, which it may well catch."""


class Watchdog:
    """One decision at a time, none longer than `limit_s`. The view and the stack of one that was are of no more use."""

    def __init__(self, limit_s: float) -> None:
        self.trouble = ""
        """What the policy that is being asked has not done in time; empty while it has."""
        self._limit_s = limit_s
        self._lock = threading.Lock()
        """Held to arm, to disarm and to interrupt: nobody is interrupted who is no longer deciding."""
        self._watcher: threading.Thread | None = None
        self._deciding: int | None = None
        """The thread that decides now."""
        self._spec = ""
        self._due_s = 0.0

    def decide(self, stack: Stack, view: View) -> Plan:
        """What the stack wants; `PolicyStuckError` where it does not say, or says it after it was interrupted."""
        stuck = PolicyStuckError(f"the policy {stack.spec} has not decided within {self._limit_s:g} s")
        is_late = False
        try:
            self._arm(stack.spec)
            try:
                plan = stack.decide(view)
            finally:
                is_late = self._disarm()
        except _GiveUp:
            self._disarm()  # again: it may have been raised on the way there
            raise stuck from None
        except BaseException as error:
            if is_late:
                raise stuck from None
            if isinstance(error, Exception):
                raise
            # One that wants to exit ends no thread of ours.
            raise RuntimeError(f"the policy raised {type(error).__name__}: {error}") from None
        if is_late:
            raise stuck
        return plan

    def _arm(self, spec: str) -> None:
        with self._lock:
            self._deciding, self._spec, self._due_s = threading.get_ident(), spec, time.monotonic() + self._limit_s
            if self._watcher is None:
                watcher = threading.Thread(target=self._watch, name="policy-watch", daemon=True)
                watcher.start()
                self._watcher = watcher

    def _disarm(self) -> bool:
        """Nobody is interrupted from here on, and what was raised and not delivered is taken back; whether it was late.

        An interruption may come while this runs, up to the moment when the lock is held.
        """
        while True:
            try:
                with self._lock:
                    was_late, self.trouble = bool(self.trouble), ""
                    if self._deciding is not None and was_late:
                        _interrupt(self._deciding, None)
                    self._deciding = None
                return was_late
            except _GiveUp:
                self.trouble = self.trouble or "interrupted"

    def _watch(self) -> None:
        """Look now and then, until nothing was decided for a while; the next decision starts another one."""
        while True:
            time.sleep(self._limit_s / _LOOKS)
            with self._lock:
                now_s = time.monotonic()
                if self._deciding is None and now_s > self._due_s:
                    self._watcher = None
                    return
                if self._deciding is not None and now_s >= self._due_s:
                    self.trouble = f"the policy {self._spec} has not decided within {self._limit_s:g} s"
                    self._due_s = now_s + _AGAIN_S
                    _interrupt(self._deciding, _GiveUp)


def _interrupt(thread: int, with_: type[BaseException] | None) -> None:
    """Have a thread raise this at its next step in Python; with None, not raise what it was to."""
    raised = None if with_ is None else ctypes.py_object(with_)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)

"""Asks the policy: when it is due, what to do with a plan that breaks a law, and with a policy that never answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from fairlead.errors import FairleadError
from fairlead.live.control.engine_calls import AGAIN_S
from fairlead.live.control.observations import Observations
from fairlead.live.control.watchdog import PolicyStuckError, Watchdog
from fairlead.live.control.working_state import WorkingState
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.states import Cause, State
from fairlead.policy.plan import Place, Plan
from fairlead.policy.stack import Stack

_MOST_AT_ONCE = 10_000
"""Decisions at one moment; more is a policy that never rests."""
_STUCK_S, _LONGEST_STUCK_S = 60.0, 3600.0
"""A policy that was stopped again is asked after this, twice as long each time, and after this at the longest."""


class Decisions:
    """One controller's; it outlives working states, so that a policy that is stuck is asked less and less often."""

    def __init__(self, observations: Observations, decide_s: float, new_stack: Callable[[], Stack]) -> None:
        self._observations, self._decide_s, self._new_stack = observations, decide_s, new_stack
        self.watchdog = Watchdog(decide_s)
        self.on_decision: Callable[[float], None] | None = None
        """Told how long each decision of the policy took."""
        self._trouble = ""
        self._stuck = 0
        """Decisions in a row that did not come to an end."""
        self._due_s = 0.0
        """The policy is not asked before."""

    @property
    def trouble(self) -> str:
        """Why the policy places nothing at present, also while it is stuck; empty while it decides in time."""
        return self.watchdog.trouble or self._trouble

    def next_s(self, work: WorkingState) -> float:
        """When the policy is asked next, unless something happens before."""
        return max(work.driver.next_s, self._due_s)

    def decide(self, work: WorkingState, now_s: float) -> bool:
        """Ask until it rests. False where it is stuck: then another working state is needed."""
        if self._due_s > now_s or not work.driver.is_due(now_s):
            return True
        began_s, times = time.monotonic(), 0
        while times < _MOST_AT_ONCE and time.monotonic() - began_s <= self._decide_s:
            if not self.decide_once(work, now_s):
                return False
            if self.next_s(work) > now_s:
                return True
            times += 1
        work.tell("policy-restless", about=f"it has decided {times} times at one moment")
        work.driver.put_off(now_s + AGAIN_S)
        return True

    def decide_once(self, work: WorkingState, now_s: float) -> bool:
        """Ask the policy. What it may not want is refused whole, and a new one is asked later: this one believes it.

        False where it did not come to an end.
        """
        began_s, is_stuck = time.perf_counter(), False
        self._observations.pay(now_s)  # for the nodes that were rented until now
        try:
            plan = work.driver.decide()
        except PolicyStuckError as error:
            self._put_off(work, error, now_s)
            is_stuck = True
        except FairleadError as error:
            work.tell("plan-refused", about=error.message)
            work.driver.put_off(now_s + AGAIN_S)
            work.driver.stack = self._new_stack()
            work.recovery.recall()
        else:
            self._stuck, self._trouble = 0, ""
            _note(work, plan)
        if self.on_decision is not None:
            self.on_decision(time.perf_counter() - began_s)
        return not is_stuck

    def _put_off(self, work: WorkingState, error: PolicyStuckError, now_s: float) -> None:
        """Where another view and another stack do not help, ask less and less often."""
        self._stuck += 1
        pause_s = AGAIN_S if self._stuck == 1 else min(_STUCK_S * 2.0 ** (self._stuck - 2), _LONGEST_STUCK_S)
        self._due_s = now_s + pause_s
        times = f", {self._stuck} times in a row" if self._stuck > 1 else ""
        self._trouble = f"{error.message}{times}; no job is placed until it does"
        work.tell("policy-stopped", about=f"{error.message}{times}; it is asked again in {pause_s:g} s")
        work.pending_writes.save()


def _note(work: WorkingState, plan: Plan) -> None:
    """Write down what a plan that was applied makes of jobs and nodes."""
    work.recovery.has_planned = True
    jobs, is_rented = work.driver.jobs, work.driver.view.cluster.rental is not None
    for job_id in plan.evict:
        work.lifecycle.change(jobs[job_id], Cause.PREEMPTED, "preempted")
    for place in plan.place:
        _note_place(work, jobs[place.job_id], place)
    for node in plan.sleep:
        work.tell("node-given-back" if is_rented else "node-asleep", node=node)
    for node in plan.wake:
        work.tell("node-rented" if is_rented else "node-waking", node=node)
    if plan.sleep or plan.wake:
        work.recovery.note_nodes()


def _note_place(work: WorkingState, job: LiveJob, place: Place) -> None:
    what = "placed"
    before = work.lifecycle.attempts.get(job.attempt)
    if before is not None and job.state is State.RUNNING:
        what = "moved" if len(before.gpus) == len(place.gpus) else "resized"
    names = ", ".join(map(work.driver.view.cluster.gpu_name, place.gpus))
    share = f", {place.sm_share:.0%} of the SMs" if place.sm_share < 1.0 else ""
    job.phase = "starting"
    work.lifecycle.change(job, Cause.PLACED, what, f"on {names}{', shared' * place.shared}{share}")

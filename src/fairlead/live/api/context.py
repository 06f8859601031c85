"""What the routes work with, and the ways from the event loop to the store and to the control loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Path, Request

from fairlead.live.api.answers import RETRY_S, Refusal
from fairlead.live.api.metrics import Metrics
from fairlead.live.api.updates import Updates
from fairlead.live.control.controller import Controller
from fairlead.live.forecasts import Forecasts
from fairlead.live.health import Health
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage.audit import Audit
from fairlead.live.storage.sessions import Sessions
from fairlead.live.storage.store import Store
from fairlead.live.storage.tokens import Identity, Tokens
from fairlead.live.usage import Usage

T = TypeVar("T")
LARGEST = 2**63 - 1
"""What the database can count to."""
_ANSWER_S = 10.0
"""The control loop answers within a turn; after this it has trouble."""

Admit = Callable[[JobRequest, str], JobRequest]
"""A user's request, as it is to be stored; an `InputError` refuses it."""
JobId = Annotated[int, Path(ge=1, le=LARGEST)]


class Answers:
    """The last few, by what was asked and of which version: many pages look at the same. For the event loop."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()

    def get(self, asked: tuple[Any, ...]) -> dict[str, Any] | None:
        """What was answered to the same question."""
        return self._kept.get(asked)

    def put(self, asked: tuple[Any, ...], answer: dict[str, Any]) -> None:
        """Keep it, in the place of the oldest."""
        self._kept[asked] = answer
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one controller."""

    controller: Controller
    store: Store
    tokens: Tokens
    sessions: Sessions
    metrics: Metrics
    health: Health
    audit: Audit
    updates: Updates
    usage: Usage
    forecasts: Forecasts
    config_view: Mapping[str, Any]
    admit: Admit
    readers: ThreadPoolExecutor
    """Whatever waits for the disk or for the engine is done there, so that the event loop never does."""
    token_life_s: float | None = None
    """Of new tokens; None: for ever."""

    waiting: Counter[str] = field(default_factory=Counter)
    """How many requests of each user wait for events; the event loop's."""

    streams: Counter[str] = field(default_factory=Counter)
    """How many pages of each user are open; likewise."""

    asking: Counter[str] = field(default_factory=Counter)
    """How many what-ifs of each user are being simulated; likewise."""

    tables: Answers = field(default_factory=Answers)
    """Parts of the table of jobs; likewise."""

    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """What is done beside the requests."""

    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the server is to stop: who waits for events need wait no longer."""

    def close(self) -> None:
        """When nothing is asked any more."""
        self.forecasts.close()
        self.readers.shutdown(wait=True, cancel_futures=True)

    async def read(self, question: Callable[..., T], *values: Any) -> T:
        """Ask the disk or the engine."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, question, *values)

    async def ask(self, question: Callable[[], T]) -> T:
        """Ask the control loop, between two of its turns."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                return cast(T, await settled(self.controller.ask(question)))
        except TimeoutError:
            trouble = self.controller.trouble or "it is busy"
            message = f"the control loop has not answered for {_ANSWER_S:g} s: {trouble}"
            raise Refusal(503, message, "try again in a moment", {"Retry-After": str(RETRY_S)}) from None

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it, whoever waits for it or not."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def job_row(self, job_id: int, who: Identity) -> sqlite3.Row:
        """A job that this caller may see; of others' jobs not even that they exist is told."""
        row = await self.read(self.store.job_row, job_id)
        if row is None or not (who.sees_all or row["user"] == who.user):
            raise Refusal(404, f"there is no job {job_id}", "fairlead jobs lists those that you can see")
        return row


async def settled(future: Future[T]) -> T:
    """Its value. Whoever stops waiting leaves it alone: its maker still has to settle it."""
    return await asyncio.shield(asyncio.wrap_future(future))


def context(request: Request) -> Context:
    """Of the app that was asked."""
    return cast(Context, request.app.state.context)


async def _context(request: Request) -> Context:
    return context(request)  # a coroutine, since others are called in threads


Here = Annotated[Context, Depends(_context)]

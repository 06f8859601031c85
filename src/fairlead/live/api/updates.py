"""What open pages follow: the cluster as rows with version numbers, so that each page is sent what it does not have.

One look a second serves all pages, and there is none while no page is open. A look that finds neither a commit nor a
new poll of the nodes costs microseconds. A page that was away for an hour names the last version that it has, and gets
the rows that have changed since; one that followed another process gets everything.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_core import to_json

from fairlead.errors import FairleadError
from fairlead.live.api.views import VERSION, summary
from fairlead.live.control.controller import Controller
from fairlead.live.control.node_states import gpu_states
from fairlead.live.engines.engine import Poll
from fairlead.live.health import Health
from fairlead.live.prices import usd_per_h
from fairlead.live.storage.store import Store
from fairlead.live.storage.tokens import Identity, Role

log = logging.getLogger("fairlead")
LOOK_S = 1.0
EVENTS_KEPT = 500
_FIRST_EVENTS = 50
"""That a new page gets."""
_CACHED = 64
_OPERATOR = Identity(0, "", Role.OPERATOR)

GpuRow = tuple[Any, ...]
"""State, utilisation in %, memory in MiB, watts, degrees, guard state, whether drained, jobs."""
Label = tuple[str, str, str]
"""A job's name, user and kind."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """How things stand; each part with the version in which it was last another."""

    version: int = 0
    cluster: Mapping[str, Any] = field(default_factory=dict)
    cluster_version: int = 0
    gpus: tuple[GpuRow, ...] = ()
    gpu_versions: tuple[int, ...] = ()
    labels: Mapping[int, tuple[int, Label]] = field(default_factory=dict)
    """Of the jobs on GPUs, with their versions."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    health: str = ""
    """The part of the summary's trouble that everybody may know."""
    summary_version: int = 0
    jobs: int = 0
    """Another number means that some job's row may be another."""
    events: tuple[Mapping[str, Any], ...] = ()
    last_event: int = 0


class Updates:
    """The state that pages follow. `refresh` may take a while and is for a thread; all else is the event loop's."""

    def __init__(self, controller: Controller, store: Store, health: Health) -> None:
        self._controller, self._store, self._health = controller, store, health
        self.epoch = secrets.token_hex(4)
        """Versions are counted anew in each process."""
        self.state = ClusterState()
        self.pages = 0
        """Open now."""
        self._commits = self._touches = 0
        """Counted by one thread each."""
        self._seen: tuple[Any, ...] = ()
        self._poll: Poll | None = None
        self._events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._news, self._looked = asyncio.Event(), asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._cache: dict[tuple[Any, ...], bytes | None] = {}
        before = store.database.on_commit
        store.database.on_commit = lambda took_s: self._committed(before, took_s)

    # ---- by pages ----

    @asynccontextmanager
    async def followed(self, refresh: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """As long as the block lasts a page is open; `refresh` runs the one below in a thread."""
        self.pages += 1
        try:
            if self._ticker is None:
                self._news, self._looked = asyncio.Event(), asyncio.Event()
                self._ticker = asyncio.get_running_loop().create_task(self._tick(refresh))
            await self._looked.wait()
            yield
        finally:
            self.pages -= 1

    async def changed(self, wait_s: float) -> None:
        """Until something has, but no longer than this."""
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            return

    def message(self, who: Identity, since: int, after_event: int) -> bytes | None:
        """What somebody does not have yet, as JSON; None where that is nothing."""
        key = (who.sees_all, "" if who.sees_all else who.user, since, after_event, self.state.version)
        if key not in self._cache:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[key] = self._message(who, since, after_event)
        return self._cache[key]

    async def _tick(self, refresh: Callable[[], Awaitable[bool]]) -> None:
        try:
            while self.pages:
                try:
                    is_new = await refresh()
                except FairleadError as error:  # a store that does not answer: pages are told by the health
                    log.warning("pages are not told what is new: %s", error.message)
                    is_new = False
                if is_new:
                    self._cache.clear()
                    news, self._news = self._news, asyncio.Event()
                    news.set()
                self._looked.set()
                await asyncio.sleep(LOOK_S)
        finally:
            self._ticker = None
            self._looked.set()

    def _message(self, who: Identity, since: int, after_event: int) -> bytes | None:
        state = self.state
        if state.version <= since:
            return None
        told: dict[str, Any] = {
            "epoch": self.epoch,
            "version": state.version,
            "now_at_s": round(time.time(), 3),
            "jobs": state.jobs,
        }
        if state.cluster_version > since:
            told["cluster"] = state.cluster
        told["gpus"] = [
            (number, *row)
            for number, (row, version) in enumerate(zip(state.gpus, state.gpu_versions, strict=True))
            if version > since
        ]
        told["labels"] = {
            job_id: label
            for job_id, (version, label) in state.labels.items()
            if version > since and (who.sees_all or label[1] == who.user)
        }
        if state.summary_version > since:
            told["summary"] = state.summary if who.sees_all else {**state.summary, "trouble": state.health}
        after = max(state.last_event - _FIRST_EVENTS, 0) if after_event < 0 else after_event
        events = [e for e in state.events if e["id"] > after and (who.sees_all or e["user"] == who.user)]
        told["events"] = [{name: value for name, value in e.items() if name != "user"} for e in events]
        told["last_event"] = state.last_event
        told["has_gap"] = bool(state.events) and after + 1 < state.events[0]["id"]
        return to_json(told, inf_nan_mode="null")

    # ---- in a thread ----

    def refresh(self) -> bool:
        """Look; whether anything has changed."""
        controller = self._controller
        poll, cluster, written = controller.poll, controller.cluster, (self._commits, self._touches)
        trouble = (controller.trouble, controller.policy_trouble, *self._health.reasons())
        seen = (written, trouble, len(cluster.nodes), cluster.gpus)
        if seen == self._seen and poll is self._poll:
            return False
        before, version = self.state, self.state.version + 1
        new = self._with_gpus(before, version)
        new = self._with_summary(new, version)
        new = self._with_events(new)
        about = _cluster(controller)
        if about != before.cluster:
            new = replace(new, cluster=about, cluster_version=version)
        if self._seen[:1] != (written,):
            new = replace(new, jobs=new.jobs + 1)
        self._seen, self._poll = seen, poll
        if new == before:
            return False
        self.state = replace(new, version=version)
        return True

    def touch(self) -> None:
        """What is told of jobs is another, though nothing was written: a prediction has come in."""
        self._touches += 1

    def _committed(self, before: Callable[[float], None] | None, took_s: float) -> None:
        self._commits += 1
        if before is not None:
            before(took_s)

    def _with_gpus(self, before: ClusterState, version: int) -> ClusterState:
        rows = _gpu_rows(self._controller)
        if len(rows) != len(before.gpus):
            versions = (version,) * len(rows)
        else:
            pairs = zip(rows, before.gpus, before.gpu_versions, strict=True)
            versions = tuple(old if row == was else version for row, was, old in pairs)
        labels: dict[int, tuple[int, Label]] = {}
        for job_id in {job_id for row in rows for job_id in row[-1]}:
            label = self._label(job_id)
            if label is not None:
                was = before.labels.get(job_id)
                labels[job_id] = was if was is not None and was[1] == label else (version, label)
        return replace(before, gpus=rows, gpu_versions=versions, labels=labels)

    def _label(self, job_id: int) -> Label | None:
        job = self._controller.driver.jobs.get(job_id)
        return None if job is None else (job.job.name, job.user, job.job.kind)

    def _with_summary(self, before: ClusterState, version: int) -> ClusterState:
        told = summary(self._controller, self._store, self._health, _OPERATOR)
        del told["now_s"]
        told["cost_usd_per_h"] = usd_per_h(self._controller)
        health = "; ".join(self._health.reasons())
        if (told, health) == (before.summary, before.health):
            return before
        return replace(before, summary=told, health=health, summary_version=version)

    def _with_events(self, before: ClusterState) -> ClusterState:
        newest = self._store.last_event()
        if newest == before.last_event:
            return before
        after = max(before.last_event, newest - EVENTS_KEPT)
        sql = (
            "SELECT e.id, e.at_s, e.what, e.job_id, e.node, e.about, j.user FROM events e"
            " LEFT JOIN jobs j ON j.id = e.job_id WHERE e.id > ? AND e.id <= ? ORDER BY e.id"
        )
        self._events.extend(dict(row) for row in self._store.database.read(sql, (after, newest)))
        return replace(before, events=tuple(self._events), last_event=newest)


def _cluster(controller: Controller) -> dict[str, Any]:
    """The part of the picture that seldom changes: nodes, GPUs, policy."""
    cluster = controller.cluster
    nodes = [
        {
            "name": node.name,
            "first": cluster.first_gpu[number],
            "gpus": node.gpus,
            "model": node.gpu_model.name,
            "memory_mib": node.gpu_model.memory_mib,
            "peak_w": node.gpu_model.peak_w,
            "price_usd_per_h": node.gpu_model.price_usd_per_h or None,
        }
        for number, node in enumerate(cluster.nodes)
    ]
    return {
        "name": cluster.describe(),
        "nodes": nodes,
        "is_fake": controller.engine.is_fake,
        "policy": controller.driver.stack.spec,
        "version": VERSION,
    }


def _gpu_rows(controller: Controller) -> tuple[GpuRow, ...]:
    """Rounded, so that what nobody could see the difference of is no change."""
    states, readings, drained = gpu_states(controller), controller.poll.readings, controller.drained
    on_gpu = controller.driver.view.on_gpu
    rows: list[GpuRow] = []
    for gpu, state in enumerate(states):
        read, jobs = readings.get(gpu), tuple(on_gpu[gpu])
        if read is None:
            rows.append((state, None, None, None, None, "", gpu in drained, jobs))
            continue
        busy = None if read.utilisation_frac is None else round(100.0 * read.utilisation_frac)
        metered = (_whole(read.memory_used_mib), _whole(read.power_w), _whole(read.temperature_c))
        rows.append((state, busy, *metered, read.guard_state, gpu in drained, jobs))
    return tuple(rows)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)

"""The engine of this machine: its own GPUs, or made-up ones on as many made-up nodes as you like.

Every node is an agent process of its own that outlives the controller. One that died is started again, and its jobs
with it are none the worse: while it is away its node counts as unreachable.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError, InputError
from fairlead.live.engine import (
    AttemptState,
    AttemptStatus,
    EngineError,
    GpuReading,
    Key,
    NodeEvent,
    Poll,
    StartOrder,
    Stream,
)
from fairlead.live.engines import parts as joining
from fairlead.live.engines.agents import NO_EVENTS, AgentAwayError, AgentClient, Status, Watcher
from fairlead.live.engines.sites import Site, bring, end, fake_sites, real_site
from fairlead.model.cluster import DEFAULT_NODE_WAKE_S
from fairlead.node import server

_PART_GRACE_S = 30.0
"""For the parts of an attempt that have lost one of theirs."""
_END_S = 30.0


class LocalEngine:
    """`folder` keeps what survives: jobs, logs, agents' sockets. The same folder is the same engine again."""

    def __init__(
        self,
        folder: Path,
        *,
        fake_gpus: int = 0,
        fake_nodes: int = 1,
        gpu_model: str = "H200",
        wake_s: float = DEFAULT_NODE_WAKE_S,
        guard: Mapping[str, Any] | None = None,
    ) -> None:
        """`fake_gpus` on each of `fake_nodes`; `guard` holds settings that differ from the guard's own."""
        common = ("--guard", json.dumps(dict(guard or {}), sort_keys=True))
        if fake_gpus:
            self.cluster, sites = fake_sites(folder, fake_gpus, fake_nodes, gpu_model, wake_s, common)
        else:
            self.cluster, sites = real_site(folder, common)
        self.is_fake = bool(fake_gpus)
        self._sites = sites
        self._gpu_of = {self.cluster.gpu_uuid(gpu): gpu for gpu in range(self.cluster.gpus)}
        self._on_change: Callable[[], None] | None = None
        self._told_events = dict.fromkeys(range(len(sites)), 0)
        self._lock = threading.Lock()
        self._is_closing = False
        self._barred: dict[Key, float] = {}
        """Attempts that nobody knew when they were stopped, and when that was."""
        self._watchers = [self._watcher(site) for site in sites]
        try:
            with ThreadPoolExecutor(len(sites)) as pool:
                list(pool.map(bring, sites))
            for watcher in self._watchers:
                watcher.start()
        except FairleadError:
            self.close()
            raise

    # ---- the seam ----

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this, from some thread, whenever a poll would tell something new that should be acted on."""
        self._on_change = on_change

    def poll(self) -> Poll:
        """How everything stands now."""
        with self._lock:
            told = {}
            for node in range(len(self._sites)):
                with contextlib.suppress(AgentAwayError):
                    told[node] = self._ask(node, self._told_events[node])
            events = tuple(event for node, status in told.items() for event in self._events(node, status))
        unreachable = frozenset(node for node in range(len(self._sites)) if node not in told)
        attempts = joining.grouped({node: status["attempts"] for node, status in told.items()})
        readings = [self._reading(found) for status in told.values() for found in status["readings"]]
        never = {key: _never(key, at_s) for key, at_s in list(self._barred.items())}
        return Poll(
            attempts=never | {key: joining.joined(key, parts, unreachable) for key, parts in attempts.items()},
            readings={reading.gpu: reading for reading in readings},
            unreachable=unreachable,
            awake=frozenset(node for node, status in told.items() if status["is_awake"]),
            events=events,
        )

    def start(self, order: StartOrder) -> None:
        """Run it, unless this attempt was ever started; where it reached some of its nodes only, on the others."""
        nodes = sorted({self._node_of(gpu) for gpu in order.gpus})
        if not nodes:
            raise InputError(f"job {order.job_id} is to start on no GPU")
        if len(nodes) > 1 and self._is_leaving(order.key):
            return
        for rank, node in enumerate(nodes):
            self._post(node, "start", self._part(order, nodes, rank))

    def stop(self, key: Key, grace_s: float) -> None:
        """Ask it to leave: SIGTERM, and SIGKILL after the grace, in the safe order. Does not wait."""
        if self._everywhere(key, "stop", {"grace_s": grace_s}):
            return
        # Nobody knows it. All nodes are told, so that an order which is still on its way does nothing.
        for node in range(len(self._sites)):
            self._post(node, "stop", {"job_id": key[0], "attempt": key[1], "grace_s": grace_s})
        self._barred[key] = time.time()
        self._news()

    def forget(self, key: Key) -> None:
        """It is over and written down. Logs stay until `remove`."""
        self._barred.pop(key, None)
        self._everywhere(key, "forget", {})

    def remove(self, job_id: int) -> None:
        """Delete the logs of a job that is over for good."""
        for node in range(len(self._sites)):
            self._post(node, "remove", {"job_id": job_id})

    def read_log(self, key: Key, stream: Stream, offset: int, limit: int) -> bytes:
        """A piece of what it wrote, from its first node; empty at the end, and where nothing was written."""
        found, unreachable = self._parts(key)
        # One that is forgotten is known to nobody, but its logs are there still, and its first node is the lowest.
        nodes = next(iter(found.values()))["nodes"][:1] if found else range(len(self._sites))
        for node in nodes:
            piece = None if node in unreachable else self._client(node).log(*key, stream, offset, limit)
            if piece is not None:
                return piece
        if unreachable.intersection(nodes):
            raise AgentAwayError(f"job {key[0]}: a node that may have its logs does not answer")
        return b""

    def sleep(self, node: int) -> None:
        """Nothing runs there: save what can be saved."""
        self._post(node, "sleep", {})

    def wake(self, node: int) -> None:
        """Make it usable; `poll` says when it is."""
        self._post(node, "wake", {})

    def close(self) -> None:
        """Let go; jobs and agents go on."""
        self._is_closing = True
        for watcher in self._watchers:
            watcher.close()

    # ---- beyond the seam ----

    def shutdown(self, *, kill_jobs: bool = False) -> None:
        """End the agents too. Jobs must be over, unless they are to be killed."""
        self._await_jobs(kill_jobs)
        self.close()
        for site in self._sites:
            end(site)

    def _await_jobs(self, kill: bool) -> None:
        until_s = time.monotonic() + _END_S
        while alive := [key for key, status in self.poll().attempts.items() if not status.is_over]:
            if not kill:
                raise InputError(f"{len(alive)} jobs still run", hint="stop them first, or have them killed")
            if time.monotonic() > until_s:
                raise EngineError(f"{len(alive)} jobs did not end within {_END_S:g} s")
            for key in alive:
                self.stop(key, 0.0)
            time.sleep(0.05)

    # ---- inside ----

    def _watcher(self, site: Site) -> Watcher:
        client = AgentClient(server.socket_path(site.folder))
        return Watcher(client, lambda: bring(site), self._news, site.folder.name)

    def _client(self, node: int) -> AgentClient:
        return self._watchers[node].client

    def _ask(self, node: int, events_after: int = NO_EVENTS) -> Status:
        """One that is known to be away is not asked again; its watcher says when it is back."""
        watcher = self._watchers[node]
        if watcher.latest is None:
            raise AgentAwayError(f"the agent of {self.cluster.nodes[node].name} does not answer")
        try:
            return watcher.client.status(events_after)
        except AgentAwayError:
            watcher.lost()
            raise

    def _post(self, node: int, what: str, about: Mapping[str, Any]) -> None:
        if self._watchers[node].latest is None:
            raise AgentAwayError(f"the agent of {self.cluster.nodes[node].name} does not answer")
        try:
            self._client(node).post(what, about)
        except AgentAwayError:
            self._watchers[node].lost()
            raise

    def _parts(self, key: Key) -> tuple[dict[int, joining.Part], set[int]]:
        """What each node tells of an attempt, and the nodes that tell nothing of anything."""
        told, unreachable = {}, set()
        for node in range(len(self._sites)):
            try:
                told[node] = self._ask(node)["attempts"]
            except AgentAwayError:
                unreachable.add(node)
        return joining.grouped(told).get(key, {}), unreachable

    def _everywhere(self, key: Key, what: str, about: Mapping[str, Any]) -> bool:
        """On all nodes of an attempt, if there are any; an error where one of them, or one that may be, is away."""
        found, unreachable = self._parts(key)
        nodes = set(next(iter(found.values()))["nodes"]) if found else set(unreachable)
        if what == "forget" and nodes & unreachable:
            raise AgentAwayError(f"job {key[0]}: a node of it does not answer")
        for node in sorted(nodes - unreachable):
            self._post(node, what, {"job_id": key[0], "attempt": key[1], **about})
        if nodes & unreachable:
            raise AgentAwayError(f"job {key[0]}: a node of it does not answer")
        return bool(nodes)

    def _is_leaving(self, key: Key) -> bool:
        found, _ = self._parts(key)
        return any(part["stop_requested_at_s"] is not None for part in found.values())

    def _node_of(self, gpu: int) -> int:
        if not 0 <= gpu < self.cluster.gpus:
            raise InputError(f"no GPU {gpu} in {self.cluster.describe()}")
        return self.cluster.node_of[gpu]

    def _part(self, order: StartOrder, nodes: list[int], rank: int) -> dict[str, Any]:
        mine = [gpu for gpu in order.gpus if self.cluster.node_of[gpu] == nodes[rank]]
        copied = ("job_id", "attempt", "kind", "user", "shared", "sm_share", "memory_mib", "slo_s", "activity_frac")
        return {
            **{name: getattr(order, name) for name in copied},
            "argv": list(order.argv),
            "gpus": [self.cluster.gpu_uuid(gpu) for gpu in mine],
            "cwd": str(order.cwd),
            "env": dict(order.env),
            "nodes": nodes,
            "rank": rank,
            "num_gpus": len(order.gpus),
        }

    def _news(self) -> None:
        """Something has changed on some node. Parts that have lost the others are told to go, whoever polls."""
        if self._is_closing:
            return
        told = {node: w.latest["attempts"] for node, w in enumerate(self._watchers) if w.latest is not None}
        for key, parts in joining.grouped(told).items():
            if len(parts) > 1:
                for node in joining.must_leave(parts):
                    with contextlib.suppress(FairleadError):
                        about = {"job_id": key[0], "attempt": key[1], "grace_s": _PART_GRACE_S}
                        self._post(node, "stop", about)
        if self._on_change is not None:
            self._on_change()

    def _events(self, node: int, status: Status) -> list[NodeEvent]:
        found = [
            NodeEvent(**{**event, "node": node, "gpu": self._gpu_of.get(event["gpu"])}) for event in status["events"]
        ]
        self._told_events[node] = max([self._told_events[node], *(event.number for event in found)])
        return found

    def _reading(self, found: Mapping[str, Any]) -> GpuReading:
        return GpuReading(**{**found, "gpu": self._gpu_of[found["gpu"]]})


def _never(key: Key, at_s: float) -> AttemptStatus:
    """One that was to leave before it came."""
    return AttemptStatus(*key, AttemptState.ENDED, reason="never-started", ended_at_s=at_s, stop_requested_at_s=at_s)

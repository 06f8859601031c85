"""An engine over node agents, whoever started them: it starts, stops, polls, reads logs, sends to sleep and wakes.

How nodes come and go is a source's to say (`node_source.py`). What nodes tell is kept by node (`_Told`), and only what
differs from the last look is looked at again: a poll costs what has changed, not what there is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.errors import FairleadError, InputError
from fairlead.live.engines import multi_node
from fairlead.live.engines.engine import (
    AttemptStatus,
    EngineError,
    GpuReading,
    Heard,
    LogPlace,
    NodeEvent,
    Poll,
    Stray,
    Stream,
)
from fairlead.live.engines.node_source import NO_EVENTS, AgentAwayError, AgentLink, NodeSource, Status
from fairlead.model.cluster import Cluster
from fairlead.model.placement import Placement
from fairlead.node.identity import AttemptId
from fairlead.node.order import Order

_END_S = 30.0
_NOT_HEARD = ("", 0)


@dataclass(slots=True)
class _Told:
    """What one node told when it was last polled."""

    status: Status | None = None
    """None while its agent is away; the rest is as it told before."""
    parts: dict[AttemptId, multi_node.Part] = field(default_factory=dict)
    """Of attempts that were started there, and"""
    bars: dict[AttemptId, multi_node.Part] = field(default_factory=dict)
    """of those that never will be, which have no state."""
    gpu_of: dict[str, int] = field(default_factory=dict)
    """Its GPUs' numbers in the cluster, by UUID."""
    is_absent: bool = False


class AgentEngine:
    """Over the nodes of one source. `knows` tells whether an attempt is in the controller's database."""

    def __init__(
        self,
        source: NodeSource,
        *,
        knows: Callable[[AttemptId], bool] = lambda attempt: True,
        terms: Callable[[Cluster], Cluster] = lambda cluster: cluster,
    ) -> None:
        """`terms` adds to the nodes what policies go by: rental terms, scores."""
        self._source, self._knows, self._terms = source, knows, terms
        self._on_change: Callable[[], None] | None = None
        self._lock = threading.RLock()
        self._is_closing = False
        self._told: list[_Told] = []
        self._where: dict[AttemptId, set[int]] = {}
        """The nodes that tell of each attempt."""
        self._joined: dict[AttemptId, AttemptStatus] = {}
        self._strays: dict[int, list[Stray]] = {}
        """By node; on those that are away, as they were last told."""
        self._readings: dict[int, GpuReading] = {}
        self._nodes: tuple[Any, ...] = ()
        source.open(self._news)
        try:
            self.refresh()
            self.poll()
        except BaseException:
            self.close()
            raise

    @property
    def is_fake(self) -> bool:
        """Whether GPUs, and so all that is metered, are made up."""
        return self._source.is_fake

    @property
    def source(self) -> NodeSource:
        """What brings the nodes and their agents."""
        return self._source

    # ---- the seam ----

    def refresh(self) -> bool:
        """Take in the nodes that have come since; whether the cluster is another one now."""
        nodes = tuple(self._source.nodes())
        if nodes == self._nodes:
            return False
        with self._lock:
            cluster = self._terms(Cluster(nodes))
            self._nodes, self.cluster = nodes, cluster
            for told in self._told:
                told.gpu_of = {}
            self._told += [_Told() for _ in range(len(nodes) - len(self._told))]
        return True

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call this, from some thread, whenever a poll would tell something new that should be acted on."""
        self._on_change = on_change

    def poll(self, heard: Heard | None = None) -> Poll:
        """How everything stands now, with the events after those that were heard; of other nodes all that are kept."""
        heard, events = heard or {}, list[NodeEvent]()
        with self._lock:
            changed: set[AttemptId] = set()
            nodes, has_flipped = range(len(self._told)), False
            for node in nodes:
                was_there = self._told[node].status is not None
                status = self._look(node, heard.get(node, _NOT_HEARD), changed)
                has_flipped |= was_there != (status is not None)
                if status is not None and status["events"]:
                    events += self._events(node, status, heard.get(node, _NOT_HEARD))
            if has_flipped:  # attempts on several nodes count those that tell nothing
                changed.update(one for one, where in self._where.items() if self._spans(one, where))
            absent = frozenset(node for node in nodes if self._told[node].is_absent)
            unreachable = frozenset(node for node in nodes if self._told[node].status is None) - absent
            for attempt in changed:
                self._join(attempt, unreachable, absent)
            return Poll(
                attempts=dict(self._joined),
                readings=dict(self._readings),
                unreachable=unreachable,
                awake=frozenset(n for n, told in enumerate(self._told) if told.status and told.status["is_awake"]),
                events=tuple(events),
                strays=tuple(stray for strays in self._strays.values() for stray in strays),
                guard_age_s={
                    n: told.status["guard_age_s"]
                    for n, told in enumerate(self._told)
                    if told.status and "guard_age_s" in told.status
                },
                absent=absent,
                coming=self._source.coming(),
                hidden=self._source.hidden(),
                leaving=self._source.leaving(),
            )

    def start(self, order: Order, gpus: Placement) -> None:
        """Run it, unless this attempt was ever started; where it reached some of its nodes only, on the others.

        Where these have ended or are to, it must not start any more, and that is what the others are told.
        """
        nodes = sorted({self._node_of(gpu) for gpu in gpus})
        if not nodes:
            raise InputError(f"{order.id.in_words} is to start on no GPU")
        if len(nodes) > 1:
            found, _ = self._parts(order.id, nodes)
            parts = {node: part for node, part in found.items() if "state" in part}
            bars = {node: part for node, part in found.items() if "state" not in part}
            late = multi_node.must_not_start(parts, bars)
            for node in late:
                self._post(node, "stop", {"id": str(order.id), "nodes": nodes})
            if late or multi_node.is_broken(parts, bars):
                return
        addr, port = self._source.address(nodes[0]) if len(nodes) > 1 else order.master_addr, 0
        for rank, node in enumerate(nodes):
            part = replace(self._part(order, gpus, nodes, rank), master_addr=addr, master_port=port)
            if len(nodes) > 1 and (interface := self._source.interface(node)):
                # Where a node has several, NCCL and Gloo would otherwise take any; what the user says goes before.
                hints = dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), interface)
                part = replace(part, env={**hints, **part.env})
            answer = self._post(node, "start", part.to_dict())
            port = answer["master_port"]  # the first node chooses it, where the others are to meet

    def stop(self, attempt: AttemptId, grace_s: float | None = None, gpus: Placement = ()) -> None:
        """Have it end: SIGTERM, and SIGKILL after the grace, in the safe order. Does not wait."""
        found, unreachable = self._parts(attempt, self._candidates(attempt, gpus))
        nodes = self._nodes_of(found, gpus)
        about = {"id": str(attempt), "grace_s": grace_s, "nodes": nodes}
        for node in nodes:
            if node not in unreachable and not self._is_absent(node):
                self._post(node, "stop", about)
        if unreachable.intersection(nodes):
            raise AgentAwayError(f"{attempt.in_words}: a node of it does not answer")

    def forget(self, attempt: AttemptId) -> None:
        """It is over and written down. Logs stay until `remove`."""
        found, unreachable = self._parts(attempt, self._candidates(attempt, ()))
        nodes = self._nodes_of(found, ()) if found or unreachable else []
        if unreachable.intersection(nodes):
            raise AgentAwayError(f"{attempt.in_words}: a node of it does not answer")
        for node in nodes:
            if not self._is_absent(node):
                self._post(node, "forget", {"id": str(attempt)})

    def remove(self, job_id: int, gpus: Placement = ()) -> None:
        """Delete the logs of a job that is over for good; on nodes that have gone they went along."""
        nodes = {self.cluster.node_of[gpu] for gpu in gpus if gpu < self.cluster.gpus}
        for node in sorted(nodes) or range(len(self._told)):
            if not self._is_absent(node):
                self._post(node, "remove", {"job_id": job_id})

    def read_log(self, attempt: AttemptId, stream: Stream, offset: int, limit: int, gpus: Placement = ()) -> bytes:
        """A piece of what it wrote, from its first node; empty at the end, and where nothing was written."""
        found, unreachable = self._parts(attempt, self._candidates(attempt, gpus))
        # One that is forgotten is known to nobody, but its logs are there still, and its first node is the lowest.
        nodes = next(iter(found.values()))["nodes"][:1] if found else self._candidates(attempt, gpus)
        for node in nodes:
            link = None if node in unreachable else self._source.link(node)
            piece = None if link is None else link.log(attempt, stream, offset, limit)
            if piece is not None:
                return piece
        if unreachable.intersection(nodes):
            raise AgentAwayError(f"{attempt.in_words}: a node that may have its logs does not answer")
        return b""

    def locate_log(self, attempt: AttemptId, stream: Stream, since_s: float, gpus: Placement = ()) -> LogPlace:
        """Where its first node keeps what it wrote, and where in that a moment, as time of day, is."""
        for node in self._candidates(attempt, gpus):
            asked = {"id": str(attempt), "stream": stream, "since_s": since_s}
            found = {} if self._is_absent(node) else self._post(node, "locate-log", asked)
            if found.get("path"):
                return LogPlace(found["path"], found["offset"])
        return LogPlace()

    def sleep(self, node: int) -> None:
        """Nothing runs there: save what can be saved."""
        self._source.sleep(node)

    def wake(self, node: int) -> None:
        """Make it usable; `poll` says when it is."""
        self._source.wake(node)

    def enable(self, gpu: int) -> bool:
        """Put a GPU that its guard has disabled back into the pool; False where it was not disabled."""
        node = self._node_of(gpu)
        uuid = next((uuid for uuid, number in self._told[node].gpu_of.items() if number == gpu), "")
        return bool(self._post(node, "enable", {"gpu": uuid})["was_disabled"])

    def vacated(self, nodes: frozenset[int]) -> None:
        """No attempt is open any more on these nodes, which are absent: other machines may take their places."""
        self._source.vacated(nodes)

    def close(self) -> None:
        """Let go; jobs and agents go on."""
        self._is_closing = True
        self._source.close()

    # ---- beyond the seam ----

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of on any node that answers."""
        links = (self._source.link(node) for node in range(len(self._told)))
        return max((link.highest_job_id() for link in links if link is not None and link.latest is not None), default=0)

    def shutdown(self, *, kill_jobs: bool = False) -> None:
        """End the agents too. Jobs must be over, unless they are to be killed."""
        self._await_jobs(kill_jobs)
        self.close()
        self._source.shutdown()

    def _await_jobs(self, kill: bool) -> None:
        until_s = time.monotonic() + _END_S
        while True:
            poll = self.poll()
            alive = [one for one, status in poll.attempts.items() if not status.is_over]
            strays = [stray for stray in poll.strays if not stray.is_over]
            if not alive and not strays:
                return
            if not kill:
                raise InputError(f"{len(alive) + len(strays)} jobs still run", hint="stop them first, or kill them")
            if time.monotonic() > until_s:
                raise EngineError(f"{len(alive) + len(strays)} jobs did not end within {_END_S:g} s")
            for one in (*alive, *(stray.id for stray in strays)):
                self.stop(one, 0.0)
            time.sleep(0.05)

    # ---- what nodes tell ----

    def _look(self, node: int, heard: tuple[str | None, int], changed: set[AttemptId]) -> Status | None:
        """Ask a node, and note what differs; which attempts it concerns goes to `changed`."""
        told, link, status = self._told[node], self._source.link(node), None
        with contextlib.suppress(FairleadError):  # away, or not itself: the others are heard all the same
            status = None if link is None else self._ask(node, link, heard)
        is_absent = link is None
        if status is told.status and is_absent == told.is_absent and (status is None or told.gpu_of):
            return status
        was_away = told.status is None
        told.status, told.is_absent = status, is_absent
        if status is not None:
            self._take(node, told, status, changed)
        elif is_absent:
            self._take(node, told, _NOTHING, changed)
        if was_away != (status is None):
            changed.update(told.parts, told.bars)
        return status

    def _spans(self, attempt: AttemptId, where: set[int]) -> bool:
        told = self._told[next(iter(where))]
        return len((told.parts.get(attempt) or told.bars[attempt])["nodes"]) > 1

    def _take(self, node: int, told: _Told, status: Status, changed: set[AttemptId]) -> None:
        if not told.gpu_of:
            told.gpu_of = self._gpu_numbers(node, status)
        before = told.parts.keys() | told.bars.keys()
        parts = {multi_node.attempt_of(part): part for part in status["attempts"]}
        bars = {multi_node.attempt_of(part): part for part in status["barred"]}
        for one in before | parts.keys() | bars.keys():
            if told.parts.get(one) is not parts.get(one) or told.bars.get(one) is not bars.get(one):
                changed.add(one)
        told.parts, told.bars = parts, bars
        for one in before - parts.keys() - bars.keys():
            where = self._where[one]
            where.discard(node)
            if not where:
                del self._where[one]
        for one in (parts.keys() | bars.keys()) - before:
            self._where.setdefault(one, set()).add(node)
        strays = list(self._strays_of(node, told))
        if strays:
            self._strays[node] = strays
        else:
            self._strays.pop(node, None)
        first = self.cluster.first_gpu
        readings = [self._reading(found, told) for found in status["readings"] if found["gpu"] in told.gpu_of]
        kept = {reading.gpu for reading in readings}
        for gpu in range(first[node], first[node + 1]):
            if gpu not in kept:
                self._readings.pop(gpu, None)
        self._readings.update({reading.gpu: reading for reading in readings})

    def _gpu_numbers(self, node: int, status: Status) -> dict[str, int]:
        """By UUID; of a node that is not what it was said to be, as far as it goes."""
        first, last = self.cluster.first_gpu[node : node + 2]
        uuids = self.cluster.nodes[node].uuids or [info["uuid"] for info in status["gpus"]]
        return dict(zip(uuids, range(first, last), strict=False))

    def _join(self, attempt: AttemptId, unreachable: frozenset[int], absent: frozenset[int]) -> None:
        nodes = [node for node in self._where.get(attempt, ()) if self._told[node].status is not None]
        if not nodes or not self._knows(attempt):
            self._joined.pop(attempt, None)
            return
        parts = {node: self._told[node].parts[attempt] for node in nodes if attempt in self._told[node].parts}
        bars = {node: self._told[node].bars[attempt] for node in nodes if attempt in self._told[node].bars}
        self._joined[attempt] = multi_node.joined(attempt, parts, bars, unreachable, absent)

    def _strays_of(self, node: int, told: _Told) -> Iterator[Stray]:
        """Attempts that the database does not have."""
        for attempt, part in {**told.bars, **told.parts}.items():
            if not self._knows(attempt):
                gpus = tuple(told.gpu_of[uuid] for uuid in part.get("gpus", ()) if uuid in told.gpu_of)
                yield Stray(attempt, node, gpus, "state" not in part or multi_node.is_over(part))

    def _news(self, node: int) -> None:
        """Something has changed on a node. Parts that have lost the others are stopped, whoever polls."""
        if self._is_closing:
            return
        link = self._source.link(node)
        latest = None if link is None else link.latest
        for attempt in () if latest is None else map(multi_node.attempt_of, multi_node.told_by(latest)):
            found = self._latest_parts(attempt)
            parts = {n: part for n, part in found.items() if "state" in part}
            for other in multi_node.must_stop(parts, {n: p for n, p in found.items() if "state" not in p}):
                with contextlib.suppress(FairleadError):
                    self._post(other, "stop", {"id": str(attempt)})
        if self._on_change is not None:
            self._on_change()

    def _latest_parts(self, attempt: AttemptId) -> dict[int, multi_node.Part]:
        """What its nodes have told of it, the last that was heard of each."""
        found: dict[int, multi_node.Part] = {}
        asked, asking = set[int](), set(self._where.get(attempt, ()))
        while asking:
            node = asking.pop()
            asked.add(node)
            link = self._source.link(node)
            latest = None if link is None else link.latest
            part = None if latest is None else _part_in(latest, attempt)
            if part is not None:
                found[node] = part
                asking |= {n for n in part["nodes"] if n < len(self._told)} - asked
        return found

    # ---- inside ----

    def _ask(self, node: int, link: AgentLink, heard: tuple[str | None, int] = (None, NO_EVENTS)) -> Status:
        """One that is known to be away is not asked again; its link says when it is back."""
        if link.latest is None:
            raise self._away(node)
        try:
            event_log, events_after = heard
            return link.status(events_after, event_log)
        except AgentAwayError:
            link.lost()
            raise

    def _post(self, node: int, what: str, about: Mapping[str, Any]) -> Mapping[str, Any]:
        link = self._source.link(node)
        if link is None or link.latest is None:
            raise self._away(node)
        try:
            return link.post(what, about)
        except AgentAwayError:
            link.lost()
            raise

    def _away(self, node: int) -> AgentAwayError:
        return AgentAwayError(f"the agent of {self.cluster.nodes[node].name} does not answer")

    def _is_absent(self, node: int) -> bool:
        return self._source.link(node) is None

    def _candidates(self, attempt: AttemptId, gpus: Placement) -> Sequence[int]:
        """The nodes that may know of an attempt: as they told, and by its GPUs; all where neither is known."""
        with self._lock:
            nodes = set(self._where.get(attempt, ()))
        nodes |= {self.cluster.node_of[gpu] for gpu in gpus if gpu < self.cluster.gpus}
        return sorted(nodes) or range(len(self._told))

    def _parts(self, attempt: AttemptId, nodes: Sequence[int]) -> tuple[dict[int, multi_node.Part], set[int]]:
        """What nodes tell of an attempt, and those that tell nothing of anything; asked anew.

        A node that is named by another is asked too. That it will never start there is told, too; such a part has no
        state.
        """
        found: dict[int, multi_node.Part] = {}
        unreachable, asked, asking = set[int](), set[int](), set(nodes)
        while asking:
            node = min(asking)
            asked.add(node)
            link = self._source.link(node)
            if link is not None:
                try:
                    status = self._ask(node, link)
                except AgentAwayError:
                    unreachable.add(node)
                else:
                    if (part := _part_in(status, attempt)) is not None:
                        found[node] = part
                        asking |= {n for n in part["nodes"] if n < len(self._told)}
            asking -= asked
        return found, unreachable

    def _nodes_of(self, found: Mapping[int, multi_node.Part], gpus: Placement) -> list[int]:
        """All nodes of an attempt: as they tell, else by its GPUs; any node may be one of which neither is known."""
        nodes = {node for part in found.values() for node in part["nodes"]} | found.keys()
        nodes |= {self.cluster.node_of[gpu] for gpu in gpus if gpu < self.cluster.gpus}
        return sorted(node for node in nodes if node < len(self._told)) or list(range(len(self._told)))

    def _node_of(self, gpu: int) -> int:
        if not 0 <= gpu < self.cluster.gpus:
            raise InputError(f"no GPU {gpu} in {self.cluster.describe()}")
        return self.cluster.node_of[gpu]

    def _part(self, order: Order, gpus: Placement, nodes: list[int], rank: int) -> Order:
        """What one node gets of it."""
        uuid_of = {gpu: uuid for uuid, gpu in self._told[nodes[rank]].gpu_of.items()}
        mine = [gpu for gpu in gpus if self.cluster.node_of[gpu] == nodes[rank]]
        if missing := [gpu for gpu in mine if gpu not in uuid_of]:
            raise EngineError(f"{self.cluster.gpu_name(missing[0])} is not there at present")
        return replace(
            order, gpus=tuple(uuid_of[gpu] for gpu in mine), nodes=tuple(nodes), rank=rank, num_gpus=len(gpus)
        )

    def _events(self, node: int, status: Status, heard: tuple[str, int]) -> list[NodeEvent]:
        event_log, after = status["event_log"], heard[1] if heard[0] == status["event_log"] else 0
        return [self._event(node, event, event_log) for event in status["events"] if event["number"] > after]

    def _event(self, node: int, told: Mapping[str, Any], event_log: str) -> NodeEvent:
        """Of a job only where it is this database's: its number may be another user's by now."""
        attempt = None if told["attempt"] is None else AttemptId.parse(told["attempt"])
        job_id = None if attempt is None or not self._knows(attempt) else attempt.job_id
        about = {name: value for name, value in told.items() if name != "attempt"}
        where = {"node": node, "gpu": self._told[node].gpu_of.get(told["gpu"]), "event_log": event_log}
        return NodeEvent(**about | where | {"job_id": job_id})

    def _reading(self, found: Mapping[str, Any], told: _Told) -> GpuReading:
        return GpuReading(**{**found, "gpu": told.gpu_of[found["gpu"]]})


def _part_in(status: Status, attempt: AttemptId) -> multi_node.Part | None:
    """What a node tells of an attempt, if it does."""
    name = str(attempt)
    return next((part for part in multi_node.told_by(status) if part["id"] == name), None)


_NOTHING: Status = {"attempts": (), "barred": (), "readings": (), "events": (), "event_log": "", "gpus": ()}
"""What is told of a node that is not there."""

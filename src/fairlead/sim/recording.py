"""Who was on which GPU, and which nodes were off, from when to when; only kept where somebody wants to look at it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from fairlead.model.placement import Placement
from fairlead.policy.driver import Effects
from fairlead.policy.view import View
from fairlead.sim.simjob import SimJob


@dataclass(frozen=True)
class Occupancy:
    """The GPUs of a run over time. What is in neither frame was on, and idle."""

    nodes: tuple[tuple[str, int], ...]
    """Names, and how many GPUs each has; GPUs are numbered through."""
    held: pl.DataFrame
    """`gpu`, `start_s`, `end_s`, and in `jobs` the numbers of all that were on it, which never changed meanwhile."""
    off: pl.DataFrame
    """`node`, `start_s`, `end_s`, and `state`: down, asleep, waking, not rented or booting."""


class Recording:
    """Writes down what changes, beside the effects of a run."""

    def __init__(self, view: View, *, rents: bool) -> None:
        self._view = view
        self._words = ("not rented", "booting") if rents else ("asleep", "waking")
        gpus, nodes = view.cluster.gpus, len(view.cluster.nodes)
        self._held: list[tuple[int, ...]] = [tuple(view.on_gpu[gpu]) for gpu in range(gpus)]
        self._held_since_s = [view.now_s] * gpus
        self._off = [self._state(node) for node in range(nodes)]
        self._off_since_s = [view.now_s] * nodes
        self._sets: dict[tuple[int, ...], int] = {}
        self._gpu, self._number = array("l"), array("l")
        self._start_s, self._end_s = array("d"), array("d")
        self._outages: list[tuple[int, float, float, str]] = []

    def around(self, effects: Effects) -> Effects:
        """The same effects, written down."""

        def left(job: SimJob, gpus: Placement) -> None:
            effects.left(job, gpus)
            self._changed(gpus)

        def started(job: SimJob) -> None:
            effects.started(job)
            self._changed(job.gpus)

        return replace(effects, left=left, started=started)

    def node_changed(self, node: int) -> None:
        """It is on, off or on its way since now."""
        state = self._state(node)
        if state != self._off[node]:
            self._close_node(node)
            self._off[node] = state

    def occupancy(self) -> Occupancy:
        """Who was on which GPU from when to when, up to now."""
        cluster = self._view.cluster
        self._changed(range(cluster.gpus))
        for node in range(len(cluster.nodes)):
            self._close_node(node)
        sets = pl.Series("jobs", list(self._sets), dtype=pl.List(pl.Int64))
        columns = {"gpu": self._gpu, "start_s": self._start_s, "end_s": self._end_s}
        held = pl.DataFrame({name: np.array(column) for name, column in columns.items()})
        held = held.with_columns(sets.gather(np.array(self._number)))
        off = pl.DataFrame(
            self._outages,
            schema={"node": pl.Int64, "start_s": pl.Float64, "end_s": pl.Float64, "state": pl.String},
            orient="row",
        )
        return Occupancy(
            tuple((node.name, node.gpus) for node in cluster.nodes),
            held.sort("gpu", "start_s", maintain_order=True),
            off.sort("node", "start_s", maintain_order=True),
        )

    def _changed(self, gpus: Iterable[int]) -> None:
        now_s, on_gpu = self._view.now_s, self._view.on_gpu
        for gpu in gpus:
            held, since_s = self._held[gpu], self._held_since_s[gpu]
            if held and now_s > since_s:
                number = self._sets.setdefault(held, len(self._sets))
                self._gpu.append(gpu)
                self._start_s.append(since_s)
                self._end_s.append(now_s)
                self._number.append(number)
            self._held[gpu], self._held_since_s[gpu] = tuple(on_gpu[gpu]), now_s

    def _close_node(self, node: int) -> None:
        now_s, state, since_s = self._view.now_s, self._off[node], self._off_since_s[node]
        if state and now_s > since_s:
            self._outages.append((node, since_s, now_s, state))
        self._off_since_s[node] = now_s

    def _state(self, node: int) -> str:
        view, (asleep, waking) = self._view, self._words
        if node in view.down:
            return "down"
        return asleep if node in view.asleep else waking if node in view.waking else ""

"""Random GPUs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fairlead.model.placement import Placement
from fairlead.policy.parts import WHOLE, Ask, ask_of
from fairlead.policy.placing.rooms import RoomIndex
from fairlead.policy.pool import Pool
from fairlead.policy.saved_state import draws, reading, resume_draws
from fairlead.policy.stages import Placing, option
from fairlead.policy.view import JobState, View


@dataclass
class Random(Placing):
    """Any free GPUs, each set as likely as any other; drawn from the seed of the run.

    A job that asks for a part of a GPU gets any GPU that has room, free or in use. With `by=node` a job goes to any
    node that holds it, and to any GPUs there; it waits for one if there is none now, unless none is large enough.

    When not to use it: except as the baseline that everything must beat.
    """

    seed: int = option(0, "seed of the draws; the seed of the run unless given")
    by: Literal["gpu", "node"] = option("gpu", "what is drawn: GPUs, or a node and then GPUs of it")
    redraws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._rooms = RoomIndex()
        self.may_refuse = self.by == "node"  # type: ignore[misc]

    def pick(self, state: JobState, width: int, pool: Pool, view: View) -> Placement | None:
        """A uniform draw without replacement."""
        if width > pool.count:
            return None
        if self.by == "node" and width <= view.cluster.node_gpus:
            node = self.node(ask_of(state.job), width, pool, view)
            return None if node is None else self._from_node(node, width, pool)
        if 4 * width < pool.count and 4 * pool.count > view.cluster.gpus:
            return self._by_rejection(width, pool, view.cluster.gpus)
        return tuple(sorted(self._rng.sample(list(pool), width)))

    def pick_part(self, state: JobState, pool: Pool, view: View) -> int | None:
        """Any GPU that has room."""
        assert view.parts is not None
        ask = ask_of(state.job)
        if self.by == "node":
            node = self.node(ask, 1, pool, view)
            return None if node is None else self._rng.choice(_with_room(node, ask, pool, view))
        gpus = [g for g in (*pool, *view.parts.left) if g not in view.drained and view.parts.holds(g, ask)]
        return self._rng.choice(sorted(gpus)) if gpus else None

    def node(self, ask: Ask, width: int, pool: Pool, view: View) -> int | None:
        """Any node that holds a job."""
        rooms = self._rooms if pool is view.free else RoomIndex()
        nodes = sorted(node for _, found in rooms.fitting(ask, width, pool, view) for node in found)
        if ask.part < WHOLE and ask.memory_kib:
            nodes = [node for node in nodes if _with_room(node, ask, pool, view)]
        return self._rng.choice(nodes) if nodes else None

    def _from_node(self, node: int, width: int, pool: Pool) -> Placement:
        return tuple(sorted(self._rng.sample(pool.from_node(node, pool.counts[node]), width)))

    def knowledge(self) -> dict[str, Any]:
        """The state of the random numbers, so that a restart draws the same."""
        return {"draws": draws(self._rng)}

    def recall(self, saved: Mapping[str, Any], view: View) -> None:
        """Go on drawing from there."""
        with reading("random", saved, "draws"):
            resume_draws(self._rng, saved["draws"])

    def _by_rejection(self, width: int, pool: Pool, gpus: int) -> Placement:
        """The same draw without listing the pool, where most tries hit."""
        found: set[int] = set()
        while len(found) < width:
            gpu = self._rng.randrange(gpus)
            if gpu in pool:
                found.add(gpu)
        return tuple(sorted(found))


def _with_room(node: int, ask: Ask, pool: Pool, view: View) -> list[int]:
    """The GPUs of a node that have room for a job."""
    parts = view.parts
    assert parts is not None
    gpus = (*parts.open_on.get(node, ()), *pool.from_node(node, pool.counts[node]))
    return sorted(g for g in gpus if g not in view.drained and parts.holds(g, ask))

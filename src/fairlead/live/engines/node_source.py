"""How nodes come, leave and are found: the small part in which engines over agents differ (`agent_engine.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fairlead.live.engines.engine import EngineError
from fairlead.model.cluster import Node
from fairlead.node.identity import AttemptId

Status = Mapping[str, Any]
"""What an agent tells of its node; `node/host.py` makes it."""
NO_EVENTS = 2**62
"""More than any event's number."""


class AgentAwayError(EngineError):
    """The agent of a node does not answer."""


class AgentLink(Protocol):
    """The agent of one node. A request that fails may have been carried out; all of them can be repeated."""

    latest: Status | None
    """As last told; None while the agent is away."""

    def status(self, events_after: int, event_log: str | None = None) -> Status:
        """How its node stands now, with the events after this one of its event log; of another one, all it has.

        The very same object says that nothing has changed since.
        """
        ...

    def post(self, what: str, about: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have something done: start, stop, forget, remove, sleep or wake."""
        ...

    def log(self, attempt: AttemptId, stream: str, offset: int, limit: int) -> bytes | None:
        """A piece of what a job wrote there; None where it never ran."""
        ...

    def highest_job_id(self) -> int:
        """Of all jobs that anything is left of there."""
        ...

    def lost(self) -> None:
        """Somebody found that it does not answer: nobody else need wait for that either, for a start above all."""
        ...


OnNews = Callable[[int], None]
"""Told the node that something differs on."""


class NodeSource(Protocol):
    """Brings nodes with their agents; a class that is one inherits what it does not need to say.

    Calls may come from any thread, `on_news` from any of the source's own.
    """

    @property
    def is_fake(self) -> bool:
        """Whether GPUs, and so all that is metered, are made up."""
        ...

    def nodes(self) -> Sequence[Node]:
        """All places, in the order of their numbers: more may come behind, and a free one may change."""
        ...

    def open(self, on_news: OnNews) -> None:
        """Find the agents that are there, and start those that should be; errors where that cannot be."""
        ...

    def link(self, node: int) -> AgentLink | None:
        """The agent in that place; None where nobody is, and nothing runs of what was there before."""
        ...

    def coming(self) -> frozenset[int]:
        """Free places for which somebody was sent for."""
        return frozenset()

    def hidden(self) -> frozenset[int]:
        """Free places that nobody is to come to."""
        return frozenset()

    def leaving(self) -> frozenset[int]:
        """Nodes that are about to go."""
        return frozenset()

    def sleep(self, node: int) -> None:
        """Nothing runs there, and it is not needed."""
        ...

    def wake(self, node: int) -> None:
        """A node is needed: have it come, if it can."""
        ...

    def vacated(self, nodes: frozenset[int]) -> None:
        """These places, which are free, may be taken again: all that ran there before is accounted for."""
        ...

    def address(self, node: int) -> str:
        """Where other nodes reach what listens there."""
        ...

    def interface(self, node: int) -> str:
        """The network interface by which it reaches others; empty where that does not matter."""
        return ""

    def close(self) -> None:
        """Let go; jobs and agents go on."""
        ...

    def shutdown(self) -> None:
        """End the agents, too; nothing runs on them."""
        ...

"""The engine of this machine: its own GPUs, or made-up ones on as many made-up nodes as you like.

Every node is an agent process of its own that outlives the controller. One that died is started again, and its jobs
with it are none the worse: while it is away its node counts as unreachable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.errors import FairleadError
from fairlead.live.engines.agent_client import AgentClient, Watcher
from fairlead.live.engines.agent_engine import AgentEngine
from fairlead.live.engines.local_nodes import LocalNode, bring, end, fake_local_nodes, real_local_node
from fairlead.live.engines.node_source import AgentLink, NodeSource, OnNews
from fairlead.model.cluster import DEFAULT_NODE_WAKE_S, Cluster, Node
from fairlead.node.http import server
from fairlead.node.identity import AttemptId

if TYPE_CHECKING:
    from fairlead.live.engines.registry import Site


class LocalNodes(NodeSource):
    """Nodes whose agents are processes of this machine. They are never absent: who is away is brought back."""

    def __init__(self, nodes: Sequence[Node], local_nodes: Sequence[LocalNode], *, is_fake: bool) -> None:
        self._is_fake = is_fake
        self._nodes, self._local_nodes = nodes, local_nodes
        self._watchers: list[Watcher] = []

    @property
    def is_fake(self) -> bool:
        """Whether the GPUs are made up."""
        return self._is_fake

    def nodes(self) -> Sequence[Node]:
        """The nodes of this machine; they are always the same."""
        return self._nodes

    def open(self, on_news: OnNews) -> None:
        """Find the agents, or start them."""
        for number, local_node in enumerate(self._local_nodes):
            client = AgentClient(server.socket_path(local_node.folder))
            told = partial(on_news, number)
            self._watchers.append(Watcher(client, partial(bring, local_node), told, local_node.folder.name))
        try:
            with ThreadPoolExecutor(len(self._local_nodes)) as pool:
                list(pool.map(bring, self._local_nodes))
            for watcher in self._watchers:
                watcher.start()
        except FairleadError:
            self.close()
            raise

    def link(self, node: int) -> AgentLink:
        """The agent of a node."""
        return self._watchers[node]

    def sleep(self, node: int) -> None:
        """Its agent takes no jobs until it is woken."""
        self._watchers[node].post("sleep", {})

    def wake(self, node: int) -> None:
        """Its agent takes jobs again, after a while."""
        self._watchers[node].post("wake", {})

    def vacated(self, nodes: frozenset[int]) -> None:
        """No place is ever free."""

    def address(self, node: int) -> str:
        """All nodes are this machine."""
        return "127.0.0.1"

    def close(self) -> None:
        """Watch the agents no more; they and their jobs go on."""
        for watcher in self._watchers:
            watcher.close()

    def shutdown(self) -> None:
        """End the agents of all local nodes."""
        for local_node in self._local_nodes:
            end(local_node)


class LocalEngine(AgentEngine):
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
        limits: Mapping[str, Any] | None = None,
        cgroup: str = "auto",
        knows: Callable[[AttemptId], bool] = lambda attempt: True,
        terms: Callable[[Cluster], Cluster] = lambda cluster: cluster,
    ) -> None:
        """`fake_gpus` on each of `fake_nodes`; `guard` holds settings that differ from the guard's own.

        `limits` is what each job may take of its node, `cgroup` where the agents put jobs: auto, off, or a folder.
        """
        given = {"--guard": json.dumps(dict(guard or {}), sort_keys=True)}
        given |= {"--limits": json.dumps(dict(limits or {}), sort_keys=True), "--cgroup": cgroup}
        common = tuple(word for option in given.items() for word in option)
        if fake_gpus:
            nodes, local_nodes = fake_local_nodes(folder, fake_gpus, fake_nodes, gpu_model, wake_s, common)
        else:
            nodes, local_nodes = real_local_node(folder, common)
        super().__init__(LocalNodes(nodes, local_nodes, is_fake=bool(fake_gpus)), knows=knows, terms=terms)


def make(site: Site) -> LocalEngine:
    """By its configuration. Agents that are not there yet are started."""
    wanted = site.config.engine
    return LocalEngine(
        site.home.nodes,
        fake_gpus=wanted.fake_gpus,
        fake_nodes=wanted.fake_nodes,
        gpu_model=wanted.gpu_model,
        wake_s=site.wake_s,
        guard=site.guard,
        limits=site.limits,
        cgroup=wanted.cgroup,
        knows=site.store.knows,
        terms=site.terms,
    )

"""What is heard of the nodes: who answers, what their agents tell, and which GPUs take no jobs."""

from __future__ import annotations

from fairlead.live.control.working_state import WorkingState
from fairlead.live.engines.engine import Poll
from fairlead.live.storage.store import EventRow


class NodeWatch:
    """Keeps each event of the agents once, and has GPUs drained that their operator or silence has taken away."""

    def __init__(self, lost_after_s: float) -> None:
        self._lost_after_s = lost_after_s
        self._poll: Poll | None = None
        """The last."""
        self.drained: set[int] = set()
        """GPUs, by word of the operator."""
        self.heard: dict[int, tuple[str, int]] = {}
        """How far the nodes' events are known; saved with them."""
        self._unheard_s: dict[int, float] = {}
        """Since when nodes do not answer."""

    def restore(self, work: WorkingState, drained: set[int], heard: dict[str, tuple[str, int]]) -> None:
        """Go on from what is on the disk."""
        numbers = {node.name: number for number, node in enumerate(work.cluster.nodes)}
        self.heard = {numbers[name]: (log, last) for name, (log, last) in heard.items() if name in numbers}
        self.drained = drained
        self._apply_drains(work)

    def set_drained(self, work: WorkingState, gpus: set[int], drain: bool) -> None:
        """From now on these GPUs take no new jobs, or take them again."""
        named = work.cluster.gpu_name
        self.drained = self.drained | gpus if drain else self.drained - gpus
        work.know("drained", [named(g) for g in sorted(self.drained)])
        work.tell("drained" if drain else "resumed", about=", ".join(map(named, sorted(gpus))))
        self._apply_drains(work)

    def hear(self, work: WorkingState, poll: Poll, busy: set[int], now_s: float) -> None:
        """Take what a poll tells of the nodes; of the `busy` ones it does not say whether they are awake."""
        self._poll = poll
        self._keep_events(work, poll)
        for node in sorted((work.driver.view.waking & poll.awake) - busy):
            work.driver.awake(node)
            work.tell("node-awake", node=node)
            work.recovery.note_nodes()
        silent = {node: self._unheard_s.get(node, now_s) for node in poll.unreachable}
        for node in silent.keys() - self._unheard_s.keys():
            work.tell("node-unreachable", node=node)
        for node in self._unheard_s.keys() - silent.keys():
            work.tell("node-reachable", node=node)
        self._unheard_s = silent
        self._apply_drains(work)

    def _keep_events(self, work: WorkingState, poll: Poll) -> None:
        """Each once: how far that goes is saved together with them."""
        nodes = work.cluster.nodes
        for event in poll.events:
            where = "" if event.gpu is None else f"GPU {work.cluster.gpu_name(event.gpu)} "
            about, node = f"{where}{event.about}".strip(), nodes[event.node].name
            work.pending_writes.tell(EventRow(event.at_s, event.what, event.job_id, node, about))
            self.heard[event.node] = (event.event_log, event.number)
        if poll.events:
            work.know("heard", {nodes[node].name: mark for node, mark in self.heard.items()})

    def _apply_drains(self, work: WorkingState) -> None:
        """What takes no jobs: by word of the operator, since nobody answers or is there, or since it is leaving."""
        view, first_gpu = work.driver.view, work.cluster.first_gpu
        gone = {n for n, since_s in self._unheard_s.items() if view.now_s - since_s >= self._lost_after_s}
        if self._poll is not None:
            gone |= (self._poll.absent - view.asleep - view.waking) | self._poll.leaving
        wanted = self.drained | {g for n in gone for g in range(first_gpu[n], first_gpu[n + 1])}
        for gpu in sorted(wanted - view.drained):
            work.driver.drain(gpu)
        for gpu in sorted(view.drained - wanted):
            work.driver.undrain(gpu)

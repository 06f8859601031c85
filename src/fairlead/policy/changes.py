"""What happened between two decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.policy.job_state import JobState


@dataclass(slots=True)
class Changes:
    """What happened since the last decision, besides the last plan itself."""

    arrived: list[JobState] = field(default_factory=list)
    ended: list[JobState] = field(default_factory=list)
    """Finished or cancelled, from the queue or from GPUs."""
    returned: list[JobState] = field(default_factory=list)
    """Back in the queue through no decision of the policy: its node failed, its start failed."""
    withdrawn: list[JobState] = field(default_factory=list)
    """Out of the queue without having ended: held by its user, or kept back after a failure. It may arrive again."""
    retimed: list[JobState] = field(default_factory=list)
    """Running on at another speed, since its neighbours changed."""
    nodes: list[int] = field(default_factory=list)
    """Nodes that went down or came back, or of which a GPU was drained or may be used again."""
    rescored: set[str] = field(default_factory=set)
    """Classes for which something new is believed of the GPUs."""
    turned: list[JobState] = field(default_factory=list)
    """Running jobs that have begun a new epoch; told to elastic sizings only."""

    def __bool__(self) -> bool:
        happened = self.arrived or self.ended or self.returned or self.withdrawn or self.retimed or self.turned
        return bool(happened or self.nodes or self.rescored)

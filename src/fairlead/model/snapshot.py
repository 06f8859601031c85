"""Snapshots: the state of a cluster and its jobs at one moment, as plain data.

A controller makes one, a simulation runs on from it, and neither knows the other. Moments are on the clock of whoever
made it, which starts at 0. Nothing here is a guess: what is not known is None.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fairlead.errors import InputError
from fairlead.model.cluster import Cluster
from fairlead.model.files import first_problem, read_text
from fairlead.model.interference import Interference
from fairlead.model.job import Kind
from fairlead.model.profile import Profile, profile_named
from fairlead.model.profile_json import profile_from_dict

VERSION = 1
"""Of what `to_dict` writes."""

State = Literal["running", "waiting", "held"]
Moments = tuple[tuple[int, float], ...]
"""(node, moment)."""


@dataclass(frozen=True, slots=True)
class SnapshotJob:
    """A job in the system; as in `Job` and `JobState` where a name is the same."""

    id: int
    """Larger for later ones."""
    name: str
    user: str
    submit_s: float
    gpus: int
    min_gpus: int
    max_gpus: int
    memory_mib: float = 0.0
    profile: str = "generic"
    """The name of a built-in profile, or of one that the snapshot carries."""
    kind: Kind = "training"
    priority: int = 0
    deadline_s: float | None = None
    """Counts from submission."""
    batch: int = 0
    state: State = "waiting"
    placement: tuple[int, ...] = ()
    """GPU numbers, ascending; empty unless it runs."""
    shared: bool = False
    sm_share: float = 1.0
    since_s: float = 0.0
    """When it was placed there, or began to wait."""
    banked_gpu_s: float = 0.0
    """GPU-seconds of service before that."""
    starts: int = 0
    left_s: float | None = None
    """Seconds of work left, alone on the GPUs asked for, at nominal speed."""
    started_s: float | None = None
    """When it first started."""
    group: str = ""
    done_s: float = 0.0
    """Seconds of work done, likewise."""
    progress_s: float | None = None
    """When it took the speed that it has now, or when its restart will be over,"""
    progress_left_s: float | None = None
    """and what was left then: from these its end follows to the last digit, from `left_s` but for rounding."""
    epoch_s: float | None = None
    """Seconds of work of one epoch, where it has told; else as its profile says."""
    first_width: int = 0
    """GPUs of its first run,"""
    taken_gpus: int = 0
    """those that it has started on or grown by, all together,"""
    left_width: int = 0
    """and those of the run that it left last."""
    gpu_frac: float = 1.0
    cpus: float = 0.0
    ram_mib: float = 0.0

    def attained_gpu_s(self, now_s: float) -> float:
        """GPU-seconds of service so far."""
        return self.banked_gpu_s + len(self.placement) * self.gpu_frac * (now_s - self.since_s)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a simulation needs to run on from here. Nodes and GPUs are numbered as in the cluster."""

    now_s: float
    policy: str
    cluster: Cluster
    jobs: tuple[SnapshotJob, ...] = ()
    """Waiting ones in the order in which they wait."""
    down: tuple[int, ...] = ()
    asleep: tuple[int, ...] = ()
    """Of a rented cluster, the nodes that are not rented."""
    waking: Moments = ()
    """Nodes on their way from sleep, each with the moment when it can be used."""
    rented: Moments = ()
    """Since when nodes are rented, where that is known."""
    drained: tuple[int, ...] = ()
    """GPUs that take no more jobs."""
    history: dict[str, Any] | None = None
    """What the policy has learnt of jobs beside each other, as `Interference.to_dict` writes it."""
    interference: dict[str, Any] | None = None
    """What jobs beside each other leave each other, as far as it is known; else what the policy has learnt of it."""
    profiles: tuple[dict[str, Any], ...] = ()
    """Profiles that are not built in, as `profile_as_dict` writes them."""
    is_fake: bool = False
    """Whether its GPUs are."""
    round_s: float | None = None
    """The policy decides at multiples of this only."""
    knowledge: dict[str, Any] | None = None
    """What the policy has learnt and promised, as `Stack.knowledge` has it; without it, it begins anew."""
    asked_s: float | None = 0.0
    """When the policy is asked next; None is when something happens."""
    changes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """What happened since it was asked: jobs, and nodes, by the names of `Changes`."""
    ended: tuple[SnapshotJob, ...] = ()
    """Jobs that ended since it was asked; they are not among `jobs`."""
    paid_gpu_s: float = 0.0
    """GPU-seconds of rented nodes that were paid for so far."""
    accepting: tuple[int, ...] | None = None
    """GPUs with a service whose guard lets offline work on them; None where nobody knows."""
    _profiles: dict[str, Profile] = field(init=False, repr=False, compare=False)
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    def __post_init__(self) -> None:
        read = [profile_from_dict(value, f"snapshot: profiles.{i}") for i, value in enumerate(self.profiles)]
        object.__setattr__(self, "_profiles", {p.name: p for p in read})
        for name, table in (("history", self.history), ("interference", self.interference)):
            if table is not None:
                Interference.from_dict(table, f"snapshot: {name}")
        _expect(math.isfinite(self.now_s) and self.now_s >= 0.0, "now_s", self.now_s, "a number of seconds, 0 or more")
        self._check_nodes()
        for job in self.jobs:
            _check_job(job, self.now_s, self.cluster.gpus)
        ids = [job.id for job in self.jobs]
        if len(set(ids)) < len(ids):
            twice = next(i for n, i in enumerate(ids) if i in ids[:n])
            raise InputError(f"snapshot: job {twice} stands twice in jobs; every job has an id of its own")
        self._check_gpus()

    def profile(self, name: str) -> Profile:
        """The one it carries under that name, else the built-in one."""
        found = self._profiles.get(name)
        return found if found is not None else profile_named(name)

    def to_dict(self) -> dict[str, Any]:
        """The snapshot in plain types that JSON keeps."""
        nodes, variability, rental = self.cluster.nodes, self.cluster.variability, self.cluster.rental
        return {
            "version": VERSION,
            "now_s": self.now_s,
            "policy": self.policy,
            "cluster": {
                "nodes": [asdict(node) for node in nodes],
                "variability": asdict(variability) if variability is not None else None,
                "rental": asdict(rental) if rental is not None else None,
            },
            "jobs": [asdict(job) for job in self.jobs],
            "down": [*self.down],
            "asleep": [*self.asleep],
            "waking": [[*pair] for pair in self.waking],
            "rented": [[*pair] for pair in self.rented],
            "drained": [*self.drained],
            "history": self.history,
            "interference": self.interference,
            "profiles": [*self.profiles],
            "is_fake": self.is_fake,
            "round_s": self.round_s,
            "knowledge": self.knowledge,
            "asked_s": self.asked_s,
            "changes": {name: [*numbers] for name, numbers in self.changes.items()},
            "ended": [asdict(job) for job in self.ended],
            "paid_gpu_s": self.paid_gpu_s,
            "accepting": None if self.accepting is None else [*self.accepting],
        }

    @classmethod
    def from_dict(cls, value: object, where: str = "snapshot") -> Snapshot:
        """From what `to_dict` made; `where` stands in the errors."""
        if not isinstance(value, Mapping) or "version" not in value:
            raise InputError(f"{where}: expected an object with a version", hint=_HINT)
        if value["version"] != VERSION:
            raise InputError(f"{where}: version is {value['version']!r}, expected {VERSION}", hint=_HINT)
        try:
            return _ADAPTER.validate_python({k: v for k, v in value.items() if k != "version"})
        except ValidationError as error:
            raise InputError(f"{where}: {first_problem(error)}") from None
        except InputError as error:
            raise InputError(f"{where}: {error.message.removeprefix('snapshot: ')}", hint=error.hint) from None

    def _check_nodes(self) -> None:
        count, seen = len(self.cluster.nodes), dict[int, str]()
        for node, spec in enumerate(self.cluster.nodes):
            _expect(spec.gpus >= 1, f"cluster.nodes.{node}.gpus", spec.gpus, "1 or more")
        named = {"down": self.down, "asleep": self.asleep, "waking": [node for node, _ in self.waking]}
        for where, nodes in (*named.items(), ("rented", [node for node, _ in self.rented])):
            for node in nodes:
                _expect(0 <= node < count, where, node, f"the number of a node, 0 to {count - 1}")
                if where != "rented" and seen.setdefault(node, where) != where:
                    raise InputError(f"snapshot: node {node} is in both {seen[node]} and {where}")
                if where == "rented" and node in self.asleep:
                    raise InputError(f"snapshot: node {node} is in both asleep and rented")
        for gpu in self.drained:
            most = self.cluster.gpus - 1
            _expect(0 <= gpu <= most, "drained", gpu, f"the number of a GPU, 0 to {most}")
        off = [*self.down, *self.asleep, *(node for node, _ in self.waking)]
        for job in self.jobs:
            for gpu in job.placement:
                if 0 <= gpu < self.cluster.gpus and self.cluster.node_of[gpu] in off:
                    where = seen[self.cluster.node_of[gpu]]
                    raise InputError(f"snapshot: {_called(job)} runs on GPU {gpu}, of a node that is in {where}")

    def _check_gpus(self) -> None:
        """Whoever is on a GPU with others shares it: by parts up to the whole, or with at most one service."""
        on_gpu: dict[int, list[SnapshotJob]] = {}
        for job in self.jobs:
            for gpu in job.placement:
                on_gpu.setdefault(gpu, []).append(job)
        for gpu, jobs in on_gpu.items():
            if len(jobs) > 1:
                names = " and ".join(_called(job) for job in jobs[:2])
                if not all(job.shared for job in jobs):
                    raise InputError(f"snapshot: GPU {gpu} has {names}, but not all on it are shared")
                if any(job.gpu_frac < 1.0 for job in jobs):
                    asked = sum(job.gpu_frac for job in jobs)
                    if asked > 1.0 + 1e-6:
                        raise InputError(f"snapshot: GPU {gpu} is held {asked:g} times over; at most once")
                elif sum(job.kind == "service" for job in jobs) > 1:
                    raise InputError(f"snapshot: GPU {gpu} has two services; at most one is on a GPU")


_ADAPTER = TypeAdapter(Snapshot)
_HINT = "a snapshot is what a controller wrote, or Snapshot.to_dict"


_LARGE = 1_000_000_000
"""Whole numbers beyond are mistakes, and would not fit the simulator's tables."""


def load_snapshot(path: Path | str) -> Snapshot:
    """Read a snapshot from a JSON file."""
    path = Path(path)
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON: {error}", hint=_HINT) from None
    return Snapshot.from_dict(value, str(path))


def _check_job(job: SnapshotJob, now_s: float, gpus: int) -> None:
    for name, good, expected in _rules(job, now_s, gpus):
        if not good:
            raise InputError(f"snapshot: {_called(job)}, {name}: found {getattr(job, name)!r}, expected {expected}")


def _rules(job: SnapshotJob, now_s: float, gpus: int) -> Iterator[tuple[str, bool, str]]:
    """(field, whether it is good, what was expected)."""
    place, runs = job.placement, job.state == "running"
    ascending = all(a < b for a, b in itertools.pairwise(place))
    inside = not place or (place[0] >= 0 and place[-1] < gpus)
    yield "gpus", 1 <= job.gpus <= _LARGE, f"1 or more, {_LARGE} at most"
    yield "min_gpus", 1 <= job.min_gpus <= job.gpus, "1 to gpus"
    yield "max_gpus", job.gpus <= job.max_gpus <= _LARGE, f"gpus or more, {_LARGE} at most"
    yield "priority", abs(job.priority) <= _LARGE, f"at most {_LARGE}"
    yield "batch", 0 <= job.batch <= _LARGE, f"0 to {_LARGE}"
    yield "submit_s", job.submit_s <= now_s, f"a moment up to now_s, {now_s:g}"
    yield "since_s", job.since_s <= now_s, f"a moment up to now_s, {now_s:g}"
    yield "started_s", job.started_s is None or job.started_s <= now_s, f"null, or a moment up to now_s, {now_s:g}"
    yield "memory_mib", job.memory_mib >= 0.0, "0 or more"
    yield "gpu_frac", 0.0 < job.gpu_frac <= 1.0 and (job.gpu_frac == 1.0 or job.max_gpus == 1), "above 0, at most 1"
    yield "cpus", job.cpus >= 0.0, "0 or more"
    yield "ram_mib", job.ram_mib >= 0.0, "0 or more"
    yield "deadline_s", job.deadline_s is None or job.deadline_s > 0.0, "null, or seconds above 0"
    yield "banked_gpu_s", job.banked_gpu_s >= 0.0, "0 or more"
    yield "starts", job.starts >= runs, "1 or more of a job that runs, else 0 or more"
    yield "left_s", job.left_s is None or job.left_s >= 0.0, "null, or seconds, 0 or more"
    yield "sm_share", 0.0 < job.sm_share <= 1.0, "above 0, at most 1"
    yield "placement", bool(place) == runs, "GPUs of a job that runs, and none of one that does not"
    yield "placement", ascending and inside, f"numbers of GPUs, 0 to {gpus - 1}, ascending, each once"
    fits = not runs or job.min_gpus <= len(place) <= job.max_gpus
    yield "placement", fits, f"{job.min_gpus} to {job.max_gpus} GPUs"


def _called(job: SnapshotJob) -> str:
    return f"job {job.id} ({job.name!r})"


def _expect(good: bool, name: str, found: object, expected: str) -> None:
    if not good:
        raise InputError(f"snapshot: {name}: found {found!r}, expected {expected}")

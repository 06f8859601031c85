"""`fairlead steer`: for sites that keep plain sbatch. Jobs arrive held, Fairlead says when and where they run.

A job that arrives held is taken on: it is released, but not to begin before a moment in the future, which is pushed on
for as long as we live. Where we do not, the moment comes, and Slurm goes on by itself. What we know stands in Slurm's
own records (the comment of each job), so the next one that steers needs nothing else.

Slurm's jobs are of fixed width and have their GPUs to themselves; which GPUs of a node, Slurm chooses.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.errors import InputError
from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.slurm import commands
from fairlead.model.cluster import Cluster, GpuModel, Node, gpu_model_named
from fairlead.model.job import Job
from fairlead.policy.driver import Driver, Sources
from fairlead.policy.job_state import JobState
from fairlead.policy.plan import Plan
from fairlead.policy.stack import Stack

log = logging.getLogger("fairlead")
COMMENT = "fairlead"
_OF_A_JOB = re.compile(r"for job \d+|Invalid job id|Job/step already completing")
"""What scontrol says when it refuses one line, and not because Slurm is away."""
_PUSH = 0.4
"""The moment at which Slurm would go on by itself is pushed on when less than this part of the time is over."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job as Slurm tells it."""

    id: int
    name: str
    user: str
    state: str
    is_held: bool
    is_ours: bool
    gpus: int
    nodes: tuple[str, ...]
    submit_s: float
    limit_s: float
    ran_s: float
    priority: int

    @property
    def is_running(self) -> bool:
        """Whether it has its GPUs, or is about to leave them."""
        return self.state in ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED")


class SteeredJob(JobState):
    """A job that is taken on."""

    __slots__ = ("is_leaving", "told")

    def __init__(self, job: Job, told: SlurmJob) -> None:
        super().__init__(job)
        self.told = told
        self.is_leaving = False
        """It was requeued, and has not left its GPUs yet."""


class Steering:
    """One partition. `step` is one look at Slurm, one decision, and what follows from it."""

    def __init__(self, stack: Stack, partition: str, *, failsafe_s: float, model: str = "V100") -> None:
        if stack.sharing.shares or stack.sizing.elastic or stack.powering.active:
            raise InputError(
                f"{stack.spec} shares GPUs, changes widths or turns nodes off, and Slurm's own jobs allow none of it",
                hint="choose orderings and placings only, or bring nodes by pilots: fairlead up --engine slurm",
            )
        self._partition, self._failsafe_s = partition, failsafe_s
        self._cluster = cluster_of(partition, gpu_model_named(model))
        self._numbers = {node.name: number for number, node in enumerate(self._cluster.nodes)}
        self.driver = Driver[SteeredJob](self._cluster, stack, Sources(oracle=self))
        self._pushed_s = 0.0
        self.preempted = 0
        self._begun: set[tuple[int, int]] = set()

    def remaining_s(self, state: JobState) -> float:
        """What its time limit leaves."""
        assert isinstance(state, SteeredJob)
        return max(state.told.limit_s - state.told.ran_s, 1.0)

    @property
    def started(self) -> int:
        """How many starts were decided here."""
        return len(self._begun)

    def step(self) -> None:
        """Look, decide, and have Slurm do it."""
        now_s = time.time()
        self.driver.view.now_s = now_s
        found = {job.id: job for job in jobs_of(self._partition)}
        lines = self._take_in(found)
        self._follow(found)
        self._leave_to_others(found.values())
        while self.driver.is_due(now_s):
            lines += self._carry_out(self.driver.decide())
        lines += self._start()
        if now_s - self._pushed_s > _PUSH * self._failsafe_s:
            self._pushed_s = now_s
            lines += [self._push(job_id) for job_id in self.driver.view.waiting]
        _scontrol(lines)

    # ---- what Slurm says ----

    def _take_in(self, found: Mapping[int, SlurmJob]) -> list[str]:
        """Jobs that arrived held, and those that were taken on before us."""
        lines = []
        for told in found.values():
            if told.id in self.driver.jobs or told.state in commands.OVER or told.gpus < 1:
                continue
            if not told.is_ours and not (told.state == "PENDING" and told.is_held):
                continue  # Slurm's own business
            if told.is_ours and told.is_held:
                continue  # somebody holds it, and means it
            job = Job(
                told.id, told.name, told.submit_s, told.gpus, min_gpus=told.gpus, max_gpus=told.gpus,
                priority=told.priority, user=told.user,
            )  # fmt: skip
            state = SteeredJob(job, told)
            self.driver.arrived(state)
            if told.is_running:
                self._seat(state, told)
            elif not told.is_ours:
                lines += [f"update JobId={told.id} Comment={COMMENT}", self._push(told.id), f"release {told.id}"]
        return lines

    def _follow(self, found: Mapping[int, SlurmJob]) -> None:
        for job_id, state in list(self.driver.jobs.items()):
            told = found.get(job_id)
            if told is None or told.state in commands.OVER:
                self.driver.ended(state)
                continue
            state.told = told
            if state.is_leaving and not told.is_running:
                state.is_leaving = False
                self.driver.happened()
            if told.is_ours and told.is_held and not told.is_running:  # by somebody who means it
                self.driver.withdrawn(state)
            elif told.is_running and not state.gpus and not state.is_leaving:
                self._seat(state, told)  # Slurm went on by itself

    def _seat(self, state: SteeredJob, told: SlurmJob) -> None:
        """It runs there, whoever has decided that."""
        view, left, gpus = self.driver.view, told.gpus, list[int]()
        for node in (self._numbers[name] for name in told.nodes if name in self._numbers):
            free = [g for g in range(*self._cluster.first_gpu[node : node + 2]) if not view.on_gpu[g]]
            each = free[: min(left, math.ceil(told.gpus / len(told.nodes)))]
            gpus, left = gpus + each, left - len(each)
        if left == 0:
            for gpu in gpus:
                if gpu in view.drained:
                    self.driver.undrain(gpu)
            view.start(state, tuple(gpus))

    def _leave_to_others(self, found: Iterable[SlurmJob]) -> None:
        """GPUs that jobs of Slurm's own have, and those that are being left, take none of ours."""
        taken = [0] * len(self._cluster.nodes)
        for told in found:
            state = self.driver.jobs.get(told.id)
            if told.is_running and (state is None or state.is_leaving):
                for name in told.nodes:
                    if name in self._numbers:
                        taken[self._numbers[name]] += math.ceil(told.gpus / len(told.nodes))
        for node, count in enumerate(taken):
            gpus = range(*self._cluster.first_gpu[node : node + 2])
            idle = [g for g in reversed(gpus) if not self.driver.view.on_gpu[g]]
            for gpu in idle:
                if gpu in idle[:count] and gpu not in self.driver.view.drained:
                    self.driver.drain(gpu)
                elif gpu not in idle[:count] and gpu in self.driver.view.drained:
                    self.driver.undrain(gpu)

    # ---- what Slurm is told ----

    def _carry_out(self, plan: Plan) -> list[str]:
        lines = []
        moved = [place.job_id for place in plan.place if self.driver.jobs[place.job_id].told.is_running]
        for job_id in (*plan.evict, *moved):
            state = self.driver.jobs[job_id]
            if state.told.is_running and not state.is_leaving:
                state.is_leaving = True
                self.preempted += 1
                lines += [f"requeue {job_id}", self._push(job_id), f"update JobId={job_id} ReqNodeList="]
        return lines

    def _start(self) -> list[str]:
        """Those that have GPUs in the view and wait at Slurm's, once nobody is on their way out there."""
        lines = []
        for job_id in list(self.driver.view.running):
            state = self.driver.jobs[job_id]
            if state.told.state == "PENDING" and not state.is_leaving:
                names = sorted({self._cluster.nodes[self._cluster.node_of[g]].name for g in state.gpus})
                where = f"ReqNodeList={','.join(names)} NumNodes={len(names)}"
                lines.append(f"update JobId={job_id} {where} StartTime=now")
                self._begun.add((job_id, state.starts))
        return lines

    def _push(self, job_id: int) -> str:
        return f"update JobId={job_id} StartTime=now+{math.ceil(self._failsafe_s)}"


def cluster_of(partition: str, model: GpuModel) -> Cluster:
    """The nodes of a partition that have GPUs."""
    rows = (line.split("|") for line in commands.run(
        ["sinfo", "--Node", "--noheader", f"--partition={partition}", "--format=%N|%G"]
    ).splitlines())  # fmt: skip
    nodes = {name: int(found[1]) for name, gres in rows if (found := re.search(r"gpu(?::[^:,(]+)?:(\d+)", gres))}
    if not nodes:
        raise InputError(f"no node of the partition {partition!r} has GPUs", hint="see: sinfo -N -o '%N %P %G'")
    return Cluster(tuple(Node(name, gpus, model) for name, gpus in sorted(nodes.items())))


def jobs_of(partition: str) -> list[SlurmJob]:
    """All jobs of a partition that Slurm remembers."""
    told = json.loads(commands.run(["squeue", "--json", "--states=all", f"--partition={partition}"]))
    return [_job(one) for one in told["jobs"]]


def _job(told: Mapping[str, Any]) -> SlurmJob:
    limit = told.get("time_limit")
    limit_s = 60.0 * limit if isinstance(limit, (int, float)) and 0 < limit < 10**7 else 86400.0
    running = told["job_state"] == "RUNNING"
    return SlurmJob(
        id=int(told["job_id"]), name=str(told["name"]), user=str(told["user_name"]), state=str(told["job_state"]),
        is_held=int(told["priority"]) == 0, is_ours=str(told.get("comment") or "") == COMMENT,
        gpus=_gpus(told), nodes=tuple(_expanded(str(told.get("nodes") or ""))),
        submit_s=float(told["submit_time"]), limit_s=limit_s,
        ran_s=max(time.time() - float(told["start_time"]), 0.0) if running else 0.0,
        priority=0,
    )  # fmt: skip


def _gpus(told: Mapping[str, Any]) -> int:
    """On all nodes; Slurm counts GPUs among what is requested only where its accounting knows them."""
    each = {"tres_per_job": 1, "tres_per_node": int(told.get("node_count") or 1), "tres_per_task": 1}
    each["tres_per_task"] = int(told.get("tasks") or 1)
    for name, times in each.items():
        if found := re.search(r"gpu(?::[^:,=]+)?[:=](\d+)", str(told.get(name) or "")):
            return times * int(found[1])
    counted = re.search(r"gres/gpu(?::[^=,]+)?=(\d+)", str(told.get("tres_req_str") or ""))
    return int(counted[1]) if counted else 0


def _expanded(text: str) -> list[str]:
    """`n[0-2,5],m1` as n0, n1, n2, n5, m1; leading zeros stay."""
    found = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?[^,\[]*", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if match is None:
            found.append(part)
            continue
        for piece in match[2].split(","):
            first, _, last = piece.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            found += [f"{match[1]}{number:0{len(first)}d}{match[3]}" for number in numbers]
    return found


def _scontrol(lines: list[str]) -> None:
    """All at once: a process for each would take longer than all decisions.

    A job may have started, ended or been held between our look and this call. Slurm refuses that one line and takes the
    others, so a refusal is no failure: the next step looks again.
    """
    if not lines:
        return
    try:
        said = commands.run(["scontrol"], "\n".join([*lines, "quit"]) + "\n")
    except EngineError as error:
        if not _OF_A_JOB.search(str(error)):
            raise
        said = f"error: {error}"
    for line in said.splitlines():
        if "error" in line.lower():
            log.warning("scontrol: %s", line.strip())

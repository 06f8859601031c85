"""A simulator and a controller that live through the same: the controller is told what happens in the simulated world.

The simulator runs a trace. At each of its decisions the controller is told what happened since the one before: through
its store, its engine and its clock, as in real life. What jobs and GPUs report is the simulated world's. Then both
decide, and the plans are compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import polars as pl

from fairlead.live.control.clock import Clock
from fairlead.live.control.controller import Controller
from fairlead.live.control.observations import Observations
from fairlead.live.control.settings import Settings
from fairlead.live.engines.engine import GpuReading, Progress
from fairlead.live.jobs.job import LiveJob
from fairlead.live.jobs.request import JobRequest
from fairlead.live.storage.database import Database
from fairlead.live.storage.store import Store
from fairlead.model.catalogue import Catalogue
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.interference import built_in
from fairlead.model.job import Job
from fairlead.model.snapshot import Snapshot
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.driver import Sources
from fairlead.policy.plan import Plan
from fairlead.policy.sources import Fleet, Report
from fairlead.policy.stack import Stack
from fairlead.policy.view import JobState, View
from fairlead.sim.result import Result
from fairlead.sim.simjob import SimJob
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace
from tests.live.piloted import MadeUpSlurm, PilotedEngine
from tests.live.scripted import AtOnce, Key, ScriptedEngine

OFFSET = 1
"""The store numbers jobs from 1, a trace from 0."""


class World:
    """What jobs and GPUs report: the simulator's, asked about the controller's jobs."""

    def __init__(self) -> None:
        self.simulation: Simulation
        self.view: View

    def of(self, state: JobState) -> JobState:
        number = state.job.id - OFFSET
        return self.view.running.get(number) or self.view.waiting[number]

    def done(self, state: JobState) -> int:
        return self.simulation.observations.done(self.of(state))

    def next_end_s(self, state: JobState) -> float:
        return self.simulation.observations.next_end_s(self.of(state))

    def left_s(self, state: JobState) -> float:
        return self.simulation.observations.left_s(self.of(state))

    def kept_speed(self, state: JobState) -> float:
        return self.simulation.observations.kept_speed(self.of(state))

    def utilisation(self, gpu: int) -> float:
        return self.simulation.observations.utilisation(gpu)

    def report(self, state: JobState) -> Report | None:
        return self.simulation.observations.report(self.of(state))

    def paid_gpu_s(self) -> float:
        return self.simulation.observations.paid_gpu_s()

    def remaining_s(self, state: JobState) -> float:
        return self.simulation.observations.remaining_s(self.of(state))

    def fleet(self) -> Fleet:
        found = self.simulation.observations.fleet()
        offline = [j + OFFSET if j >= 0 else j for j in found.offline.tolist()]
        return dataclasses.replace(found, service=found.service + OFFSET, offline=found.offline * 0 + offline)


class Twin:
    """The controller, and how it is told."""

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        spec: str,
        round_s: float | None,
        world: World,
        trace: Trace,
        slurm: MadeUpSlurm | None,
    ) -> None:
        self._spec, self._round_s, self._world = spec, round_s, world
        self._catalogue, self._estimates_s = Catalogue(trace.profiles.values()), trace.frame["duration_s"].to_list()
        self.store = Store(Database(folder / "twin.db"))
        self.now_s = 0.0
        self.engine = self._make_engine(folder, cluster, slurm)
        self.controller = self.restart()

    def _make_engine(self, folder: Path, cluster: Cluster, slurm: MadeUpSlurm | None) -> ScriptedEngine | PilotedEngine:
        if slurm is not None:
            return PilotedEngine(cluster, folder, slurm, self.store, wall_s=lambda: self.now_s)
        made = ScriptedEngine(cluster, wall_s=lambda: self.now_s)
        made.wakes_at_once = False
        return made

    def restart(self) -> Controller:
        """As after a crash: what it knew is gone but for the store and the engine."""
        clock = Clock(self.store.fact("clock"), boot_s=lambda: self.now_s, wall_s=lambda: self.now_s, boot="one")
        stack = registry.build(self._spec, round_s=self._round_s)
        w, has_services = self._world, hasattr(self._world, "simulation") and self._world.view.meter is not None
        sources = Sources(w, w, w, w if has_services else None, w)
        observations = Observations(clock, built_in("eaco"), is_fake=True)
        settings = Settings(poll_s=1e9, save_s=0.0)
        self.controller = Controller(
            self.store,
            self.engine,
            stack,
            clock,
            observations,
            settings,
            sources=sources,
            workers=AtOnce(),
            catalogue=self._catalogue,
        )
        self.plans: list[Plan] = []
        driver = self.controller.driver
        decide = driver.decide

        def noted() -> Plan:
            self.plans.append(decide())
            return self.plans[-1]

        driver.decide = noted  # type: ignore[method-assign]
        self.controller.decisions.decide = self.controller.decisions.decide_once  # type: ignore[method-assign]
        return self.controller

    def plan(self, view: View) -> Plan:
        """Hear what happened, each thing when it did, and decide once."""
        if view.meter is not None:
            self._meter(view.meter.fleet())
        for at_s, told in itertools.groupby(sorted(self._news(view), key=lambda news: news[:2]), lambda news: news[0]):
            self.now_s = at_s
            for _, _, tell in told:
                tell()
            if at_s < view.now_s:
                self.settle(1)
        self.now_s = view.now_s
        self.controller._engine_called()
        self.controller.step()
        plan = self.plans.pop()
        assert not self.plans
        return plan

    def _news(self, view: View) -> Iterator[tuple[float, int, Callable[[], None]]]:
        """(moment, order within it, how it is told); in rounds the policy hears of it later."""
        changes, driver, now_s = view.changes, self.controller.driver, view.now_s
        for state in changes.ended:
            yield min(cast(SimJob, state).end_s, now_s), 0, partial(self._end, state)
        for state in changes.returned:
            yield now_s, 1, lambda state=state: self.engine.evict(self._attempt(state))
        for state in changes.turned:
            progress = Progress(self._world.simulation.observations.done(state))
            yield now_s, 2, lambda state=state, told=progress: self.engine.report(self._attempt(state), told)
        for node in set(changes.nodes) & driver.view.waking:
            yield min(driver.awake_s(node), now_s), 3, partial(self.engine.set_awake, node)
        for state in changes.arrived:
            yield min(state.job.submit_s, now_s), 4, partial(self._submit, state.job)

    def _meter(self, fleet: Fleet) -> None:
        """The GPUs with services as they are read from now on."""
        for row, gpu in enumerate(fleet.gpu.tolist()):
            busy, active = float(fleet.utilisation_frac[row]), float(fleet.sm_activity_frac[row])
            used_mib = float(fleet.memory_frac[row]) * self.engine.cluster.gpu_model(gpu).memory_mib
            read = GpuReading(gpu, service_utilisation_frac=busy, service_sm_activity_frac=active)
            accepts = bool(fleet.accepts[row])
            self.engine.read(dataclasses.replace(read, service_memory_mib=used_mib, accepts_offline=accepts))

    def _end(self, state: JobState) -> None:
        if state.job.kind == "service":  # live, only those end that say so
            self.engine.report(self._attempt(state), Progress(has_finished=True))
        self.engine.end(self._attempt(state))

    def settle(self, turns: int = 3) -> None:
        """Everybody who is to leave leaves, everybody who may start starts; nothing is decided."""
        self.controller.decisions.decide = lambda work, now_s: True  # type: ignore[method-assign]
        for _ in range(turns):
            self.controller._engine_called()
            self.controller.step()
        self.controller.decisions.decide = self.controller.decisions.decide_once  # type: ignore[method-assign]

    def _attempt(self, state: JobState) -> Key:
        (key,) = (key for key in self.engine.running if key[0] == state.job.id + OFFSET)
        return key

    def _submit(self, job: Job) -> None:
        wanted: dict[str, Any] = {
            name: getattr(job, name)
            for name in (
                "gpus",
                "gpu_frac",
                "min_gpus",
                "max_gpus",
                "memory_mib",
                "kind",
                "deadline_s",
                "priority",
                "batch",
            )
        }
        wanted["estimate_s"] = self._estimates_s[job.id] if job.kind != "service" else None
        made = JobRequest(command=["train"], name=job.name, profile=job.profile.name, **wanted)
        job_id, is_new = self.store.submit(made, job.user, job.submit_s, self.now_s).result()
        live = LiveJob(made.job(job_id, job.user, job.submit_s, self._catalogue), made, self.now_s)
        assert is_new
        assert live.job == dataclasses.replace(job, id=job_id)
        self.controller.submitted(live)

    def close(self) -> None:
        self.controller.close()
        self.engine.close()
        self.store.database.close()


class Witness(Stack):
    """The simulator's stack, which has the twin decide as well."""

    def __init__(
        self,
        spec: str,
        round_s: float | None,
        twin: Twin,
        world: World,
        restarts: random.Random | None,
        look: Callable[[Twin, View], None],
    ) -> None:
        made = registry.build(spec, round_s=round_s)
        super().__init__(
            made.sizing, made.ordering, made.sharing, made.placing, made.powering, round_s=round_s, spec=made.spec
        )
        self.explains = True
        self._twin, self._world, self._restarts, self._look = twin, world, restarts, look
        self.plans = 0

    def decide(self, view: View) -> Plan:
        twin = self._twin
        self._world.view = view
        if self.plans:
            twin.settle()
            self._look(twin, view)
        else:
            twin.restart()  # only now is it known whether there are services
        if self._restarts is not None and self._restarts.random() < 0.3:
            twin.restart()
        theirs = twin.plan(view)
        ours = super().decide(view)
        self.plans += 1
        assert same(theirs) == same(shifted(ours)), f"at {view.now_s} s, decision {self.plans}"
        # One that was restarted looks at everybody again, and says so.
        assert self._restarts is not None or theirs.waits == shifted(ours).waits
        return ours


def same(plan: Plan) -> tuple[Any, ...]:
    return plan.evict, plan.place, plan.sleep, plan.wake, plan.wake_s


def shifted(plan: Plan) -> Plan:
    places = [place._replace(job_id=place.job_id + OFFSET) for place in plan.place]
    evicted, waits = [j + OFFSET for j in plan.evict], {j + OFFSET: why for j, why in plan.waits.items()}
    return dataclasses.replace(plan, evict=evicted, place=places, waits=waits)


def crowd(seed: int) -> Trace:
    rng = random.Random(seed)
    rows = sorted(
        (float(rng.randrange(900)), rng.choice((1, 1, 1, 2, 4, 6)), float(rng.randrange(5, 900))) for _ in range(40)
    )
    return Trace.from_columns(
        pl.DataFrame({
            "job_id": [f"j{i}" for i in range(len(rows))],
            "submit_s": [r[0] for r in rows],
            "gpus": [r[1] for r in rows],
            "duration_s": [r[2] for r in rows],
            "min_gpus": [rng.choice((1, r[1])) for r in rows],
            "max_gpus": [rng.choice((12, r[1])) for r in rows],
            "profile": [rng.choice(("AlexNet", "ResNet-50", "VGG-16", "BERT")) for _ in rows],
            "priority": [rng.choice((-1, 0, 0, 1)) for _ in rows],
            "deadline_s": [rng.choice((None, 2000.0, 9000.0)) for _ in rows],
        })
    )  # fmt: skip


def crowd_by_parts(seed: int) -> Trace:
    """The same with parts of GPUs where one is asked for."""
    rng, frame = random.Random(seed), crowd(seed).frame
    parts = [rng.choice((0.2, 0.3, 0.5, 0.8)) if gpus == 1 else 1.0 for gpus in frame["gpus"]]
    most = [1 if part < 1.0 else gpus for part, gpus in zip(parts, frame["max_gpus"], strict=True)]
    return Trace.from_columns(frame.with_columns(pl.Series("gpu_frac", parts), pl.Series("max_gpus", most)))


def cluster_of(spec: str, seed: int) -> Cluster:
    rng = random.Random(seed)
    scores = {name: [rng.choice((0.9, 1.0, 1.1, 1.6)) for _ in range(12)] for name in "ABCD"}
    cluster = parse_shape("3x4").with_variability(Variability(scores))
    return cluster.rented(Rental(7.0, 10.0, 5.0)) if registry.build(spec).powering.rents else cluster


def run_both(
    spec: str, trace: Trace, cluster: Cluster, folder: Path,
    round_s: float | None = None, restarts: random.Random | None = None,
    look: Callable[[Twin, View], None] = lambda twin, view: None, slurm: MadeUpSlurm | None = None,
) -> tuple[int, Result]:  # fmt: skip
    """How many plans both have made, each the same, and what came of it; `look` sees them before every decision.

    In rounds only decisions wait for the next one, as in real life. With `slurm` the controller's nodes are pilots.
    """
    world = World()
    twin = Twin(folder, cluster, spec, round_s, world, trace, slurm)
    try:
        witness = Witness(spec, round_s, twin, world, restarts, look)
        asleep = tuple(range(len(cluster.nodes))) if witness.powering.rents else ()
        nothing = Snapshot(0.0, witness.spec, cluster, asleep=asleep)
        world.simulation = Simulation.from_snapshot(nothing, witness, later=trace, interference=built_in("eaco"))
        result = world.simulation.run()
        return witness.plans, result
    finally:
        twin.close()

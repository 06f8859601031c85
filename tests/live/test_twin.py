"""The same events through the simulator and through a controller give the same plans, restarts in between or not.

The simulator runs a trace. At each of its decisions the controller is told what happened since the one before: through
its store, its engine and its clock, as in real life. What jobs and GPUs report is the simulated world's. Then both
decide, and the plans are compared.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairlead import traces
from fairlead.live import request as requests
from fairlead.live.clock import Clock
from fairlead.live.controller import Controller, Settings
from fairlead.live.database import Database
from fairlead.live.desk import Sources
from fairlead.live.engine import Key, Progress
from fairlead.live.livejob import LiveJob
from fairlead.live.observed import Observed
from fairlead.live.request import JobRequest
from fairlead.live.store import Store
from fairlead.model.cluster import Cluster, Rental, parse_shape
from fairlead.model.interference import built_in
from fairlead.model.job import Job
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.plan import Plan
from fairlead.policy.stack import Stack
from fairlead.policy.view import Fleet, JobState, Report, View
from fairlead.sim.simulation import Simulation
from fairlead.traces.trace import Trace
from tests.live.scripted import AtOnce, ScriptedEngine

PRESETS = sorted({*registry.PRESETS, "fifo", "srtf", "placing=pm-first", "sharing=gandiva", "sizing=pollux"})
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
        return self.simulation.answers.done(self.of(state))

    def next_end_s(self, state: JobState) -> float:
        return self.simulation.answers.next_end_s(self.of(state))

    def left_s(self, state: JobState) -> float:
        return self.simulation.answers.left_s(self.of(state))

    def kept_speed(self, state: JobState) -> float:
        return self.simulation.answers.kept_speed(self.of(state))

    def utilisation(self, gpu: int) -> float:
        return self.simulation.answers.utilisation(gpu)

    def report(self, state: JobState) -> Report | None:
        return self.simulation.answers.report(self.of(state))

    def paid_gpu_s(self) -> float:
        return self.simulation.answers.paid_gpu_s()

    def remaining_s(self, state: JobState) -> float:
        return self.simulation.answers.remaining_s(self.of(state))

    def fleet(self) -> Fleet:
        found = self.simulation.answers.fleet()
        offline = [j + OFFSET if j >= 0 else j for j in found.offline.tolist()]
        return dataclasses.replace(found, service=found.service + OFFSET, offline=found.offline * 0 + offline)


class Twin:
    """The controller, and how it is told."""

    def __init__(self, folder: Path, cluster: Cluster, spec: str, round_s: float | None, world: World) -> None:
        self._spec, self._round_s, self._world = spec, round_s, world
        self.engine = ScriptedEngine(cluster, wall_s=lambda: self.now_s)
        self.engine.wakes_at_once = False
        self.store = Store(Database(folder / "twin.db"))
        self.now_s = 0.0
        self.controller = self.restart()

    def restart(self) -> Controller:
        """As after a crash: what it knew is gone but for the store and the engine."""
        clock = Clock(self.store.fact("clock"), boot_s=lambda: self.now_s, wall_s=lambda: self.now_s, boot="one")
        stack = registry.build(self._spec, round_s=self._round_s)
        w, has_services = self._world, hasattr(self._world, "simulation") and self._world.view.meter is not None
        sources = Sources(w, w, w, w if has_services else None, w)
        observed = Observed(clock, built_in("eaco"), is_fake=True)
        settings = Settings(poll_s=1e9, save_s=0.0)
        self.controller = Controller(
            self.store, self.engine, stack, clock, observed, settings, sources=sources, workers=AtOnce()
        )
        self.plans: list[Plan] = []
        desk = self.controller.desk
        decide = desk.decide

        def noted() -> Plan:
            self.plans.append(decide())
            return self.plans[-1]

        desk.decide = noted  # type: ignore[method-assign]
        self.controller._decide = self.controller.decide_once  # type: ignore[method-assign]
        return self.controller

    def plan(self, view: View) -> Plan:
        """Hear what happened, and decide once."""
        changes, controller, self.now_s = view.changes, self.controller, view.now_s
        for state in changes.ended:
            self.engine.end(self._attempt(state))
        for state in changes.returned:
            self.engine.evict(self._attempt(state))
        for state in changes.turned:
            self.engine.report(self._attempt(state), Progress(self._world.simulation.answers.done(state)))
        for node in set(changes.nodes) & controller.desk.view.waking:
            self.engine.set_awake(node)
        for state in changes.arrived:
            self._submit(state.job)
        controller._engine_called()
        controller.step()
        plan = self.plans.pop()
        assert not self.plans
        return plan

    def settle(self) -> None:
        """Everybody who is to leave leaves, everybody who may start starts; nothing is decided."""
        self.controller._decide = lambda now_s: None  # type: ignore[method-assign]
        for _ in range(3):
            self.controller._engine_called()
            self.controller.step()
        self.controller._decide = self.controller.decide_once  # type: ignore[method-assign]

    def _attempt(self, state: JobState) -> Key:
        (key,) = (key for key in self.engine.running if key[0] == state.job.id + OFFSET)
        return key

    def _submit(self, job: Job) -> None:
        wanted: dict[str, Any] = {
            name: getattr(job, name)
            for name in ("gpus", "min_gpus", "max_gpus", "memory_mib", "kind", "deadline_s", "priority", "batch")
        }
        made = JobRequest(command=["train"], name=job.name, profile=job.profile.name, **wanted)
        job_id, is_new = self.store.submit(made, job.user, job.submit_s, self.now_s).result()
        live = LiveJob(made.job(job_id, job.user, job.submit_s), made, self.now_s)
        assert is_new
        assert live.job == dataclasses.replace(job, id=job_id)
        self.controller.submitted(live)

    def close(self) -> None:
        self.controller.close()
        self.store.database.close()


class Witness(Stack):
    """The simulator's stack, which has the twin decide as well."""

    def __init__(self, spec: str, round_s: float | None, twin: Twin, world: World, restarts: random.Random | None):
        made = registry.build(spec, round_s=round_s)
        super().__init__(
            made.sizing, made.ordering, made.sharing, made.placing, made.powering, round_s=round_s, spec=made.spec
        )
        self.explains = True
        self._twin, self._world, self._restarts = twin, world, restarts
        self.plans = 0

    def decide(self, view: View) -> Plan:
        twin = self._twin
        self._world.view = view
        if self.plans:
            twin.settle()
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
            "model": [rng.choice(("AlexNet", "ResNet-50", "VGG-16", "BERT")) for _ in rows],
            "priority": [rng.choice((-1, 0, 0, 1)) for _ in rows],
            "deadline_s": [rng.choice((None, 2000.0, 9000.0)) for _ in rows],
        })
    )  # fmt: skip


def cluster_of(spec: str, seed: int) -> Cluster:
    rng = random.Random(seed)
    scores = {name: [rng.choice((0.9, 1.0, 1.1, 1.6)) for _ in range(12)] for name in "ABCD"}
    cluster = parse_shape("3x4").with_variability(Variability(scores))
    return cluster.rented(Rental(7.0, 10.0, 5.0)) if registry.build(spec).powering.rents else cluster


def run_both(
    spec: str, trace: Trace, cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch,
    round_s: float | None = None, restarts: random.Random | None = None,
) -> int:  # fmt: skip
    monkeypatch.setattr(requests, "profile_named", trace.profile)
    world = World()
    twin = Twin(folder, cluster, spec, round_s, world)
    try:
        witness = Witness(spec, round_s, twin, world, restarts)
        world.simulation = Simulation(trace, cluster, witness, interference=built_in("eaco"))
        world.simulation.run()
    finally:
        twin.close()
    return witness.plans


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("spec", PRESETS)
def test_simulator_and_controller_give_the_same_plans(
    spec: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_both(spec, crowd(seed), cluster_of(spec, seed), tmp_path, monkeypatch) > 40


@pytest.mark.parametrize("spec", PRESETS)
def test_they_do_so_when_the_controller_is_restarted_again_and_again(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_both(spec, crowd(2), cluster_of(spec, 2), tmp_path, monkeypatch, restarts=random.Random(2))


@pytest.mark.parametrize("spec", ["tiresias", "pal-nonsticky", "srtf"])
def test_they_do_so_in_rounds(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_both(spec, crowd(3), cluster_of(spec, 3), tmp_path, monkeypatch, round_s=60.0)


@pytest.mark.parametrize("restarts", [None, random.Random(4)], ids=["", "restarted"])
def test_they_do_so_beside_services(
    restarts: random.Random | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = traces.load("synthetic:fleet:services=6:hours=2:start_h=10")
    run_both("muxflow", trace, parse_shape("2x4:T4"), tmp_path, monkeypatch, restarts=restarts)

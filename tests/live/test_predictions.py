"""Predictions come true: of random live runs with nobody else to come, to the second.

At random moments of a twin run (`twins`) the controller is asked for a snapshot, as for the page or a what-if, and the
prediction is made of what JSON keeps of it. Then the run goes on, and every start and end is compared.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
from pathlib import Path

import pytest

from fairlead.live.control.snapshots import snapshot
from fairlead.model.cluster import parse_shape
from fairlead.model.profile import Profile
from fairlead.model.service import DailyLoad, Service
from fairlead.model.snapshot import Snapshot
from fairlead.policy import registry
from fairlead.policy.view import View
from fairlead.sim.result import Result
from fairlead.traces.services import service_fleet
from fairlead.whatif import Prediction, predict
from tests.live.twins import OFFSET, Twin, cluster_of, crowd, run_both

SEEDS = range(int(os.environ.get("FAIRLEAD_SEEDS", "1")))
"""More of them by hand."""
PRESETS = ["fifo", *registry.PRESETS]
OTHERS = ["srtf", "ordering=fair", "ordering=deadline", "sharing=gandiva", "sizing=pollux", "sizing=sia,sharing=eaco"]
LOOKS = 3
_SAME_S = 1.0


class Prophet:
    """Predicts now and then, when everybody has come."""

    def __init__(self, last_s: float, seed: int, *, between: bool) -> None:
        self._last_s, self._rng, self._between = last_s, random.Random(seed), between
        self.told: list[tuple[Prediction, set[int]]] = []
        """With the jobs that had not started."""

    def look(self, twin: Twin, view: View) -> None:
        if twin.now_s < self._last_s or len(self.told) >= LOOKS or self._rng.random() < 0.7:
            return
        before_s = twin.now_s
        if self._between:  # nothing has happened since the last decision; a while passes
            twin.now_s += self._rng.random() * 0.9 * (view.now_s - before_s)
        saved = json.dumps(_asked(twin).to_dict(), allow_nan=False)
        found = Snapshot.from_dict(json.loads(saved))
        self.told.append((predict(found), {job.id for job in found.jobs if not job.starts}))


def _asked(twin: Twin) -> Snapshot:
    controller = twin.controller
    controller.driver.view.now_s = controller.clock.now_s()
    return snapshot(controller)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("round_s", [None, 60.0], ids=["events", "rounds"])
@pytest.mark.parametrize("spec", [*PRESETS, *OTHERS])
def test_predictions_come_true(spec: str, round_s: float | None, seed: int, tmp_path: Path) -> None:
    trace = crowd(seed)
    prophet = Prophet(trace.frame["submit_s"].max(), seed, between=round_s is None)
    _, result = run_both(spec, trace, cluster_of(spec, seed), tmp_path, round_s=round_s, look=prophet.look)
    compare(prophet, result)


def test_predictions_come_true_beside_services(tmp_path: Path) -> None:
    fleet = service_fleet(4, 8.0, load=0.4, backlog=0.7)
    trace = dataclasses.replace(fleet, profiles={name: steady(profile) for name, profile in fleet.profiles.items()})
    prophet = Prophet(trace.frame["submit_s"].max(), 0, between=True)
    _, result = run_both("muxflow", trace, parse_shape("1x4:T4"), tmp_path, look=prophet.look)
    compare(prophet, result)


def steady(profile: Profile) -> Profile:
    """A service with the same load day and night, and no use of memory bandwidth, which nobody meters."""
    if profile.service is None:
        return profile
    solo = dataclasses.replace(profile.service.solo, bandwidth_frac=0.0)
    return dataclasses.replace(profile, service=Service(DailyLoad(0.3, 0.0), solo, profile.service.slo_s))


def compare(prophet: Prophet, result: Result) -> None:
    assert prophet.told
    came = result.jobs.select("first_start_s", "finish_s").rows()
    for told, new in prophet.told:
        wrong = []
        for job in told.jobs:
            start_s, end_s = came[job.id - OFFSET]
            if job.id in new and (job.start_s is None or abs(job.start_s - start_s) > _SAME_S):
                wrong.append((job.id, "start", job.start_s, start_s))
            if job.kind != "service" and (job.end_s is None or abs(job.end_s - end_s) > _SAME_S):
                wrong.append((job.id, "end", job.end_s, end_s))
        assert not wrong, f"at {told.now_s} s of {len(told.jobs)}: {wrong[:6]}"

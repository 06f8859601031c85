"""What is learnt of how jobs scale, step by step."""

from __future__ import annotations

import pytest

from fairlead.model.adaptive_batch import AdaptiveBatch
from fairlead.model.job import Job
from fairlead.model.profile import Power, Profile
from fairlead.model.training import FixedBatch, Training, packed_nodes
from fairlead.policy.sizing.arrivals import Arrivals
from fairlead.policy.sizing.budget import JobType
from fairlead.policy.sizing.curves import Curves, Kind, all_widths, usual_widths
from fairlead.policy.sources import Report
from fairlead.policy.view import JobState, View
from tests.sim.toys import TABLE, rented, toy_app


def report(training: Training, epoch: int, width: int, nodes: int | None = None) -> Report:
    nodes = nodes or packed_nodes(width, 4)
    goodput, steps = training.goodput_at(epoch, width, nodes), training.steps_at(epoch, width, nodes)
    return Report(epoch, len(training.samples), training.samples[epoch], nodes, goodput, steps)


def kind_of(training: Training, batch: int = 0) -> Kind:
    return Kind(Profile(training.name, training=training), batch)


def test_the_widths_that_pack_well() -> None:
    assert usual_widths(4, 64) == (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
    assert usual_widths(8, 20) == (1, 2, 4, 8, 16)
    assert usual_widths(6, 6) == (1, 2, 4, 6)
    assert usual_widths(1, 3) == (1, 2, 3)
    assert usual_widths(8, 3) == (1, 2)
    assert all_widths(4, 14) == (1, 2, 3, 4, 8, 12)
    assert all_widths(8, 3) == (1, 2, 3)


def test_the_limit_doubles_with_the_widest_that_was_tried() -> None:
    app = toy_app()
    kind = kind_of(app)
    assert kind.limit == 1
    assert kind.declared
    for width in (1, 2, 4, 8):
        assert kind.limit == width
        assert kind.learn(width, report(app, 0, width))
        assert not kind.learn(width, report(app, 0, width))  # nothing new
    assert kind.limit == 16
    assert len(kind.seen) == 4
    assert Kind(Profile("x"), 0).limit > 1_000  # declared: nothing to learn
    assert Kind(Profile("toy", training=app), 0, prior=app).limit > 1_000


def test_rows_stop_at_the_limit_and_at_the_jobs_bounds() -> None:
    app = toy_app()
    curves = Curves(known=False, adapts_batch=True)
    state = JobState(Job(0, "0", 0.0, 1, profile=Profile("toy", training=app), min_gpus=2, max_gpus=8))
    widths = (1, 2, 4, 8, 16)
    row = curves.row(state, 0, widths, 4)
    assert [g > 0 for g in row] == [False, True, False, False, False]  # its least, though never tried
    kind = curves.kind(state.job)
    for width in (2, 4):
        kind.learn(width, report(app, 0, width))
    assert [g > 0 for g in curves.row(state, 0, widths, 4)] == [False, True, True, True, False]


def test_what_was_measured_is_believed_and_the_fit_approaches_the_truth() -> None:
    app = toy_app()
    kind, off = kind_of(app), []
    at = [(e, k) for e in range(3) for k in (1, 2, 4, 8, 16)]
    for width in (1, 2, 4, 8, 16):
        for epoch in range(3):
            kind.learn(width, report(app, epoch, width))
            assert kind.goodput(epoch, width, packed_nodes(width, 4)) == app.goodput_at(
                epoch, width, packed_nodes(width, 4)
            )
        off.append(
            max(
                abs(kind.goodput(e, k, packed_nodes(k, 4)) / app.goodput_at(e, k, packed_nodes(k, 4)) - 1)
                for e, k in at
            )
        )
    assert off[-1] == 0.0
    assert off[-2] < off[0]
    # Widths and placements that nobody tried.
    for k, nodes in ((3, 1), (6, 2), (12, 3), (8, 4), (24, 6)):
        assert kind.goodput(2, k, nodes) == pytest.approx(app.goodput_at(2, k, nodes), rel=0.02)
    assert kind.fit is not None
    assert kind.fit.rmse_log < 0.02


def test_epochs_that_nobody_has_seen_are_like_the_nearest_that_was() -> None:
    app = toy_app()
    kind = kind_of(app)
    for width in (1, 2, 4):
        kind.learn(width, report(app, 0, width))
    assert kind.epochs == 3
    assert kind.samples_of(0) == 3000.0
    assert kind.samples_of(2) == 3000.0
    # The fit's best batch is searched on a coarser grid.
    assert kind.goodput(2, 2, 1) == pytest.approx(app.goodput_at(0, 2, 1), rel=0.01)
    kind.learn(4, report(app, 2, 4))
    assert kind.samples_of(1) == pytest.approx(3500.0)
    assert kind.goodput(2, 2, 1) == pytest.approx(app.goodput_at(2, 2, 1), rel=0.02)
    assert kind_of(app).samples_of(1) == 1.0


def test_jobs_that_keep_their_batch_are_fitted_with_it() -> None:
    fixed = FixedBatch(toy_app(), 128)
    kind = kind_of(fixed, batch=128)
    for width in (1, 2, 4, 8):
        kind.learn(width, report(fixed, 1, width))
    assert kind.goodput(1, 3, 1) == pytest.approx(fixed.goodput_at(1, 3, 1), rel=0.02)
    # One width across nodes tells nothing of wider ones: the fit is hopeful about those.
    assert 1.0 < kind.goodput(1, 16, 4) / fixed.goodput_at(1, 16, 4) < 1.15
    assert kind.goodput(1, 20, 5) == 0.0  # 128 over 20 is less than a GPU can do


def test_tables_without_steps_are_guessed_from_the_widths_around() -> None:
    kind = kind_of(TABLE)
    kind.learn(1, report(TABLE, 0, 1))
    assert kind.goodput(0, 2, 1) == pytest.approx(100 * 2**0.9)  # hopeful beyond what was tried
    assert kind.goodput(1, 1, 1) == 100.0  # an epoch that nobody has seen
    kind.learn(4, report(TABLE, 0, 4))
    assert kind.goodput(0, 2, 1) == pytest.approx((100 * 200) ** 0.5)  # half-way, by ratios
    assert kind.goodput(0, 8, 2) == pytest.approx(200 * 2**0.9)
    # The second epoch on one GPU is half as fast, so it is on four.
    kind.learn(1, report(TABLE, 1, 1))
    assert kind.goodput(1, 4, 1) == pytest.approx(100.0)
    assert kind.goodput(1, 2, 1) == pytest.approx((50 * 100) ** 0.5)
    kind.learn(4, report(TABLE, 1, 4))
    assert kind.goodput(1, 4, 1) == 150.0
    assert kind.fit is None
    wide_only = kind_of(TABLE)
    wide_only.learn(4, report(TABLE, 0, 4))
    assert wide_only.goodput(0, 1, 1) == pytest.approx(200 / 4**0.9)


def test_declared_curves_have_the_penalty_for_spanning_nodes() -> None:
    kind = Kind(Profile("x", speedup=Power(0.5), locality=2.0), 0)
    assert kind.goodput(0, 4, 1) == 2.0
    assert kind.goodput(0, 4, 2) == 1.0


class Reporter:
    """Jobs that say how they train, and those that are restarting."""

    def __init__(self, training: AdaptiveBatch, epoch: int = 0) -> None:
        self.training, self.epoch, self.asked, self.silent = training, epoch, 0, False

    def done(self, state: JobState) -> int:
        return self.epoch

    def report(self, state: JobState) -> Report | None:
        self.asked += 1
        return None if self.silent else report(self.training, self.epoch, len(state.gpus))


def test_running_jobs_are_asked_once_for_each_width_and_epoch() -> None:
    app = toy_app()
    world = Reporter(app)
    view = View(rented("2x4"), epochs=world, reports=world)  # type: ignore[arg-type]
    state = JobState(Job(0, "0", 0.0, 1, profile=Profile("toy", training=app), max_gpus=8))
    view.arrive(state)
    curves = Curves(known=False, adapts_batch=True)
    assert not curves.look(view.waiting.values(), view)
    view.start(state, (0, 1))
    world.silent = True
    assert not curves.look(view.running.values(), view)
    world.silent = False
    assert curves.look(view.running.values(), view)
    assert not curves.look(view.running.values(), view)
    world.epoch = 1
    assert curves.look(view.running.values(), view)
    assert world.asked == 3
    assert not Curves(known=True, adapts_batch=True).look(view.running.values(), view)
    notes = curves.notes()
    assert notes == ()
    curves.kind(state.job).goodput(0, 4, 1)
    (note,) = curves.notes()
    assert note.startswith("goodput of toy: fitted to ")
    assert "R2" in note


def test_kinds_differ_by_batch_only_where_batches_are_kept() -> None:
    jobs = [
        Job(i, str(i), 0.0, 1, profile=Profile("toy", training=toy_app()), batch=b) for i, b in enumerate((64, 128))
    ]
    adapting, keeping = Curves(known=True, adapts_batch=True), Curves(known=True, adapts_batch=False)
    assert adapting.kind(jobs[0]) is adapting.kind(jobs[1])
    assert keeping.kind(jobs[0]) is not keeping.kind(jobs[1])
    assert isinstance(keeping.kind(jobs[0]).prior, FixedBatch)
    assert adapting.kind(jobs[0]).epochs == 3


def test_rates_and_sizes_go_from_estimates_to_what_is_counted() -> None:
    first = {"x": JobType("x", 0.01, 500.0, Power(0.5))}
    arrivals, profile = Arrivals(first, trust_jobs=10.0), Profile("x", speedup=Power(0.5))
    kind, key = Kind(profile, 0), ("x", 0)
    states = [JobState(Job(i, str(i), 0.0, 1, profile=profile, min_gpus=1 + i % 2, max_gpus=4 + i)) for i in range(30)]
    for state in states:
        arrivals.arrived(key, state)
    assert arrivals.rate_per_s(key, 1000.0) == pytest.approx((10 + 30) / (1000 + 1000))
    assert arrivals.mean_size_s(key) == 500.0
    assert arrivals.bounds(key) == ({1, 2}, 33)
    for state in states:
        state.first_width, state.banked_gpu_s = 4, 400.0  # 100 s on four GPUs are 200 s on one
        arrivals.ended(key, state, kind)
    assert arrivals.mean_size_s(key) == pytest.approx((10 * 500 + 30 * 200) / 40)
    unknown = Arrivals({}, 10.0)
    unknown.arrived(key, states[0])
    assert unknown.rate_per_s(key, 10.0) == 1 / 600
    assert unknown.rate_per_s(key, 6000.0) == 1 / 6000
    assert unknown.mean_size_s(key) == 3600.0
    cancelled = JobState(Job(99, "99", 0.0, 1, profile=profile))
    unknown.ended(key, cancelled, kind)  # never ran: says nothing of sizes
    assert unknown.mean_size_s(key) == 3600.0

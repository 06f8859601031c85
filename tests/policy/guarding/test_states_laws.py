"""Laws of the guard for any samples."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policy.guarding import GpuGuard, GuardConfig, Sample, State, Transition

RANK = {State.HEALTHY: 0, State.INIT: 1, State.UNHEALTHY: 1, State.OVERLIMIT: 2, State.DISABLED: 3}
FRACS = st.sampled_from([None, 0.0, 0.5, 0.69, 0.7, 0.84, 0.85, 0.9, 0.95, 0.97, 1.0])
CLOCKS = st.sampled_from([None, 0.5, 0.79, 0.8, 0.92, 0.93, 0.94, 1.0, 1.05])
SHORT = GuardConfig(hold_s=15.0, hold_max_s=100.0, overlimit_memory_s=150.0, overlimits_disable=4, slo_windows=3)
CONFIGS = st.sampled_from(
    [
        GuardConfig(),
        SHORT,
        GuardConfig(sample_s=0.7, window_s=3.3, gap_s=2.1, init_s=4.0, better_windows=2, hold_s=7.0),
        GuardConfig(init_s=100.0, hold_s=1.0, overlimits_disable=50, worse_windows=1, util_over_windows=1),
    ]
)

samples = st.builds(
    Sample,
    time_s=st.just(0.0),
    util_frac=FRACS,
    sm_activity_frac=FRACS,
    clock_frac=CLOCKS,
    memory_frac=FRACS,
    temperature_c=st.sampled_from([None, 50.0, 79.0, 80.0, 86.0, 87.0]),
    online_util_frac=st.sampled_from([None, None, 0.5, 0.97]),
    slo_broken=st.sampled_from([False, False, False, True]),
    fatal_fault=st.sampled_from([None] * 30 + ["Xid 79"]),
    valid=st.sampled_from([True] * 6 + [False]),
)
calm = st.just(Sample(0.0, util_frac=0.3, clock_frac=1.0))
usual = st.one_of(calm, samples)
stretches = st.lists(
    st.tuples(
        usual, st.one_of(st.integers(1, 80), st.floats(0.01, 80.0)), st.one_of(st.just(0.0), st.floats(0.0, 9.0))
    ),
    max_size=10,
)
"""(what is seen, for how long, and how long nothing is seen then)"""


def one_by_one(guard: GpuGuard, sample: Sample, until_s: float) -> list[Transition]:
    """What `observe_constant` stands for."""
    out, i = guard.observe(sample), 1
    while (time_s := sample.time_s + i * guard.config.sample_s) < until_s:
        out += guard.observe(replace(sample, time_s=time_s))
        i += 1
    return out + guard.advance(until_s)


def copy(guard: GpuGuard) -> GpuGuard:
    return GpuGuard.from_dict(json.loads(json.dumps(guard.to_dict())), guard.config)


@given(CONFIGS, st.floats(-100.0, 2e9), stretches)
@settings(max_examples=300, deadline=None)
def test_a_constant_stretch_equals_its_samples_one_by_one(
    config: GuardConfig, start_s: float, plan: list[tuple[Sample, float, float]]
) -> None:
    fast, slow = GpuGuard(config, start_s), GpuGuard(config, start_s)
    now_s = start_s
    for sample, length_s, blind_s in plan:
        at = replace(sample, time_s=now_s)
        assert fast.observe_constant(at, now_s + length_s) == one_by_one(slow, at, now_s + length_s)
        now_s += length_s
        assert fast.to_dict() == slow.to_dict()
        now_s += blind_s


@given(CONFIGS, stretches)
@settings(deadline=None)
def test_transitions_are_a_chain_in_time_and_only_healthy_accepts(
    config: GuardConfig, plan: list[tuple[Sample, float, float]]
) -> None:
    guard, now_s, before, last_s = GpuGuard(config), 0.0, State.INIT, 0.0
    for sample, length_s, blind_s in plan:
        for t in guard.observe_constant(replace(sample, time_s=now_s), now_s + length_s):
            assert t.before is before is not t.after
            assert last_s <= t.time_s <= now_s + length_s
            assert t.reason
            assert t.cause == t.cause.lower().replace(" ", "-")
            before, last_s = t.after, t.time_s
        now_s += length_s + blind_s
        assert guard.state is before
        assert guard.accepts_offline == (guard.state is State.HEALTHY)
        assert guard.must_evict == (guard.state in (State.OVERLIMIT, State.DISABLED))
        if guard.next_s is not None:
            assert guard.next_s <= guard.time_s + config.hold_max_s
            assert guard.state in (State.OVERLIMIT, State.INIT)


@given(CONFIGS, stretches)
@settings(deadline=None)
def test_an_overlimit_lasts_at_least_its_hold_and_healthy_needs_good_windows(
    config: GuardConfig, plan: list[tuple[Sample, float, float]]
) -> None:
    guard, now_s = GpuGuard(config), 0.0
    held_until_s = float("-inf")
    for sample, length_s, blind_s in plan:
        for t in guard.observe_constant(replace(sample, time_s=now_s), now_s + length_s):
            if t.after is State.OVERLIMIT:
                held_until_s = t.time_s + config.hold_s
            elif t.after in (State.HEALTHY, State.UNHEALTHY):
                assert t.time_s >= held_until_s
        now_s += length_s + blind_s
        if blind_s > config.gap_s:
            guard.advance(now_s)
            assert not guard.accepts_offline


@given(CONFIGS, stretches, usual, st.floats(0.1, 200.0), st.data())
@settings(max_examples=200, deadline=None)
def test_a_worse_sample_never_gives_a_better_state(
    config: GuardConfig,
    plan: list[tuple[Sample, float, float]],
    sample: Sample,
    length_s: float,
    data: st.DataObject,
) -> None:
    guard, now_s = GpuGuard(config), 0.0
    for before, before_s, blind_s in plan:
        guard.observe_constant(replace(before, time_s=now_s, fatal_fault=None), now_s + before_s)
        now_s += before_s + blind_s
    worse = replace(
        sample,
        **{
            name: value + data.draw(st.sampled_from([0.0, 0.01, 0.1, 0.3]))
            for name in ("util_frac", "sm_activity_frac", "memory_frac", "online_util_frac")
            if (value := getattr(sample, name)) is not None
        },
        clock_frac=None if sample.clock_frac is None else max(0.0, sample.clock_frac - data.draw(st.floats(0.0, 0.3))),
        slo_broken=sample.slo_broken or data.draw(st.booleans()),
    )
    one, other = copy(guard), copy(guard)
    one.observe_constant(replace(sample, time_s=now_s), now_s + length_s)
    other.observe_constant(replace(worse, time_s=now_s), now_s + length_s)
    assert RANK[other.state] >= RANK[one.state]


@given(CONFIGS, stretches, stretches)
@settings(deadline=None)
def test_saving_and_restoring_changes_nothing(
    config: GuardConfig, first: list[tuple[Sample, float, float]], then: list[tuple[Sample, float, float]]
) -> None:
    guard, now_s = GpuGuard(config), 0.0
    for sample, length_s, blind_s in first:
        guard.observe_constant(replace(sample, time_s=now_s), now_s + length_s)
        now_s += length_s + blind_s
    again = copy(guard)
    for sample, length_s, blind_s in then:
        at = replace(sample, time_s=now_s)
        assert again.observe_constant(at, now_s + length_s) == guard.observe_constant(at, now_s + length_s)
        now_s += length_s + blind_s
    assert again.to_dict() == guard.to_dict()


def test_a_day_of_changing_load_on_100_gpus_takes_little_time() -> None:
    # 100 GPUs, 24 h, new load every 5 minutes: 28,800 stretches; measured 1.0 s of one core.
    loads = [Sample(0.0, util_frac=u, sm_activity_frac=u * 0.8, clock_frac=1.0) for u in (0.2, 0.5, 0.8, 0.9)]
    began_s = time.process_time()
    for gpu in range(100):
        guard = GpuGuard()
        for i in range(288):
            guard.observe_constant(replace(loads[(gpu + i) % 4], time_s=300.0 * i), 300.0 * (i + 1))
        assert guard.state in (State.HEALTHY, State.UNHEALTHY)
    assert time.process_time() - began_s < 15.0

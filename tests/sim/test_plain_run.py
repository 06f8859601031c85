"""Plain runs in columns give what the general loop gives, to the last bit; and only plain runs go that way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import RunError
from fairlead.model.cluster import Cluster, parse_shape
from fairlead.model.interference import EMPTY
from fairlead.model.training import GoodputTable
from fairlead.model.variability import Variability
from fairlead.policy import registry
from fairlead.policy.stack import Stack
from fairlead.sim.failures import Failures
from fairlead.sim.meters import Meters
from fairlead.sim.plain_run import plain_run
from fairlead.sim.result import Result
from fairlead.sim.simulation import Simulation
from fairlead.sim.truth import Drift
from fairlead.sim.world import PLAIN, World
from fairlead.traces.synthetic import generate
from fairlead.traces.trace import Trace, Wrap
from tests.conftest import make_trace

SPECS = (
    "fifo", "fifo-greedy", "fifo-easy", "sjf", "sjf:backfill=greedy", "sjf:backfill=easy",
    "ordering=priority:preempt=false", "ordering=priority:preempt=false:backfill=strict",
)  # fmt: skip


class Asked(Stack):
    """Of another class, so that nobody can know how it decides: the general loop has to ask it."""


def run(trace: Trace, cluster: Cluster, spec: str, world: World = PLAIN, *, asked: bool = False) -> Result:
    stack = registry.build(spec)
    assert plain_run(trace, cluster, stack, world, Simulation(trace, cluster, stack, world)._meters) is not None
    if asked:
        stack.__class__ = Asked
    return Simulation(trace, cluster, stack, world).run()


def told(result: Result) -> tuple[Any, ...]:
    """Everything but the seconds that it took; floats as they are, to the last bit."""
    summary = {name: value for name, value in result.summary.items() if name != "wall_s"}
    frames = [{name: frame[name].to_list() for name in frame.columns} for frame in (result.jobs, result.timeline)]
    return repr(summary), [repr(frame) for frame in frames], result.notes, result.fleet, result.history


def check(trace: Trace, cluster: Cluster, spec: str, world: World = PLAIN) -> None:
    assert told(run(trace, cluster, spec, world)) == told(run(trace, cluster, spec, world, asked=True))


def nodes(sizes: list[int]) -> Cluster:
    model = parse_shape("1x1").nodes[0]
    return Cluster(tuple(replace(model, name=f"n{i}", gpus=gpus) for i, gpus in enumerate(sizes)))


whole = st.integers(0, 40).map(float)
"""Moments and durations at which many things happen at once."""
jobs = st.lists(
    st.tuples(
        st.one_of(whole, st.floats(0.0, 1e6)),
        st.integers(1, 12),
        st.one_of(whole.map(lambda s: s + 1.0), st.floats(1e-3, 1e5)),
        st.integers(0, 2),
        st.sampled_from(("generic", "BERT", "vgg19")),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(
    jobs,
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from(SPECS),
    st.sampled_from((None, 1.0, 1.7, {"A": 1.3, "C": 2.5})),
)
def test_columns_give_what_objects_give(
    drawn: list[tuple[float, int, float, int, str]], sizes: list[int], spec: str, locality: Any
) -> None:
    drawn = sorted((submit_s, min(gpus, sum(sizes)), *rest) for submit_s, gpus, *rest in drawn)  # type: ignore[misc]
    trace = make_trace(
        [(j[0], j[1], j[2]) for j in drawn], priority=[j[3] for j in drawn], profile=[j[4] for j in drawn]
    )
    check(trace, nodes(sizes), spec, World(locality=locality))


@pytest.mark.parametrize("spec", SPECS)
def test_they_agree_on_a_crowded_cluster(spec: str) -> None:
    check(generate("philly:load=1.3:cluster_gpus=32:max_s=40000", jobs=400, seed=3), parse_shape("4x8"), spec)


@pytest.mark.parametrize("spec", ["fifo", "fifo-greedy", "fifo-easy"])
def test_they_agree_on_batches_that_come_and_end_together(spec: str) -> None:
    check(generate("bursts:rate_per_h=60:gpus=3:size=deterministic", jobs=200, seed=2), parse_shape("3x4"), spec)


def test_they_agree_on_how_far_the_run_is() -> None:
    trace, cluster = generate("poisson:rate_per_h=400", jobs=1700, seed=1), parse_shape("4x8")
    seen: list[list[tuple[int, int]]] = [[], []]
    for heard, kind in zip(seen, (Stack, Asked), strict=True):
        stack = registry.build("fifo")
        stack.__class__ = kind
        Simulation(trace, cluster, stack, progress=lambda *p, heard=heard: heard.append(p)).run()  # type: ignore[misc]
    assert seen[0] == seen[1]
    assert seen[0][-1] == (1700, 1700)


def test_a_run_that_was_looked_at_on_its_way_ends_the_same() -> None:
    trace, cluster = generate("philly:load=1.1:cluster_gpus=16:max_s=40000", jobs=100, seed=1), parse_shape("2x8")
    simulation = Simulation(trace, cluster, registry.build("fifo"))
    simulation.advance(float(trace.frame["submit_s"][50]))
    assert len(simulation.view.running)
    assert told(simulation.run()) == told(run(trace, cluster, "fifo"))


def test_a_clock_too_coarse_for_a_job_is_an_error_both_ways() -> None:
    trace = make_trace([(0, 1, 1), (1e13, 1, 1.0001)])
    for asked in (False, True):
        with pytest.raises(RunError, match="of work left"):
            run(trace, parse_shape("1x1"), "fifo", asked=asked)


SMALL, PAIR = make_trace([(0, 1, 5), (1, 2, 5)]), parse_shape("2x2")
TABLE = GoodputTable("generic", (10.0,), (1, 2), ((1.0, 2.0),))
SCORES = Variability({"A": [1.0, 1.0, 1.0, 2.0]})


def is_plain(
    trace: Trace = SMALL, cluster: Cluster = PAIR, spec: str = "fifo", world: World = PLAIN, **how: Any
) -> bool:
    stack = registry.build(spec, **how)
    meters: Meters = Simulation(trace, cluster, registry.build(spec, **how), world)._meters
    return plain_run(trace, cluster, stack, world, meters) is not None


@pytest.mark.parametrize(
    "spec",
    [
        "las", "srtf", "ordering=priority", "ordering=fair", "ordering=deadline", "fifo,placing=spread", "pal",
        "fifo,placing=packed-nonsticky", "sharing=eaco", "sizing=equal", "powering=sleep",
    ],
)  # fmt: skip
def test_other_policies_are_asked(spec: str) -> None:
    assert is_plain()
    assert not is_plain(spec=spec)


@pytest.mark.parametrize(
    "world",
    [
        World(failures=Failures(1.0)), World(drained=(0,)), World(drifts=(Drift(1.0, 0, 2.0),)),
        World(true_variability=SCORES), World(correct_scores="job"), World(records=True),
    ],
)  # fmt: skip
def test_worlds_in_which_more_happens_are_not_plain(world: World) -> None:
    assert is_plain(world=World(seed=3, interference=EMPTY, locality=2.0, restart_s=9.0))
    assert not is_plain(world=world)


def test_what_jobs_gpus_and_stacks_may_be_like() -> None:
    large = make_trace([(0, 1, 5)], memory_mib=[1e6])
    service = make_trace([(0, 1, 5)], kind=["service"])
    mixed = Cluster((parse_shape("1x2:V100").nodes[0], replace(parse_shape("1x2:T4").nodes[0], name="other")))
    assert is_plain(spec="fifo,powering=always-on")
    assert not is_plain(replace(SMALL, wrap=Wrap()))
    assert not is_plain(SMALL.training({"generic": TABLE}, 2))
    assert not is_plain(cluster=PAIR.with_variability(SCORES))
    assert not is_plain(cluster=mixed)
    assert not is_plain(round_s=60.0)
    assert not is_plain(plain=True)
    meters = Simulation(SMALL, PAIR, registry.build("fifo"))._meters
    for trace in (large, service):
        assert plain_run(trace, PAIR, registry.build("fifo"), PLAIN, meters) is None
    used = registry.build("fifo")
    Simulation(SMALL, PAIR, used).advance(2.0)
    assert plain_run(SMALL, PAIR, used, PLAIN, meters) is None

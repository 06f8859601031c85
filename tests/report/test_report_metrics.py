from __future__ import annotations

from fairlead.report import units
from fairlead.report.metrics import COMPARED, Metric, best, shown

LOW = Metric("a", "a", units.count, "low")
HIGH = Metric("a", "a", units.count, "high")


def test_the_best_is_the_lowest_or_the_highest_as_the_metric_says() -> None:
    runs = [{"a": 3}, {"a": 1}, {"a": 2}]
    assert best(LOW, runs) == {1}
    assert best(HIGH, runs) == {0}


def test_all_that_read_like_the_best_are_the_best() -> None:
    assert best(LOW, [{"a": 1.0}, {"a": 1.2}, {"a": 5.0}]) == {0, 1}


def test_nobody_is_best_where_all_are_equal_or_there_is_one_run() -> None:
    assert best(LOW, [{"a": 1}, {"a": 1}]) == set()
    assert best(LOW, [{"a": 1}]) == set()


def test_a_missing_or_infinite_value_never_wins() -> None:
    assert best(LOW, [{}, {"a": float("nan")}, {"a": 4}, {"a": 5}]) == {2}
    assert best(HIGH, [{"a": float("inf")}, {"a": 4}, {"a": 5}]) == {2}


def test_deadlines_and_failures_are_shown_only_where_there_are_some() -> None:
    quiet = {metric.key: 0 for metric in COMPARED}
    assert "late_jobs" not in {metric.key for metric in shown(COMPARED, [quiet])}
    assert "late_jobs" in {metric.key for metric in shown(COMPARED, [quiet, {**quiet, "late_jobs": 2}])}


def test_what_is_paid_is_shown_only_where_nodes_are_rented() -> None:
    owned = {metric.key: 1 for metric in COMPARED} | {"node_rentals": 0}
    paid = {"gpus_paid_mean", "gpu_hours_paid", "node_rentals"}
    assert not paid & {metric.key for metric in shown(COMPARED, [owned])}
    assert paid <= {metric.key for metric in shown(COMPARED, [owned, {**owned, "node_rentals": 3}])}

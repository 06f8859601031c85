from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fairlead.report import plots
from fairlead.sim.result import Result

MakeResult = Callable[..., Result]


@pytest.mark.parametrize("plot", plots.PLOTS, ids=lambda plot: plot.name)
def test_every_plot_names_its_axes_and_its_runs(plot: plots.Plot, make_result: MakeResult) -> None:
    figure = plots.figure(plot, {"one": make_result(), "two": make_result(slowness=2.0)})
    [axes] = figure.axes
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


@pytest.mark.parametrize("plot", plots.PLOTS, ids=lambda plot: plot.name)
@pytest.mark.parametrize(("jobs", "intervals"), [(1, 1), (0, 0), (5000, 2000)])
def test_a_run_of_any_size_can_be_drawn(plot: plots.Plot, jobs: int, intervals: int, make_result: MakeResult) -> None:
    assert plots.save(plot, {"run": make_result(jobs=jobs, intervals=intervals)}, "svg").startswith(b"<?xml")


def test_the_same_run_gives_the_same_file(make_result: MakeResult) -> None:
    runs = {"a": make_result(), "b": make_result(slowness=1.5)}
    assert plots.save(plots.PLOTS[0], runs, "svg") == plots.save(plots.PLOTS[0], runs, "svg")


def test_the_size_of_a_plot_does_not_grow_with_the_run(make_result: MakeResult) -> None:
    small = plots.save(plots.PLOTS[0], {"a": make_result(jobs=2_000)}, "svg")
    large = plots.save(plots.PLOTS[0], {"a": make_result(jobs=200_000)}, "svg")
    assert len(large) < 1.2 * len(small)


def test_coarser_steps_keep_the_area_under_the_line() -> None:
    rng = np.random.default_rng(0)
    edges = np.concatenate(([0.0], np.cumsum(rng.random(997))))
    values = rng.random(997)
    coarse_edges, coarse = plots._rebinned(edges, values, 50)
    assert coarse.size == 50
    assert coarse @ np.diff(coarse_edges) == pytest.approx(values @ np.diff(edges))


def test_runs_beyond_the_palette_still_look_different() -> None:
    looks = [plots.look(number) for number in range(28)]
    assert len(set(looks)) == 28


def test_the_clusters_size_is_drawn_where_it_is_known(make_result: MakeResult) -> None:
    busy = next(plot for plot in plots.PLOTS if plot.name == "gpus-busy")
    axes = plots.figure(busy, {"a": make_result(gpus=64)}).axes[0]
    assert 64 in axes.lines[0].get_ydata()


def test_paid_gpus_are_drawn_where_nodes_are_rented(make_result: MakeResult) -> None:
    busy = next(plot for plot in plots.PLOTS if plot.name == "gpus-busy")
    runs = {"a": make_result(gpus=640, node_rentals=5), "b": make_result(gpus=640)}
    figure = plots.figure(busy, runs)
    [axes] = figure.axes
    assert "paid" in axes.get_ylabel()
    assert len(axes.patches) == 4  # a line of busy and one of paid GPUs for each
    assert axes.get_ylim()[1] < 640  # not the size that nobody rents
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]

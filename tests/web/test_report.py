"""The HTML report in a browser: it stands alone, is looked through by eye and by keyboard, and shows text as text."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl
import pytest
from matplotlib.axes import Axes

import fairlead
from fairlead.report.claims import Claim, Figure, Reproduction
from fairlead.report.write import write, write_reproduction
from tests.web.browser import Browser

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
POLICIES = ("fifo", "fifo-greedy", "las", "srtf", "priority", "eaco")
TRACE = "synthetic:philly:jobs=120"


@dataclass(frozen=True)
class Reports:
    compared: str
    one: str
    paper: str
    shared: tuple[int, float]
    """A GPU that two jobs shared in the last run compared, and when: as a part of that run."""

    @property
    def all(self) -> tuple[str, ...]:
        return self.compared, self.one, self.paper


def draw(axes: Axes) -> None:
    for number in range(6):
        axes.plot([1, 2, 3], [3, number, 2], label=f"line {number}")
    axes.set(xlabel="how far", ylabel="how much")
    axes.legend()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Addresses of a comparison, of one run with nodes that sleep, and of a reproduction; all with evil words."""
    folder = tmp_path_factory.mktemp("reports")
    ran = fairlead.compare(POLICIES, TRACE, "4x4", workers=1, record=True)
    named = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(EVIL)).otherwise(pl.col("job_id")).alias("job_id")
    compared = [replace(result, jobs=result.jobs.with_columns(named)) for result in ran]
    write(compared, folder / "compared", names=[*POLICIES[:-1], f"eaco {EVIL}"], command=EVIL)
    write(compared[-1], folder / "one", names=["eaco"])
    figure = Figure("gain", EVIL, draw)
    paper = Reproduction("PAL", EVIL, [Claim(EVIL, "%", 1.0, 2.0, False, EVIL)], (figure,))
    write_reproduction(paper, folder / "paper")
    found = ran[-1].occupancy
    assert found is not None
    shared = found.held.filter(pl.col("jobs").list.len() > 1).sort(pl.col("end_s") - pl.col("start_s")).row(-1)
    at = (shared[1] + shared[2]) / 2.0 / max(found.held["end_s"].max(), found.off["end_s"].max())  # type: ignore[type-var,operator]
    compared_url, one_url, paper_url = ((folder / n / "report.html").as_uri() for n in ("compared", "one", "paper"))
    return Reports(compared_url, one_url, paper_url, (shared[0], at))


def opened(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.until(lambda: browser.count("footer"))
    if "paper" not in url:
        browser.until(lambda: browser.text("#gantt-said"), "the timeline to be drawn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_nobody_is_asked_for_anything(
    browser: Browser, reports: Reports, scheme: str
) -> None:
    browser.dark(scheme == "dark")
    for url in reports.all:
        opened(browser, url)
        assert browser.axe() == [], url
        assert browser.js("return document.querySelectorAll('main script, main img[src=x]').length") == 0
    asked = [url for url in browser.requests() if not url.startswith(("file:", "data:", "about:", "blob:"))]
    assert asked == []


@pytest.mark.parametrize("width", [360, 1440])
def test_nothing_sticks_out(browser: Browser, reports: Reports, width: int) -> None:
    browser.size(width, 900)
    for url in reports.all:
        opened(browser, url)
        assert browser.js("return document.documentElement.scrollWidth <= innerWidth"), url


def test_few_lines_are_on_and_each_can_be_switched(browser: Browser, reports: Reports) -> None:
    opened(browser, reports.compared)
    shown = (
        "return [...document.querySelectorAll('.chart')]"
        ".map((one) => one.querySelectorAll('.u-series:not(.u-off)').length - 1)"
    )
    charts = browser.count(".chart")
    assert browser.js(shown) == [4] * charts
    assert browser.text(".lines").count("oracle") == 1
    browser.click("fifo", ".lines label")
    browser.click("priority", ".lines label")
    browser.click("srtf", ".lines label")
    assert browser.js(shown) == [3] * charts


def test_lines_of_a_papers_figure_can_be_switched(browser: Browser, reports: Reports) -> None:
    opened(browser, reports.paper)
    shown = "return [...document.querySelectorAll('.layers img')].filter((one) => one.checkVisibility()).length"
    assert browser.js(shown) == 1 + 5
    browser.click("line 5", ".lines label")
    assert browser.js(shown) == 1 + 6
    browser.click("line 0", ".lines label")
    browser.click("line 1", ".lines label")
    assert browser.js(shown) == 1 + 4


def test_gpus_over_time_are_looked_through_with_the_keyboard_and_told_in_words(
    browser: Browser, reports: Reports
) -> None:
    opened(browser, reports.compared)

    def press(*keys: str) -> str:
        script = (
            "const one = document.querySelector('.gantt canvas'); one.focus();"
            "for (const key of arguments[0]) one.dispatchEvent(new KeyboardEvent('keydown', { key }));"
        )
        browser.js(script, list(keys))
        return browser.text("#gantt-said")

    assert press().startswith("n0:0 at ")
    before = press("ArrowDown", "ArrowDown")
    assert before.startswith("n0:2 at ")
    assert press("+", "+", "ArrowRight").split(" at ")[1] != before.split(" at ")[1]
    choose = (
        "const one = document.querySelector('.bar select'); one.value = '5'; one.dispatchEvent(new Event('change'))"
    )
    browser.js(choose)
    browser.until(lambda: press("0").startswith("n0:0 at "), "the other run")
    gpu, at = reports.shared
    press(*["ArrowDown"] * gpu)
    here, step = 0.5, 1 / 50
    for _ in range(8):  # nearer with every zoom
        steps = round((at - here) / step)
        said = press(*["ArrowRight" if steps > 0 else "ArrowLeft"] * abs(steps), "+")
        here, step = here + steps * step, step / 2
    assert "2 jobs share it: " in said
    assert " and " in said


def test_one_run_tells_what_slept(browser: Browser, reports: Reports) -> None:
    opened(browser, reports.one)
    assert browser.count(".lines") == 0, "one line needs no switch"
    assert "hatched:" in browser.text(".legend")

"""What the page looks like to a browser: reachable by keyboard, readable by all, safe, and right at any size."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fairlead.live.api.server import Server
from fairlead.live.engines.engine import GpuReading
from fairlead.live.storage import history
from tests.live.api.serving import Served, served
from tests.live.scripted import World, wait_for
from tests.web.big import big_world
from tests.web.browser import Browser

VIEWS = ("", "jobs", "jobs/1", "users", "energy", "events", "whatif")
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
SHARES = "ordering=priority:preempt=false,sharing=eaco:history=eaco"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Jobs in every state on eight GPUs, one of each kind."""
    world = World(tmp_path_factory.mktemp("world"), SHARES, "2x4")
    try:
        with served(world) as site:
            first = site.submit("alice", gpus=2, profile="AlexNet", name=EVIL, estimate_s=600.0)
            site.submit("bob", gpus=1, profile="ResNet-18", name="beside", estimate_s=600.0)
            site.submit("alice", gpus=8, name="waits", memory_mib=32_000.0, deadline_s=1.0)
            site.submit("bob", hold=True, name="held")
            wait_for(lambda: (first, 1) in world.engine.running)
            world.engine.write((first, 1), b"\x1b[31mred\x1b[0m " + EVIL.encode() + b"\rover\nnext\x07 line\n")
            for gpu, guard in enumerate(("init", "healthy", "unhealthy", "overlimit", "disabled")):
                reading = GpuReading(gpu, 1.7e9, 0.3 * (gpu % 4), memory_used_mib=900.0 * gpu, power_w=80.0 + gpu)
                world.engine.readings[gpu] = reading
                object.__setattr__(reading, "guard_state", guard)
                object.__setattr__(reading, "temperature_c", 40.0 + gpu)
            world.controller.ask(lambda: world.controller.set_drained({6}, True)).result(60.0)
            world.engine.set_away(1)
            world.engine.set_away(1, False)
            sums = dict.fromkeys(history.SUMS, 60.0)
            now_s = int(world.clock.wall_s()) // 60 * 60
            for minute in range(30):
                history.add(world.database, now_s - 60 * minute, sums).result()
            yield site
    finally:
        world.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = World(tmp_path_factory.mktemp("empty"))
    try:
        with served(world) as site:
            yield site
    finally:
        world.close()


def shown(browser: Browser, site: Served, path: str) -> None:
    browser.open(f"{site.server.url}/#/{path}")
    browser.until_text("live", ".top")
    browser.until(lambda: browser.text("main") and "…" not in browser.text("main").split("\n"), f"{path} to be there")
    browser.until(
        lambda: (
            browser.js(
                "return document.querySelector('.gpu, .empty, .scroller td, .facts, .card, .events li, table, form')"
            )
            is not None
        )
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_anywhere(browser: Browser, small: Served, scheme: str) -> None:
    browser.dark(scheme == "dark")
    browser.open(small.server.url)
    browser.until_text("Your token")
    assert browser.axe() == []
    browser.sign_in(small.server.url, small.token["olga"])
    for path in VIEWS:
        shown(browser, small, path)
        assert browser.axe() == [], path
    browser.click("Submit a job", "button")
    browser.click("More")
    assert browser.axe() == []
    foreign = [url for url in browser.requests() if not url.startswith((small.server.url, "data:", "about:"))]
    assert foreign == []


def test_what_others_wrote_stays_text(browser: Browser, small: Served) -> None:
    browser.sign_in(small.server.url, small.token["olga"])
    for path in VIEWS[:-1]:
        shown(browser, small, path)
        assert browser.count("main script, main img, main iframe") == 0, path
    shown(browser, small, "jobs/1")
    browser.until_text("next", ".log")
    log = browser.text(".log")
    assert ("red" in log, "\x1b" in log, "over" in log) == (False, False, True), "the line was written over"
    assert EVIL in browser.text("h1")
    # And if some code of ours forgot itself, the browser would refuse.
    for forgetful in (
        "document.body.innerHTML = '<b>x</b>'",
        "document.createElement('script').textContent = 'window.bad = 1'",
        "new Worker('/assets/x.js')",
    ):
        refused = browser.js(f"try {{ {forgetful}; return ''; }} catch (error) {{ return error.name; }}")
        assert refused == "TypeError", forgetful
    browser.logs()  # the browser has told of it


@pytest.mark.parametrize("width", [360, 820, 1920])
def test_nothing_sticks_out_at_any_width(browser: Browser, small: Served, empty: Served, width: int) -> None:
    browser.size(width, 800)
    for site in (small, empty):
        browser.forget()
        browser.sign_in(site.server.url, site.token["olga"])
        for path in VIEWS if site is small else ("", "jobs", "users", "energy", "events"):
            shown(browser, site, path)
            assert browser.js("return document.documentElement.scrollWidth <= innerWidth"), (path, width)
            if (site, path) == (small, "jobs"):
                first = "const one = document.querySelector('.scroller tbody a').closest('td'); return one.clientWidth"
                assert browser.js(first) > 90, "names can be read"


def test_a_cluster_without_jobs_says_so(browser: Browser, empty: Served) -> None:
    browser.sign_in(empty.server.url, empty.token["alice"])
    browser.until_text("Nobody waits.")
    for path, said in (
        ("jobs", "No jobs here."),
        ("users", "Nobody has submitted a job yet."),
        ("events", "Nothing has happened yet."),
        ("energy", "Nothing is known yet"),
    ):
        browser.open(f"{empty.server.url}/#/{path}")
        browser.until_text(said)
    browser.open(f"{empty.server.url}/#/jobs/77")
    browser.until_text("there is no job 77")


def test_the_keyboard_is_enough(browser: Browser, small: Served) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        for key in keys:
            ActionChains(browser.driver).send_keys(key).perform()

    def focused() -> str:
        found: str = browser.js(
            "const on = document.activeElement; return on.querySelector('.said')?.textContent ?? on.innerText ?? ''"
        )
        return found

    browser.open(small.server.url)
    browser.until_text("Your token")
    press(*small.token["olga"], Keys.ENTER)
    browser.until_text("Sign out")
    browser.until(lambda: browser.count(".gpu .said:not(:empty)") == 8)
    browser.js("document.activeElement.blur()")
    press(Keys.TAB)
    assert focused() == "Skip to the content"
    browser.js("document.querySelector('.gpu[tabindex=\"0\"]').focus()")
    assert focused().startswith("n0:0, busy, ")
    press(Keys.ARROW_RIGHT)
    assert focused().startswith("n0:1")
    assert "n0:1" in browser.text(".details h2")
    press(Keys.END)
    assert focused().startswith("n1:3")
    assert browser.count(".gpu[tabindex='0']") == 1
    browser.click("Submit a job", "button")
    press(Keys.ESCAPE)
    browser.until(lambda: browser.count("dialog") == 0)


def test_a_page_that_slept_comes_back_right_and_says_so_meanwhile(browser: Browser, site: Served) -> None:
    browser.sign_in(site.server.url, site.token["alice"])
    browser.until_text("0 of 4", ".cards")
    # The connection is cut under it, as by a lid that is shut; meanwhile things happen.
    port = int(site.server.url.rpartition(":")[2])
    site.server.stop()
    browser.until_text("no connection", ".top")
    job_id = site.world.submit(gpus=2, name="meanwhile")
    wait_for(lambda: (job_id, 1) in site.world.engine.running)
    again = Server(site.app, port=port)
    again.start()
    try:
        browser.js("window.dispatchEvent(new Event('online'))")
        browser.until_text("2 of 4", ".cards")
        browser.until_text("live", ".top")
        browser.until(lambda: browser.count(".gpu[data-state=busy]") == 2)
        browser.logs()  # of connections that were refused
    finally:
        again.stop()


def test_a_session_that_ended_while_the_page_slept_is_asked_for_again_and_goes_on_where_it_was(
    browser: Browser, site: Served
) -> None:
    browser.sign_in(site.server.url, site.token["alice"])
    job_id = site.submit(gpus=1, name="still-mine")
    browser.open(f"{site.server.url}/#/jobs/{job_id}")
    browser.until_text("still-mine", "h1")
    site.app.state.context.sessions._wall_s = lambda: 4e9  # twelve hours later, and more
    browser.until_text("Your session has ended")
    assert "still-mine" not in browser.text()
    site.app.state.context.sessions._wall_s = time.time
    browser.type("Your token", site.token["alice"])
    browser.click("Sign in", "button")
    browser.until_text("still-mine", "h1")
    browser.click("Sign out", "button")
    browser.until_text("You are signed out")
    assert browser.js("return localStorage.getItem('fairlead.key')") is None
    assert browser.awaited("fetch('/v1/session').then((a) => a.status)") == 401


def test_twenty_pages_of_one_browser_share_one_connection(browser: Browser, site: Served) -> None:
    browser.sign_in(site.server.url, site.token["alice"])
    for _ in range(19):
        browser.driver.switch_to.new_window("window")
        browser.open(site.server.url)
        browser.until_text("0 of 4", ".cards")
    assert len(browser.driver.window_handles) == 20
    assert site.app.state.context.updates.pages == 1
    site.submit(gpus=3)
    for handle in browser.driver.window_handles:
        browser.driver.switch_to.window(handle)
        browser.until_text("3 of 4", ".cards")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    world = big_world(tmp_path_factory.mktemp("big"))
    try:
        with served(world) as site:
            wait_for(lambda: len(world.engine.running) == 1000)
            yield site
    finally:
        world.close()


def test_a_thousand_gpus_and_ten_thousand_jobs_are_looked_through(browser: Browser, big: Served) -> None:
    browser.sign_in(big.server.url, big.token["olga"])
    browser.until(lambda: browser.count(".gpu[data-state=busy]") == 1000)
    browser.click("Jobs", "nav a")
    browser.until_text("10,000 jobs")
    assert browser.count(".scroller tbody tr") < 60, "only those in sight"

    def rows() -> list[str]:
        return browser.text(".scroller tbody").split()

    browser.until(lambda: "job-9999" in rows())
    browser.js("document.querySelector('.scroller').scrollTop = 1e9")
    browser.until(lambda: "job-0" in rows())
    browser.type("Name", "job-4242")
    browser.until_text("1 jobs")
    assert "job-4242" in rows()

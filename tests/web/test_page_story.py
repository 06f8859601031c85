"""What people do with the page, in a real browser, on a real controller."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.web.browser import Browser
from tests.web.conftest import Live, command

EXAMPLES = Path(__file__).parents[2] / "examples"
EVIL = "<img src=x onerror=alert(1)>"


def submit(browser: Browser, line: str, **fields: str) -> int:
    """Through the form; gives the job's number."""
    browser.click("Submit a job", "button")
    browser.type("Command", line)
    if "Memory" in fields:
        browser.click("More")
    for label, text in fields.items():
        named = label.replace("_", " ")
        (browser.choose if named in ("Profile", "Priority") else browser.type)(named, text)
    browser.click("Submit", "dialog button[type=submit]")
    browser.until(lambda: browser.count("dialog") == 0, "the dialog to close")
    browser.until(lambda: "#/jobs/" in browser.driver.current_url)
    return int(browser.driver.current_url.rpartition("/")[2])


def state(browser: Browser) -> str:
    return browser.text("main .head .badge")


def waiting(home: Path, name: str, says: str = "waiting") -> str:
    """A command that runs until a file is there."""
    return f"sh -c 'echo {says}; while [ ! -e {home}/{name} ]; do sleep 0.1; done; echo through'"


def test_a_link_signs_in_once_and_leaves_no_code_behind(browser: Browser, live: Live) -> None:
    link = command("page", "--home", live.home).strip()
    browser.open(link)
    browser.until_text("Sign out")
    code = link.partition("#sign-in=")[2]
    assert code not in browser.driver.current_url
    assert code not in json.dumps(browser.js("return [document.cookie, { ...localStorage }]"))
    assert browser.js("return document.cookie") == ""
    browser.forget()
    browser.open(link)
    browser.until_text("this code does not let you in")
    for log in ("controller.log", "up.log"):
        assert code not in (live.home / log).read_text()


def test_submit_wait_share_finish_and_follow_along(browser: Browser, live: Live) -> None:
    browser.sign_in(live.url, live.tokens["mia"])
    first = submit(
        browser,
        waiting(live.home, "go-1", "hello from the log"),
        GPUs="4",
        Name=EVIL,
        Folder="/tmp",
        Profile="AlexNet",
        Takes="1h",
    )
    browser.until(lambda: "running" in state(browser), "it to be placed")
    browser.until_text("hello from the log", ".log")
    assert "on node-0:0" in browser.text("main")
    assert (browser.count("main img"), EVIL in browser.text("h1")) == (0, True)

    # One that cannot share: whoever waits is told why, and when it is expected to start.
    second = submit(browser, "true", GPUs="4", Name="queued", Folder="/tmp", Memory="139", Takes="10m", Deadline="2s")
    browser.until(lambda: "waiting" in state(browser))
    browser.until_text("Why it waits")
    browser.until_text("Expected to start")

    # One that can: it is placed beside the first, and both say so.
    third = submit(
        browser, waiting(live.home, "go-3"), GPUs="2", Name="shares", Folder="/tmp", Profile="ResNet-18", Takes="1h"
    )
    browser.until(lambda: "running" in state(browser), "it to share")
    browser.until_text(EVIL, "main")
    browser.until_text("of its speed alone", "main")
    browser.open(f"{live.url}/#/")
    browser.until(lambda: browser.count(".gpu .jobs i:nth-child(2)") == 2, "two GPUs to be shared")

    for name in ("go-1", "go-3"):
        (live.home / name).touch()
    for job_id in (first, second, third):
        browser.open(f"{live.url}/#/jobs/{job_id}")
        browser.until(lambda: "finished" in state(browser), "it to finish")
    browser.open(f"{live.url}/#/jobs/{first}")
    browser.until_text("through", ".log")
    browser.click("Jobs", "nav a")
    browser.click("All", ".chips button")
    browser.until_text("queued", ".scroller")
    assert browser.count("main img") == 0


def test_epochs_are_followed_and_a_job_is_held_released_and_cancelled(browser: Browser, live: Live) -> None:
    browser.sign_in(live.url, live.tokens["mia"])
    train = f"{sys.executable} {EXAMPLES / 'train.py'} --epochs 500 --epoch-s 0.5"
    browser.click("Submit a job", "button")
    browser.type("Command", train)
    browser.type("Name", "train")
    browser.type("Folder", str(live.home))
    browser.click("More")
    browser.type("Environment", f"TMPDIR={live.home}")
    browser.click("Submit", "dialog button[type=submit]")
    browser.until(lambda: "#/jobs/" in browser.driver.current_url)
    browser.until_text("/500")
    browser.click("Hold", "button")
    browser.until(lambda: state(browser).endswith("held"), "it to be held")
    browser.click("Release", "button")
    browser.until(lambda: "running" in state(browser))
    browser.click("Cancel", "main button")
    browser.click("No", "dialog button")
    assert "cancelled" not in state(browser)
    browser.click("Cancel", "main button")
    browser.click("Cancel it", "dialog button")
    browser.until(lambda: "cancelled" in state(browser))


def test_an_operator_drains_a_node_and_asks_what_if(browser: Browser, live: Live) -> None:
    browser.sign_in(live.url, live.tokens["olga"])
    browser.until(lambda: browser.count(".gpu .said:not(:empty)") == 4)
    browser.js("document.querySelectorAll('.gpu')[3].click()")
    browser.click("Drain node node-1", "button")
    browser.until(lambda: browser.count(".map .gpu[data-state=drained]") == 2, "both of its GPUs to be drained")
    browser.click("Resume node node-1", "button")
    browser.until(lambda: browser.count(".map .gpu[data-state=free]") == 4)

    with live.client("mia") as client:
        held = client.submit({"command": ["sleep", "1000"], "gpus": 4, "estimate_s": 900.0, "cwd": "/tmp"})["id"]
        behind = client.submit({"command": ["true"], "gpus": 4, "estimate_s": 600.0, "cwd": "/tmp", "name": "behind"})[
            "id"
        ]
        browser.until(lambda: client.job(held)["state"] == "running")
        browser.click("What if", "nav a")
        browser.until(lambda: browser.count("select option[value=fifo]"))
        browser.choose("Nodes more or fewer", "2")
        browser.click("Ask the simulator", "button")
        browser.until_text("With 2 nodes more", "main")
        browser.until_text("sooner", "main")
        assert "behind" in browser.text("main")
        browser.type("Policy by its stages", "nonsense")
        browser.click("Ask the simulator", "button")
        browser.until_text("nonsense", ".problem")
        client.cancel(held)
        client.cancel(behind)


def test_a_member_sees_only_what_is_theirs(browser: Browser, live: Live) -> None:
    with live.client("max") as client:
        secret = client.submit({"command": ["sleep", "1000"], "gpus": 1, "name": "top-secret-of-max", "cwd": "/tmp"})[
            "id"
        ]
        browser.until(lambda: client.job(secret)["state"] == "running")
        browser.sign_in(live.url, live.tokens["mia"])
        browser.until(lambda: browser.count(".gpu[data-state=busy]"))
        browser.js("document.querySelector('.gpu[data-state=busy]').click()")
        browser.until_text(f"job {secret} of somebody else")
        assert browser.count(".details button") == 0
        for path in ("", "jobs", "users", "events", "energy"):
            browser.open(f"{live.url}/#/{path}")
            browser.until_text("live")
            browser.until(lambda: browser.text("main") and browser.text("main .panel") != "…")
            assert "top-secret" not in browser.js("return document.documentElement.outerHTML"), path
            assert "max" not in browser.text("main").split(), path
        browser.open(f"{live.url}/#/jobs/{secret}")
        browser.until_text(f"there is no job {secret}")
        client.cancel(secret)

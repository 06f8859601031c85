"""What others may try with a page that somebody has open, and what must be left behind nowhere."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.api.serving import Served
from tests.live.scripted import wait_for
from tests.web.browser import Browser
from tests.web.conftest import Live

VIEWS = ("", "jobs", "users", "energy", "events", "whatif")


@pytest.fixture
def neighbour() -> Iterator[str]:
    """Another program on another port of the same host, to which the browser would send the same cookies."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>neighbour</title><body></body>")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_tokens_keys_and_cookies_are_in_no_address_and_no_log(browser: Browser, live: Live) -> None:
    browser.sign_in(live.url, live.tokens["olga"])
    key = browser.js("return localStorage.getItem('fairlead.key')")
    cookies = [one["value"] for one in browser.cdp("Network.getCookies", urls=[live.url])["cookies"]]
    assert (bool(key), len(cookies)) == (True, 1)
    for path in VIEWS:
        browser.open(f"{live.url}/#/{path}")
        browser.until_text("live", ".top")
    addresses = browser.requests()
    assert len(addresses) > 10
    secrets = (live.tokens["olga"], key, *cookies)
    for secret in secrets:
        assert not any(secret in address for address in addresses)
        for log in live.home.glob("*.log"):
            assert secret not in log.read_text(), log
        assert secret not in browser.js("return document.documentElement.outerHTML + location.href")
    assert live.tokens["olga"] not in browser.js("return JSON.stringify({ ...localStorage, ...sessionStorage })")


def test_no_other_site_can_frame_the_page_or_act_through_it(browser: Browser, site: Served, neighbour: str) -> None:
    browser.sign_in(site.server.url, site.token["alice"])
    job_id = site.submit(gpus=1, name="mine")
    wait_for(lambda: (job_id, 1) in site.world.engine.running)
    browser.open(neighbour)
    cancel = f"{site.server.url}/v1/jobs/{job_id}/cancel"
    for mode in ("cors", "no-cors"):
        asked = (
            "fetch(a[0], { method: 'POST', credentials: 'include', mode: a[1] }).then((one) => one.type + one.status)"
        )
        assert browser.awaited(asked, cancel, mode) in ("failed: TypeError: Failed to fetch", "opaque0")
    browser.js(
        "const form = document.createElement('form'); form.method = 'post'; form.action = arguments[0];"
        "const frame = document.createElement('iframe'); frame.name = form.target = 'posted';"
        "document.body.append(frame, form); form.submit()",
        cancel,
    )
    browser.js(
        "const one = document.createElement('iframe'); one.src = arguments[0]; document.body.append(one)",
        site.server.url,
    )
    frames = "return [...document.querySelectorAll('iframe')].length"
    assert browser.js(frames) == 2
    for number in range(2):
        browser.driver.switch_to.frame(number)
        browser.until(lambda: browser.js("return document.readyState") == "complete")
        assert browser.count("#app") == 0
        browser.driver.switch_to.default_content()
    assert (job_id, 1) in site.world.engine.running
    assert site.world.state(job_id) == "running"
    browser.logs()  # the browser tells of what it refused

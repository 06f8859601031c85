"""A real Chromium, headless, driven over its own protocol; and what the tests ask of a page."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "no Chromium with its driver here: apt-get install chromium chromium-driver"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1440,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # whoever asks the world outside is refused, and told
)  # fmt: skip
AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
PATIENCE_S = 120.0


class Browser:
    """One browser with a profile of its own."""

    def __init__(self) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        self._profile = tempfile.mkdtemp(prefix="fairlead-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={self._profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})  # type: ignore[no-untyped-call]
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_script_timeout(PATIENCE_S)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.driver.quit()
        shutil.rmtree(self._profile, ignore_errors=True)

    # ---- where ----

    def forget(self) -> None:
        """As if it had never been here: one window, no cookies, nothing stored, no worker."""
        for handle in self.driver.window_handles[1:]:
            self.driver.switch_to.window(handle)
            self.driver.close()
        self.driver.switch_to.window(self.driver.window_handles[0])
        self.cdp("Network.clearBrowserCookies")
        if self.driver.current_url.startswith("http"):
            origin = "/".join(self.driver.current_url.split("/")[:3])
            self.cdp("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.cdp("Emulation.setEmulatedMedia", features=[])
        self.cdp("Network.enable")
        self.offline(False)
        self.driver.get("about:blank")
        self.logs()
        self.requests()

    def open(self, url: str) -> None:
        self.driver.get(url)

    def cdp(self, method: str, **values: Any) -> Any:
        return self.driver.execute_cdp_cmd(method, values)

    def size(self, width: int, height: int) -> None:
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, is_dark: bool = True) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])

    def offline(self, is_offline: bool) -> None:
        self.cdp(
            "Network.emulateNetworkConditions",
            offline=is_offline,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    # ---- what is there ----

    def js(self, script: str, *values: Any) -> Any:
        return self.driver.execute_script(script, *values)

    def awaited(self, promise: str, *values: Any) -> Any:
        """The value of a promise that an expression gives; `a` has the values."""
        script = (
            "const [...a] = arguments; const done = a.pop(); (" + promise + ").then(done, (e) => done('failed: ' + e))"
        )
        return self.driver.execute_async_script(script, *values)

    def text(self, selector: str = "body") -> str:
        found: str = self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return found

    def count(self, selector: str) -> int:
        return int(self.js("return document.querySelectorAll(arguments[0]).length", selector))

    def until(self, holds: Callable[[], Any], what: str = "") -> Any:
        end_s = time.monotonic() + PATIENCE_S
        while not (found := holds()):
            assert time.monotonic() < end_s, f"{what or holds}: {self.text()[:3000]}\n{self.logs()}"
            time.sleep(0.1)
        return found

    def until_text(self, text: str, selector: str = "body") -> None:
        self.until(lambda: text in self.text(selector), f"{text!r} in {selector}")

    # ---- what is done ----

    def click(self, text: str, selector: str = "button, a, summary, label") -> None:
        """The visible one with this text, as soon as it is there."""
        script = (
            "const all = [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility());"
            "const found = all.find((one) => one.innerText.trim() === arguments[1]) ??"
            " all.find((one) => one.innerText.includes(arguments[1])); if (found) found.click(); return Boolean(found);"
        )
        self.until(lambda: self.js(script, selector, text), f"to click {text!r}")

    def type(self, label: str, text: str) -> None:
        """Into the control with this label, as a person would."""
        script = (
            "const found = [...document.querySelectorAll('label')].filter((one) => one.checkVisibility())"
            ".find((one) => one.innerText.startsWith(arguments[0]));"
            "return found ? found.control : null;"
        )
        control = self.until(lambda: self.js(script, label), f"a control called {label!r}")
        control.clear()
        control.send_keys(text)

    def choose(self, label: str, value: str) -> None:
        """A value of a select or of a range."""
        script = (
            "const all = [...document.querySelectorAll('label')];"
            "const found = all.find((one) => one.innerText.startsWith(arguments[0]));"
            "if (!found?.control) return false; found.control.value = arguments[1];"
            "for (const what of ['input', 'change']) found.control.dispatchEvent(new Event(what, { bubbles: true }));"
            "return found.control.value === arguments[1];"
        )
        self.until(lambda: self.js(script, label, value), f"{label!r} to be {value!r}")

    def sign_in(self, url: str, token: str) -> None:
        self.open(url)
        self.type("Your token", token)
        self.click("Sign in", "button")
        self.until_text("Sign out")

    # ---- what is judged ----

    def logs(self) -> list[str]:
        """What the console was told since the last time, but for refusals and for servers that have gone."""
        meant = ("the server responded", "net::ERR_CONNECTION", "net::ERR_INCOMPLETE", "net::ERR_EMPTY")
        found = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [message for message in found if not any(words in message for words in meant)]

    def requests(self) -> list[str]:
        """All that was asked of the network since the last time."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def axe(self) -> list[str]:
        """What axe-core finds that is serious or critical."""
        self.cdp("Page.enable")
        # Not through the page: its policy lets no such script in.
        self.cdp("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"), returnByValue=False)
        found = self.awaited("axe.run(document, { resultTypes: ['violations'] })")
        assert isinstance(found, dict), found
        bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {one['help']}: {[n['html'][:160] for n in one['nodes'][:3]]}" for one in bad]


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """A browser; skips where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(MISSING)
    made = Browser()
    try:
        yield made
    finally:
        made.close()

"""What the page costs at a thousand GPUs and ten thousand jobs: first paint, updates, idle pages, and twenty of them;
and how a page that slept comes back.

A controller in a process of its own, over an engine that does as it is told; a headless Chromium looks at it (left out
where there is none), and further pages are streams read over loopback. Every reading of every GPU is another one every
five seconds, except where nothing is to happen. Bounds: first paint 1 s; an update 100 ms of the server's CPU time; an
idle page 1 % of a core more than none. `--sleep 3600` stops the whole browser for an hour and lets it go on.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.web.big import GPUS, JOBS, big_world, read_all
from tests.web.browser import CHROMIUM, DRIVER, Browser, started

READ_S = 5.0
"""As often as agents are polled unless told otherwise."""
PAGES = 20
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


# ---- the controller's process ----


def serve(folder: Path) -> None:
    """Says where it is; then obeys its stdin line by line: still, lively, drain, took, quit."""
    from tests.live.api.serving import served

    world = big_world(folder)
    lively, over = threading.Event(), threading.Event()
    took: dict[str, list[float]] = {"refresh": [], "message": [], "bytes": []}

    def stir() -> None:
        rng = random.Random(2)
        while not over.wait(READ_S):
            if lively.is_set():
                read_all(world, rng)

    with served(world) as site:
        updates = site.app.state.context.updates
        updates.refresh = _timed(updates.refresh, took["refresh"])
        updates._message = _timed(updates._message, took["message"], took["bytes"])
        threading.Thread(target=stir, daemon=True).start()
        while len(world.engine.running) < GPUS:
            time.sleep(0.05)
        print(json.dumps({"url": site.server.url, "token": site.token["olga"]}), flush=True)
        for line in sys.stdin:
            word = line.strip()
            if word == "quit":
                break
            if word in ("still", "lively"):
                (lively.set if word == "lively" else lively.clear)()
            if word == "drain":
                world.controller.ask(lambda: world.controller.set_drained(set(range(8)), True)).result(60.0)
            print(json.dumps(took), flush=True)
            for values in took.values():
                values.clear()
        over.set()
    world.close()


def _timed(call: Callable[..., Any], took: list[float], sizes: list[float] | None = None) -> Callable[..., Any]:
    """CPU time of the thread that calls; calls that find nothing new are left out."""

    def timed(*given: Any) -> Any:
        began_s = time.thread_time()
        found = call(*given)
        if found:
            took.append(time.thread_time() - began_s)
            if sizes is not None:
                sizes.append(len(found))
        return found

    return timed


class Controller:
    """That process, seen from here."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, __file__, "--serve", str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        where = self._answer()
        self.url, self.token = where["url"], where["token"]

    def tell(self, word: str) -> dict[str, list[float]]:
        """Gives what updates took since the last time."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        found: dict[str, list[float]] = self._answer()
        return found

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S

    def core_percent(self, for_s: float) -> float:
        """Of its CPU, over a time in which nobody asks it anything from here."""
        began_s, before_s = time.monotonic(), self.cpu_s()
        time.sleep(for_s)
        return 100.0 * (self.cpu_s() - before_s) / (time.monotonic() - began_s)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("quit\n")
        self._process.stdin.flush()
        self._process.wait(60)

    def _answer(self) -> Any:
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        return json.loads(stdout.readline())


# ---- pages ----


class Follower(threading.Thread):
    """A page of another browser: reads the stream and asks for it anew whenever it ends."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(daemon=True)
        self._at, self._token = urlsplit(controller.url), controller.token
        self.first, self.over = threading.Event(), threading.Event()

    def run(self) -> None:
        epoch, version, event = "", -1, -1
        while not self.over.is_set():
            connection = http.client.HTTPConnection(str(self._at.hostname), self._at.port, timeout=60)
            path = f"/v1/updates?epoch={epoch}&version={version}&event={event}"
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            for line in connection.getresponse():
                if line.startswith(b"data: {"):
                    found = json.loads(line[6:])
                    epoch, version, event = found["epoch"], found["version"], found["last_event"]
                    self.first.set()
                if self.over.is_set():
                    break
            connection.close()


def first_paint(browser: Browser, controller: Controller) -> dict[str, float]:
    """Of a browser that has a session and nothing in its cache."""
    browser.cdp("Network.clearBrowserCache")
    browser.open("about:blank")
    browser.open(f"{controller.url}/")
    browser.until(lambda: browser.count(".gpu[data-state=busy]") == GPUS)
    script = (
        "const paint = performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint');"
        "return [paint ? paint.startTime : null, performance.now()]"
    )
    whole_ms = browser.js(script)[1]
    paint_ms = browser.until(lambda: browser.js(script)[0], "a first paint")
    return {"paint_ms": paint_ms, "whole_ms": whole_ms}


def asked_ms(controller: Controller, path: str, times: int = 200) -> float:
    """The server's CPU for one request of many; none is asked twice, as answers are kept while nothing happens."""
    at, before_s = urlsplit(controller.url), controller.cpu_s()
    connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=60)
    for number in range(times):
        asked = path.format(offset=number)
        connection.request("GET", asked, headers={"Authorization": f"Bearer {controller.token}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    return 1000.0 * (controller.cpu_s() - before_s) / times


def children(pid: int) -> list[int]:
    """A process and all below it."""
    found, parents = [pid], {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def slept(browser: Browser, controller: Controller, sleep_s: float) -> float:
    """Seconds until a browser that was stopped, while things happened, shows them."""
    driver = browser.driver.service.process.pid
    stopped = [pid for pid in children(driver) if pid != driver]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(sleep_s / 2)
        controller.tell("drain")
        time.sleep(sleep_s / 2)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    began_s = time.monotonic()
    browser.until(lambda: browser.count(".map .gpu.drained") == 8, "the drained node")
    browser.until_text("live", ".top")
    return time.monotonic() - began_s


# ---- all of it ----


def measure(folder: Path, for_s: float, sleep_s: float) -> dict[str, Any]:
    controller = Controller(folder)
    try:
        found: dict[str, Any] = {"gpus": GPUS, "jobs": JOBS}
        time.sleep(5.0)
        found["no_page_percent"] = controller.core_percent(for_s)
        if CHROMIUM is not None and DRIVER is not None:
            with started() as browser:
                found |= in_browser(browser, controller, for_s, sleep_s)
        found |= followed(controller, for_s)
        table = "/v1/job-table?limit=100&offset={offset}"
        paths = (table, f"{table}&sort=start&state=waiting", "/v1/jobs/1/beside", "/v1/usage")
        found["requests_ms"] = {path: asked_ms(controller, path) for path in paths}
        return found
    finally:
        controller.close()


def in_browser(browser: Browser, controller: Controller, for_s: float, sleep_s: float) -> dict[str, Any]:
    browser.size(1440, 900)
    browser.sign_in(controller.url, controller.token)
    paints = [first_paint(browser, controller) for _ in range(5)]
    found: dict[str, Any] = {key: statistics.median(one[key] for one in paints) for key in paints[0]}
    time.sleep(10.0)  # a first prediction for ten thousand jobs is made beside it
    found["idle_page_percent"] = controller.core_percent(for_s)
    controller.tell("lively")
    found["lively_page_percent"] = controller.core_percent(for_s)
    controller.tell("still")
    found["slept_s"], found["back_after_s"] = sleep_s, slept(browser, controller, sleep_s)
    return found


def followed(controller: Controller, for_s: float) -> dict[str, Any]:
    controller.tell("lively")
    pages = [Follower(controller) for _ in range(PAGES)]
    for page in pages:
        page.start()
    for page in pages:
        page.first.wait(60)
    controller.tell("lively")
    percent = controller.core_percent(for_s)
    took = controller.tell("still")
    for page in pages:
        page.over.set()
    update_ms = [1000.0 * (one + other) for one, other in zip(took["refresh"], took["message"], strict=False)]
    return {
        "twenty_pages_percent": percent,
        "update_ms": statistics.median(update_ms),
        "slowest_update_ms": max(update_ms),
        "update_kb": statistics.median(took["bytes"]) / 1000.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--for", dest="for_s", type=float, default=60.0, help="seconds of each look at the CPU")
    parser.add_argument("--sleep", dest="sleep_s", type=float, default=10.0, help="seconds that the browser is stopped")
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    if options.for_s < 2 * READ_S:
        parser.error(f"--for {options.for_s:g}: readings change every {READ_S:g} s; give at least {2 * READ_S:g}")
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.for_s, options.sleep_s)
    for name, value in found.items():
        rows = value if isinstance(value, dict) else {name: value}
        for row, number in rows.items():
            print(f"{row:52} {number:10,.2f}", file=sys.stderr)
    if options.json:
        print(json.dumps(found, indent=2))
    idle = found.get("idle_page_percent", 0.0) - found["no_page_percent"]
    sys.exit(found.get("paint_ms", 0.0) > 1000.0 or found["slowest_update_ms"] > 100.0 or idle > 1.0)


if __name__ == "__main__":
    main()

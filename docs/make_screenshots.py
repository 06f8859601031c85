"""Make the pictures of the page: `python docs/make_screenshots.py`. Needs Chromium with its driver.

A controller on 32 made-up GPUs schedules real processes of four users for a minute, and a headless browser looks.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the browser is the tests' own

from tests.web.browser import Browser, started  # noqa: E402

from fairlead.live.client import Client  # noqa: E402

IMAGES = ROOT / "docs" / "images"
POLICY = "ordering=priority:preempt=false,sharing=eaco:history=eaco"
WARM_UP_S = 45.0
"""Until there are epochs, joules and a line over time to look at."""
COLOURS = 128
"""Enough for a page of flat colours, at a third of the bytes."""


def fairlead(*words: object) -> None:
    """Run a command of ours."""
    program = "from fairlead.cli.main import run; run()"
    subprocess.run([sys.executable, "-c", program, *map(str, words)], check=True, timeout=120, capture_output=True)


@contextlib.contextmanager
def controller() -> Iterator[Client]:
    """One with jobs of four users: some share, some wait, one is a service."""
    home = Path(tempfile.mkdtemp(prefix="fairlead-pictures-"))
    home.chmod(0o755)
    config = home / "fairlead.toml"
    config.write_text('[engine]\nas_submitter = "everyone-is-root"\n[controller]\npoll_s = 1.0\n', encoding="utf-8")
    try:
        gpus = ("--fake-gpus", 8, "--fake-nodes", 4, "--gpu-model", "A100", "--port", 0, "--policy", POLICY)
        fairlead("up", *gpus, "--config", config, "--home", home, "--detach")
        url, token = ((home / name).read_text(encoding="utf-8").strip() for name in ("url", "token"))
        with Client(url, token) as admin:
            submit_all(admin, url, home)
            time.sleep(WARM_UP_S)
            yield admin
    finally:
        fairlead("down", "--kill-jobs", "--grace", "1s", "--home", home)
        shutil.rmtree(home, ignore_errors=True)


def submit_all(admin: Client, url: str, home: Path) -> None:
    """More than fits."""
    for name in ("train.py", "service.py"):
        shutil.copy(ROOT / "examples" / name, home)
    train, serve = ["python", "train.py"], ["python", "service.py", "--latency-ms", "20"]
    where = {
        "cwd": str(home),
        "env": {"TMPDIR": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    }
    asked: list[tuple[str, str, int, dict[str, Any]]] = [
        ("ana", "ResNet-50", 8, {"name": "resnet-baseline"}),
        ("ana", "BERT", 4, {"name": "bert-finetune", "min_gpus": 2, "max_gpus": 8}),
        ("ben", "VGG-16", 4, {"name": "vgg-sweep-1"}),
        ("ben", "VGG-16", 4, {"name": "vgg-sweep-2"}),
        ("chen", "GPT2", 8, {"name": "gpt2-small", "priority": 1}),
        ("chen", "ResNet-18", 4, {"name": "cifar"}),
        ("dee", "AlexNet", 4, {"name": "alexnet"}),
        ("ana", "ResNet-18", 2, {"name": "distil"}),
        ("dee", "LSTM", 2, {"name": "language-model"}),
        ("ben", "ResNet-50", 16, {"name": "imagenet-full", "memory_mib": 60_000.0}),
        ("chen", "generic", 32, {"name": "all-of-it", "memory_mib": 70_000.0, "deadline_s": 7200.0}),
        ("dee", "generic", 8, {"name": "ablation", "memory_mib": 60_000.0}),
    ]
    own = {user: admin.make_token(user, "user")["token"] for user in ("ana", "ben", "chen", "dee")}
    with contextlib.ExitStack() as stack:
        clients = {user: stack.enter_context(Client(url, token)) for user, token in own.items()}
        search = {"name": "search", "command": serve, "kind": "service", "slo_s": 0.05}
        clients["dee"].submit({**search, **where})
        for number, (user, profile, gpus, more) in enumerate(asked):
            words = [*train, "--epochs", str(40 + 10 * number), "--epoch-s", str(12 + 3 * number)]
            job = {"command": words, "profile": profile, "gpus": gpus, "estimate_s": 900.0 + 120.0 * number, **more}
            clients[user].submit({**job, **where})


def save(browser: Browser, name: str) -> None:
    """What is in the window now, with few colours."""
    seen = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    path = IMAGES / f"{name}.png"
    seen.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)} ({path.stat().st_size / 1000:.0f} kB)")


def look(browser: Browser, admin: Client) -> None:
    """The cluster in light and dark, and one job."""
    code = admin.sign_in_code()
    browser.size(1280, 800)
    browser.open(f"{admin.url}/#sign-in={code}")
    browser.until_text("live", ".top")
    browser.until(lambda: browser.count(".gpu[data-state=busy]"), "busy GPUs")
    shared = "[...document.querySelectorAll('.gpu')].find((one) => one.querySelectorAll('.jobs i').length > 1)"
    browser.js(f"({shared} ?? document.querySelector('.gpu')).click(); scrollTo(0, 0)")
    for scheme in ("light", "dark"):
        browser.dark(scheme == "dark")
        time.sleep(2.0)
        save(browser, f"page-{scheme}")
    browser.dark(False)
    job = next(one for one in admin.jobs() if one["state"] == "running" and one["name"] == "cifar")
    browser.open(f"{admin.url}/#/jobs/{job['id']}")
    browser.until_text("epoch", ".log")
    time.sleep(2.0)
    save(browser, "page-job")


def main() -> None:
    """Write the pictures."""
    with controller() as admin, started() as browser:
        look(browser, admin)


if __name__ == "__main__":
    main()

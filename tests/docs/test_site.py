"""The site builds without a warning, and its search answers what a new reader asks."""

from __future__ import annotations

import functools
import html
import http.server
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.patience import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUESTIONS = {
    "how do I run on 4 machines": "questions.html#how-do-i-run-on-4-machines",
    "why does my job wait": "live.html#why-does-my-job-wait",
    "what does the guard do": "questions.html#what-does-the-guard-do",
    "how do I write a policy": "questions.html#how-do-i-write-a-policy",
    "how do I restore a backup": "questions.html#how-do-i-restore-a-backup",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="Sphinx is not installed here")
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(folder / ".cache"), "-b", "html"]
    done = subprocess.run([*line, str(ROOT / "docs"), str(folder)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_it_builds_and_every_page_is_in_it(site: Path) -> None:
    made = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}
    written = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert written <= made
    assert "search" in made


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed here")
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_search_has_the_answer_first(question: str, address: str, tmp_path: Path) -> None:
    url = f"{address}/search.html?q={urllib.parse.quote(question)}"
    line = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    line += ["--virtual-time-budget=20000", "--dump-dom", url]
    shown = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S).stdout
    found = re.findall(r'<li[^>]*><a href="([^"]+)"', shown[shown.find('class="search"') :])
    assert html.unescape(found[0]) == QUESTIONS[question]

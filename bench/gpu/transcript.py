"""Commands as they are typed, with their answers and the moment, as a page of Markdown."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from common import ROOT


class Transcript:
    """Runs `fairlead` and keeps what it said."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.lines: list[str] = []
        path = f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "110", **env}
        self.began_s = time.monotonic()

    def text(self, words: str) -> None:
        """What is said between the commands."""
        self.lines += ["", words, ""]
        print(words, flush=True)

    def run(self, line: str, env: Mapping[str, str] | None = None) -> str:
        """A command, and its answer."""
        words = shlex.split(line)
        at_s = time.monotonic() - self.began_s
        done = subprocess.run(
            [sys.executable, "-m", "fairlead", *words[1:]],
            env={**self.env, **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        said = (done.stdout + done.stderr).rstrip()
        shown = [f"[{at_s:5.1f} s] $ {line}", *said.splitlines()]
        tidy = (one.replace(str(ROOT), ".").replace(sys.executable, "python") for one in shown)
        self.lines += ["```text", *(one.rstrip() for one in tidy), "```"]
        print("\n".join(shown), flush=True)
        return said

    def write(self, path: Path) -> None:
        """All of it."""
        path.write_text("\n".join(self.lines).strip() + "\n", encoding="utf-8")

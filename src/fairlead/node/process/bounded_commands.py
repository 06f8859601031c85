"""Commands that may hang, run so that nobody else does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said and how it ended."""

    code: int | None
    """None: it did not end in time."""
    out: str


def run_bounded(
    argv: Sequence[str], *, timeout_s: float, text_in: str = "", env: Mapping[str, str] | None = None
) -> Answer:
    """Run a command that may hang, and come back in time whatever it does.

    In and out go through files, not pipes: a daemon that the command leaves behind would keep a pipe open for ever.
    Raises OSError where the command cannot be started.
    """
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout:
        stdin.write(text_in.encode())
        stdin.seek(0)
        running = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        code: int | None
        try:
            code = running.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(1.0)  # one that sits in the kernel is left to be reaped later
        stdout.seek(0)
        return Answer(code, stdout.read().decode(errors="replace"))

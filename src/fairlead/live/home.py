"""The controller's folder: its database, its agents' folders, its log, and where and how it is reached.

One controller at a time holds it. Other users need none of it: FAIRLEAD_URL and FAIRLEAD_TOKEN are enough.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError, InputError
from fairlead.node.processes import is_running, process


@dataclass(frozen=True, slots=True)
class Home:
    """A folder that need not be there yet."""

    path: Path

    @property
    def database(self) -> Path:
        """Jobs, attempts, events, tokens."""
        return self.path / "fairlead.db"

    @property
    def nodes(self) -> Path:
        """Of the agents."""
        return self.path / "nodes"

    @property
    def log(self) -> Path:
        """What the controller says."""
        return self.path / "controller.log"

    @property
    def url(self) -> Path:
        """Where it answers, while it runs."""
        return self.path / "url"

    @property
    def token(self) -> Path:
        """The administrator's, of whoever runs it."""
        return self.path / "token"

    def prepare(self) -> None:
        """Make it, for its owner only, and see that it can be written to."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            for path in (self.database, self.log):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            hint = "give another with --home or FAIRLEAD_HOME"
            raise InputError(f"cannot write to {self.path}: {error.strerror or error}", hint=hint) from None

    @contextlib.contextmanager
    def held(self, *, for_others: bool = False) -> Iterator[None]:
        """Be the only controller here, as long as the block lasts or the process lives.

        Where jobs run under others' accounts, these may pass through.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise self._is_held() from None
        try:
            self.path.chmod(0o711 if for_others else 0o700)
            self.url.unlink(missing_ok=True)  # of one that was killed
            own = process(os.getpid())
            assert own is not None
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": own.pid, "start_ticks": own.start_ticks}).encode(), 0)
            yield
        finally:
            os.truncate(descriptor, 0)
            os.close(descriptor)

    def holder(self) -> tuple[int, int] | None:
        """The controller that runs here: its process, and when that was started."""
        try:
            found: dict[str, Any] = json.loads((self.path / "lock").read_text())
            pid, start_ticks = int(found["pid"]), int(found["start_ticks"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return (pid, start_ticks) if is_running(pid, start_ticks) else None

    def write(self, path: Path, text: str) -> None:
        """A file for its owner only, whole or not at all."""
        part = path.with_name(f".{path.name}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)

    def _is_held(self) -> FairleadError:
        holder = self.holder()
        who = "another process" if holder is None else f"process {holder[0]}"
        url = read(self.url)
        at = f", at {url}" if url else ""
        return InputError(
            f"a controller runs in {self.path} already: {who}{at}",
            hint="stop it with: fairlead down, or give another --home",
        )


def home_folder(given: Path | None = None) -> Path:
    """Where the controller keeps its state: as given, else FAIRLEAD_HOME, else ~/.fairlead."""
    text = os.environ.get("FAIRLEAD_HOME")
    return (given or (Path(text) if text else Path.home() / ".fairlead")).expanduser().absolute()


def read(path: Path) -> str:
    """What a small file says; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""

"""The controller's folder: its database, its agents' folders, its log, and where and how it is reached.

One controller at a time holds it. Other users need none of it: FAIRLEAD_URL and FAIRLEAD_TOKEN are enough.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.errors import FairleadError, InputError
from fairlead.node.gpu.claims import folder_holder, hold_folder
from fairlead.node.process.processes import is_running, process

WARNING = "warning: "
"""What a controller has to say about its start, on stderr, begins so."""


@dataclass(frozen=True, slots=True)
class Home:
    """A folder that need not be there yet."""

    path: Path

    @property
    def database(self) -> Path:
        """The file with jobs, attempts, events and tokens."""
        return self.path / "fairlead.db"

    @property
    def nodes(self) -> Path:
        """The folder in which local agents keep theirs."""
        return self.path / "nodes"

    @property
    def log(self) -> Path:
        """The file that a controller in the background logs to."""
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
    def held(self, *, for_others: bool | None = False) -> Iterator[None]:
        """Be the only controller here, as long as the block lasts or the process lives.

        Where jobs run under others' accounts, these may pass through; None leaves that as it is.
        """
        try:
            folder, descriptor = hold_folder(self.path, "lock")
        except BlockingIOError:
            raise self._is_held() from None
        try:
            if for_others is not None:
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
            os.close(folder)

    def holder(self) -> tuple[int, int] | None:
        """The controller that runs here: its process, and when that was started."""
        try:
            found: dict[str, Any] = json.loads((self.path / "lock").read_text())
            pid, start_ticks = int(found["pid"]), int(found["start_ticks"])
        except (OSError, ValueError, KeyError, TypeError):
            pid = start_ticks = -1
        if is_running(pid, start_ticks):
            return pid, start_ticks
        # The file may have been deleted; the lock is on the folder, and stands.
        holder = folder_holder(self.path)
        own = None if holder is None else process(holder)
        return None if own is None else (own.pid, own.start_ticks)

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
    return expanded(given or (Path(text) if text else Path.home() / ".fairlead")).absolute()


def expanded(path: Path) -> Path:
    """With `~` and `~user` as the folders that they mean."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise InputError(f"{path}: no such user", hint="~ alone is your own folder") from None


def read(path: Path) -> str:
    """What a small file says; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""

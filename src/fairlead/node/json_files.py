"""Small JSON files that are whole or absent, and on the disk once written."""

from __future__ import annotations

import json
import os
from _thread import get_ident
from typing import Any


def write_json(path: str, value: dict[str, Any]) -> None:
    """All of it or nothing, whatever was there before."""
    made = _written(path, value)
    os.rename(made, path)
    _sync_folder(path)


def create_json(path: str, value: dict[str, Any]) -> bool:
    """The same, but only where there is nothing yet; False where somebody was first."""
    made = _written(path, value)
    try:
        os.link(made, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(made)
    _sync_folder(path)
    return True


def read_json(path: str) -> dict[str, Any] | None:
    """What `write_json` wrote; None where there is nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _written(path: str, value: dict[str, Any]) -> str:
    made = f"{path}.{os.getpid()}.{get_ident()}.tmp"
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(json.dumps(value).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        os.unlink(made)  # or a full disk fills with what could not be written to it
        raise
    return made


def _sync_folder(path: str) -> None:
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

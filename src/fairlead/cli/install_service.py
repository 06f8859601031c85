"""`fairlead install-service`: the controller as a systemd service that starts at boot."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.connect import HomeOption
from fairlead.cli.console import print_json, say
from fairlead.cli.options import JsonOption
from fairlead.errors import InputError, RunError

_NAME = "fairlead.service"
_SYSTEM_UNITS = Path("/etc/systemd/system")
_SYSTEM_HOME = Path("/var/lib/fairlead")
_UNIT = """\
[Unit]
Description=Fairlead, a scheduler for shared GPUs
After=network-online.target
Wants=network-online.target

[Service]
Environment="FAIRLEAD_HOME={home}"
ExecStart="{python}" -m fairlead up
Restart=always
RestartSec=2
# Running jobs outlive the controller, and the next one takes them over.
KillMode=process
# Jobs get cgroups of their own, so that limits hold. DelegateSubgroup needs systemd 254; older ones ignore it.
Delegate=yes
DelegateSubgroup=controller

[Install]
WantedBy={target}
"""


def install_service(
    user: Annotated[bool, typer.Option("--user", help="A service of your own account, without root.")] = False,
    print_: Annotated[bool, typer.Option("--print", help="Print the unit, and change nothing.")] = False,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Only write the unit into this folder; start nothing.")
    ] = None,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Install the controller as a systemd service, enable it at boot, and start it."""
    from fairlead.live.home import home_folder

    folder = _SYSTEM_HOME if home is None and not user else home_folder(home)
    unit = unit_text(folder, user=user)
    if print_:
        sys.stdout.write(unit)
        return
    path = _write(unit, to or _unit_folder(user))
    if to is None:
        _start(user)
    if json:
        print_json({"unit": str(path), "home": str(folder), "started": to is None})
        return
    say("wrote", str(path))
    if to is None:
        scope = "--user " if user else ""
        say("note", f"the service runs; its log: journalctl {scope}-u {_NAME}; its folder: {folder}")
        if user:
            say("hint", "to have it run while you are logged out: loginctl enable-linger")


def unit_text(home: Path, *, user: bool) -> str:
    """The unit for this Python; paths with what systemd reads as something else are refused."""
    for path in (str(home), sys.executable):
        if any(sign in path for sign in '"\\%\n'):
            raise InputError(f"systemd cannot take the path {path!r}", hint="use one without quotes, % and backslashes")
    return _UNIT.format(home=home, python=sys.executable, target="default.target" if user else "multi-user.target")


def _unit_folder(user: bool) -> Path:
    if user:
        return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"
    if os.geteuid() != 0:
        raise InputError(
            f"only root may write {_SYSTEM_UNITS}",
            hint="sudo fairlead install-service, or fairlead install-service --user",
        )
    return _SYSTEM_UNITS


def _write(unit: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _NAME
    path.write_text(unit, encoding="utf-8")
    return path


def _start(user: bool) -> None:
    if shutil.which("systemctl") is None:
        raise InputError("no systemctl on this machine: it does not run systemd", hint="start `fairlead up` otherwise")
    scope = ["--user"] if user else []
    for words in (["daemon-reload"], ["enable", "--now", _NAME]):
        done = subprocess.run(["systemctl", *scope, *words], capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stderr.strip() or f"status {done.returncode}"
            raise RunError(
                f"systemctl {' '.join([*scope, *words])}: {said}", hint="the unit is written; --print shows it"
            )

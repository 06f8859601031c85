"""Builds wheel and sdist, installs the wheel into an empty environment, runs the demo from it, and uninstalls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*words: str | Path, folder: Path) -> str:
    """What a command prints; its errors are shown, and end this."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    line = [str(word) for word in words]
    print("$", " ".join(line[:6]), "..." if len(line) > 6 else "", flush=True)
    return subprocess.run(line, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Raises where one of the steps fails."""
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory(prefix="fairlead-wheel-") as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, folder=folder)
        (wheel,) = (folder / "dist").glob("*.whl")
        (sdist,) = (folder / "dist").glob("*.tar.gz")
        venv.create(folder / "empty", with_pip=True)
        python = folder / "empty" / "bin" / "python"
        run(python, *pip, "install", f"{wheel}[live]", folder=folder)
        demo = json.loads(run(folder / "empty" / "bin" / "fairlead", "demo", "--json", folder=folder))
        states = {job["state"] for job in demo["jobs"] if job["kind"] != "service"}
        assert states == {"finished"}, states
        assert any("goes on from its checkpoint" in line["said"] for line in demo["story"]), demo["story"]
        run(python, *pip, "uninstall", "--yes", "fairlead", folder=folder)
        gone = run(python, "-c", "import importlib.util as u; print(u.find_spec('fairlead'))", folder=folder)
        assert gone.strip() == "None", f"left behind: {gone}"
        print(f"{wheel.name} ({wheel.stat().st_size >> 10} KiB) and {sdist.name} install, run and go")


if __name__ == "__main__":
    main()

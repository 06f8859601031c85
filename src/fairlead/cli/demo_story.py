"""The demo's story: who submits what, when, under which policy. Eight jobs of two users, one budget."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]
_EXAMPLES = next((p for p in (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples") if p.is_dir()), _PACKAGE)
"""In a wheel inside the package, in a checkout beside the sources."""
USERS = ("ana", "ben")
NODES, NODE_GPUS, GPU_MODEL = 4, 2, "H200"
BUDGET_GPUS = 7.0
SCALING = 0.8
"""k GPUs are k to this power as fast: for the profiles, and for the trainings themselves."""
RENT = "boot=1,minimum=5,step=1"
ACTIVITY_FRAC = {"vision": 0.5, "language": 0.7}
_MEMORY_MIB = 20_000
_RESTART_S = 0.5
SLO_S, LATENCY_S = 0.05, 0.02


@dataclass(frozen=True, slots=True)
class Scene:
    """A job that a user submits so many seconds into the story."""

    at_s: float
    user: str
    name: str
    profile: str = ""
    """Empty: a service."""
    epochs: int = 0
    epoch_s: float = 3.0
    gpus: int = 1
    most_gpus: int = 1

    @property
    def alone_s(self) -> float:
        """How long it takes on GPUs of its own, as many as it asks for."""
        return float(self.epochs * self.epoch_s / self.gpus**SCALING)


SCENES = (
    Scene(0.0, "ana", "search"),
    Scene(0.0, "ben", "chat"),
    Scene(0.0, "ana", "ads"),
    Scene(2.0, "ben", "vgg", "vision", 10),
    Scene(3.0, "ana", "unet", "vision", 9),
    Scene(4.0, "ben", "lstm", "language", 8),
    Scene(6.0, "ana", "bert", "language", 10, gpus=2, most_gpus=4),
    Scene(9.0, "ben", "resnet", "vision", 10, gpus=2, most_gpus=4),
)


def burst_file(home: Path, service: str) -> Path:
    """While it is there, that service is in a burst."""
    return home / f"{service}.burst"


def request(scene: Scene, home: Path) -> dict[str, Any]:
    """The job of a scene as it is submitted: one of the examples with the scene's numbers."""
    asked = {
        "name": scene.name, "gpus": scene.gpus, "grace_s": 5, "cwd": str(home), "env": {"TMPDIR": str(home)},
    }  # fmt: skip
    if not scene.profile:
        words = ["--latency-ms", f"{1000 * LATENCY_S:g}", "--requests-per-s", "50"]
        command = [*_example("service.py"), *words, "--burst-while", str(burst_file(home, scene.name))]
        return {**asked, "command": command, "kind": "service", "slo_s": SLO_S}
    words = ["--epochs", str(scene.epochs), "--epoch-s", f"{scene.epoch_s:g}", "--scaling", f"{SCALING:g}"]
    elastic = {"min_gpus": 1, "max_gpus": scene.most_gpus, "estimate_s": scene.alone_s}
    return {**asked, **elastic, "command": [*_example("train.py"), *words], "profile": scene.profile}


def _example(name: str) -> list[str]:
    if not (_EXAMPLES / name).is_file():
        raise InputError(f"the demo runs examples/{name}, and {_EXAMPLES} has none", hint="run it from a checkout")
    return [sys.executable, str(_EXAMPLES / name)]


def write_configuration(home: Path) -> None:
    """A controller for a minute: everything happens in seconds that takes minutes elsewhere."""
    (home / "profiles.toml").write_text("".join(
        f'[[profile]]\nname = "{name}"\nspeedup = {{ p = {SCALING} }}\nactivity_frac = {busy}\n'
        f"memory_mib = {_MEMORY_MIB}\nrestart_s = {_RESTART_S}\n"
        for name, busy in ACTIVITY_FRAC.items()
    ), encoding="utf-8")  # fmt: skip
    (home / "types.toml").write_text("".join(
        f'[[type]]\nname = "{name}"\narrival_rate_per_s = 0.06\nmean_size_s = 28\npower = {SCALING}\n'
        for name in ACTIVITY_FRAC
    ), encoding="utf-8")  # fmt: skip
    sizing = f"sizing=boa:budget={BUDGET_GPUS:g}:every_s=2:rarest_s=2:horizon_s=4:known=true"
    stack = (
        f"{sizing}:types={home / 'types.toml'},ordering=fifo:backfill=greedy,sharing=muxflow,powering=rent:linger_s=1"
    )
    # Two users without accounts of their own: under root somebody has to say that this is meant.
    accounts = '\nas_submitter = "everyone-is-root"' if os.geteuid() == 0 else ""
    (home / "fairlead.toml").write_text(
        f'[policy]\nstack = "{stack}"\n\n[engine]\nfake_gpus = {NODE_GPUS}\nfake_nodes = {NODES}\n'
        f'gpu_model = "{GPU_MODEL}"\nprofiles = "profiles.toml"\nrent = "{RENT}"{accounts}\n\n'
        "[server]\nport = 0\n\n[guard]\nwindow_s = 1.0\nsample_s = 0.2\ngap_s = 1.0\ninit_s = 1.0\n",
        encoding="utf-8",
    )

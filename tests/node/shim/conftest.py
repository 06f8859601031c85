"""Builds the shim and the stub driver once, and runs programs under them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fairlead.node import shim
from tests.node.shim.virtual import Clock
from tests.patience import PATIENCE_S

STUB = Path(__file__).resolve().parents[1] / "stub"
UUID = "GPU-abababab-abab-abab-abab-ababababab00"
STRICT = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")


@dataclass
class Rig:
    """The built files, and a folder for one test's own."""

    built: Path
    library: Path
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    virtual: Clock | None = None

    def clock(self, *, parties: int = 1, limit_s: float | None = None) -> Clock:
        """From now on programs live by a virtual clock."""
        self.virtual = Clock(self.folder / "clock", parties=parties, limit_s=limit_s)
        return self.virtual

    def environment(self, *, preload: bool = True, **variables: object) -> dict[str, str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith(("FAIRLEAD_", "LD_", "STUB_"))}
        base |= {"LD_LIBRARY_PATH": str(self.built), "PYTHONPATH": str(STUB), "PYTHONUNBUFFERED": "1"}
        base |= {"STUB_STATS": str(self.folder / "stats"), "FAIRLEAD_SHIM_LOG": str(self.folder / "log")}
        preloaded = [str(self.library)] if preload else []
        if self.virtual:
            base["STUB_CLOCK"] = str(self.virtual.path)
            preloaded.insert(0, str(self.built / "libclock.so"))
        if preloaded:
            base["LD_PRELOAD"] = " ".join(preloaded)
        return base | {k: str(v) for k, v in variables.items()}

    def start(self, *command: object, preload: bool = True, **variables: object) -> subprocess.Popen[str]:
        """Starts the stub's client with these arguments, or Python on a program if there is one argument with lines."""
        words = [str(c) for c in command]
        if "\n" in words[0]:
            words = [
                sys.executable,
                "-c",
                "from driver import *\nimport os, signal, time\n" + textwrap.dedent(words[0]),
            ]
        else:
            words = [str(self.built / "client"), *words]
        environment = self.environment(preload=preload, **variables)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(words, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        self.started.append(process)
        return process

    def run(self, *command: object, preload: bool = True, **variables: object) -> str:
        """Runs to the end, which must be a good one; gives what was printed."""
        process = self.start(*command, preload=preload, **variables)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"exit {process.returncode}: {err}\n{self.log()}"
        return out.strip()

    def stats(self, name: str = "stats") -> dict[str, int]:
        """The stub driver's counters; their names are read from its source."""
        body = re.search(r"struct stats \{(.*?)\};", (STUB / "libcuda.c").read_text(), re.S)
        assert body is not None
        fields = re.findall(r"\b(\w+)[,;]", body[1])
        path = self.folder / name
        raw = path.read_bytes() if path.exists() else b""
        raw = raw.ljust(8 * len(fields), b"\0")
        return dict(zip(fields, struct.unpack(f"{len(fields)}Q", raw[: 8 * len(fields)]), strict=True))

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def clean(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
        if self.virtual:
            self.virtual.close()


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder with the stub driver, NVML and clients, and the shim."""
    compiler = shim.find_compiler()
    if compiler is None:
        pytest.skip("no C compiler: the shim and its stub driver can't be built")
    folder = tmp_path_factory.mktemp("stub")
    so = (*STRICT, "-fPIC", "-shared")

    def make(target: str, source: str, *flags: str) -> None:
        command = [compiler, "-o", str(folder / target), *(str(STUB / one) for one in source.split()), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    driver = "libcuda.c copies.c"
    so = (*so, f"-I{Path(shim.__file__).parent}")
    make("libcuda.so.1", driver, *so, "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-lpthread")
    make("libnvidia-ml.so.1", "libnvidia-ml.c", *so, "-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic")
    make("libnext.so", "next.c", *so, "-ldl")
    make("libclock.so", "clock.c", *so, "-lpthread")
    make("client", "client.c", *STRICT, f"-L{folder}", "-l:libcuda.so.1", "-lpthread", "-ldl")
    make("fuzz", "fuzz.c", *STRICT, f"-L{folder}", "-l:libcuda.so.1", "-lpthread")
    (folder / "loose").mkdir()
    make("loose/libcuda.so.1", driver, *so, "-Wl,-soname,libcuda.so.1", "-lpthread")
    return folder, shim.build(folder / "shim", extra_flags=("-Wall", "-Wextra", "-Werror"))


@pytest.fixture
def rig(built: tuple[Path, Path], tmp_path: Path) -> Iterator[Rig]:
    made = Rig(*built, tmp_path)
    yield made
    made.clean()
    shutil.rmtree(tmp_path, ignore_errors=True)


def eventually(check: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    """Whether it comes true at all; the time only bounds a hang."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if check():
            return True
        time.sleep(0.01)
    return check()

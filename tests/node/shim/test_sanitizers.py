"""The shim under the address, undefined-behaviour and thread sanitizers: known scenarios, and random ones.

The random ones are `stub/fuzz.c`: calls that take, give back and use memory in any order, from several threads and
processes, with signals in between, against a driver that knows what it has really handed out. It stops where that is
more than the quota, or where something stays counted at the end. A few seeds here; by hand as many as you like:

    FAIRLEAD_FUZZ_SEEDS=500 python -m pytest tests/node/shim/test_sanitizers.py -k random
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.node import shim
from fairlead.node.guard.busy_page import BusyPage
from fairlead.node.guard.control_page import ControlPage, GpuOrder
from tests.node.shim.conftest import STUB, Rig
from tests.patience import PATIENCE_S

MIB = 1 << 20
QUOTA_MIB = 120
SEEDS = int(os.environ.get("FAIRLEAD_FUZZ_SEEDS", "3"))
FLAGS = ("-std=gnu11", "-g", "-O1", "-fno-omit-frame-pointer", "-DFAIRLEAD_SANITIZED")
KINDS = {"address": ("address,undefined", "libasan.so"), "thread": ("thread", "libtsan.so")}
# Its own signal handlers would go through the shim's sigaction before its runtime is ready.
NO_HANDLERS = " ".join(f"handle_{name}=0" for name in ("segv", "abort", "sigbus", "sigfpe", "sigill"))
OPTIONS = {
    "ASAN_OPTIONS": f"detect_leaks=1 {NO_HANDLERS}",
    "UBSAN_OPTIONS": "halt_on_error=1 print_stacktrace=1",
    "TSAN_OPTIONS": f"halt_on_error=1 {NO_HANDLERS}",
}


@dataclass(frozen=True)
class Sanitized:
    """Everything built with one sanitizer; its runtime has to be loaded before the shim."""

    kind: str
    folder: Path
    runtime: str

    def start(self, at: Path, *words: object, **variables: object) -> subprocess.Popen[str]:
        environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(self.folder), **OPTIONS}
        environment |= {"LD_PRELOAD": f"{self.runtime}:{self.folder / 'libshim.so'}", "STUB_STATS": str(at / "stats")}
        environment |= {"FAIRLEAD_SHIM_QUOTA": str(QUOTA_MIB * MIB), "FAIRLEAD_SHIM_USAGE": str(at / "usage")}
        environment["LSAN_OPTIONS"] = f"print_suppressions=0 suppressions={self.folder / 'known-leaks'}"
        environment |= {name: str(value) for name, value in variables.items()}
        command = [str(self.folder / str(words[0])), *map(str, words[1:])]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, env=environment, text=True, **pipes)  # type: ignore[call-overload,no-any-return]

    def run(self, at: Path, *words: object, code: int = 0, **variables: object) -> str:
        process = self.start(at, *words, **variables)
        try:
            out, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}"
        return str(out).strip()


@pytest.fixture(scope="module", params=KINDS)
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    compiler, (flag, library) = shim.find_compiler(), KINDS[request.param]
    if compiler is None:
        pytest.skip("no C compiler: nothing can be built")
    asked = subprocess.run([compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    if not Path(asked.stdout.strip()).is_absolute():
        pytest.skip(f"{compiler} has no {library}: the {request.param} sanitizer can't be used")
    folder = tmp_path_factory.mktemp(str(request.param))
    here = Path(shim.__file__).parent

    def make(target: str, *words: object, on: bool = True) -> None:
        flags = [*FLAGS, *([f"-fsanitize={flag}"] if on else [])]
        done = subprocess.run(
            [compiler, *flags, "-o", str(folder / target), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    so, link = ("-fPIC", "-shared", f"-I{here}"), (f"-L{folder}", "-l:libcuda.so.1", "-lpthread")
    # The driver's own threads are not the question: it stays as it is.
    driver = (STUB / "libcuda.c", STUB / "copies.c", "-Wl,-soname,libcuda.so.1", "-lpthread")
    make("libcuda.so.1", *so, *driver, on=request.param != "thread")
    make("libshim.so", *so, "-fvisibility=hidden", *sorted(here.glob("*.c")), "-lpthread", "-ldl")
    (folder / "known-leaks").write_text("leak:libcuda.so.1\n")  # the stub keeps streams and functions for good
    make("fuzz", STUB / "fuzz.c", *link)
    make("client", STUB / "client.c", *link)
    return Sanitized(request.param, folder, asked.stdout.strip())


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_random_calls_of_one_thread_never_pass_the_quota(sanitized: Sanitized, tmp_path: Path, seed: int) -> None:
    if sanitized.kind == "thread":
        pytest.skip("one thread has nothing to race with")
    assert sanitized.run(tmp_path, "fuzz", seed, 1000, 1, QUOTA_MIB) == "0 0"


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_random_calls_of_several_threads_neither_race_nor_pass_the_quota(
    sanitized: Sanitized, tmp_path: Path, seed: int
) -> None:
    forks = ["no-fork"] if sanitized.kind == "thread" else []
    assert sanitized.run(tmp_path, "fuzz", seed, 320, 4, QUOTA_MIB, *forks) == "0 0"


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_random_calls_with_forks_in_the_middle_of_others(rig: Rig, seed: int) -> None:
    """Without a sanitizer: none of them can follow a fork among threads that are in the middle of a call."""
    words = [str(rig.built / "fuzz"), *map(str, (seed, 320, 4, QUOTA_MIB))]
    quota = {"FAIRLEAD_SHIM_QUOTA": QUOTA_MIB * MIB, "FAIRLEAD_SHIM_USAGE": rig.folder / "usage"}
    done = subprocess.run(
        words, env=rig.environment(**quota), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0 0"), done.stderr


def test_random_calls_under_a_page_whose_rate_and_quota_change(sanitized: Sanitized, tmp_path: Path) -> None:
    forks = ["no-fork"] if sanitized.kind == "thread" else []
    with ControlPage.create(tmp_path / "page") as page:
        page.set_quota(QUOTA_MIB * MIB)
        job = sanitized.start(tmp_path, "fuzz", 7, 320, 4, QUOTA_MIB, *forks, FAIRLEAD_SHIM_PAGE=page.path)
        turns = 0
        while job.poll() is None:
            turns += 1
            page.set_quota((QUOTA_MIB - 40 * (turns % 2)) * MIB)
            page.write(GpuOrder(rate_frac=(0.5, 1.0)[turns % 2], frozen=turns % 8 == 0))
            try:
                job.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        assert job.stdout is not None
        out = job.stdout.read()
        job.stdout.close()
    # The end may have met the smaller quota: nothing counted either way.
    assert job.returncode in (0, 1), out
    assert out.split()[1:] == ["0"], out
    assert "Sanitizer" not in out


def test_known_scenarios_are_clean(sanitized: Sanitized, tmp_path: Path) -> None:
    with ControlPage.create(tmp_path / "page", inflight_s=0.01) as page:
        page.write(GpuOrder(rate_frac=0.5))
        assert sanitized.run(tmp_path, "client", "race") == str(QUOTA_MIB)
        kernels = ("k300us", "k900us", "k20us")
        sanitized.run(tmp_path, "client", "threads", 0.4, *kernels, FAIRLEAD_SHIM_PAGE=page.path)
        sanitized.run(tmp_path, "client", "busy", 0.3, "k100us", "k2000us", FAIRLEAD_SHIM_PAGE=page.path)
        for how in ("exit", "_exit"):
            sanitized.run(tmp_path, "client", "leave", how, code=7)


def test_observing_a_service_and_obeying_it_are_clean(sanitized: Sanitized, tmp_path: Path) -> None:
    busy = BusyPage.create(tmp_path / "service.busy")
    with ControlPage.create(tmp_path / "page", inflight_s=0.01) as page:
        page.write(GpuOrder())
        page.obey([busy.path])
        kernels = ("k300us", "k900us", "k20us")
        service = sanitized.start(tmp_path, "client", "threads", 0.4, *kernels, FAIRLEAD_SHIM_BUSY=busy.path)
        sanitized.run(tmp_path, "client", "threads", 0.4, *kernels, FAIRLEAD_SHIM_PAGE=page.path)
        out, _ = service.communicate(timeout=PATIENCE_S)
    assert (service.returncode, out) == (0, "")


def test_leaving_by_a_signal_is_clean(sanitized: Sanitized, tmp_path: Path) -> None:
    job = sanitized.start(tmp_path, "client", "hold", 20)
    assert job.stdout is not None
    assert job.stdout.readline().strip() == "0"
    job.send_signal(signal.SIGTERM)
    out, _ = job.communicate(timeout=PATIENCE_S)
    assert (job.returncode, out) == (-signal.SIGTERM, "")

"""What this machine has, what works, and what each missing piece costs.

Nothing here raises: a check that fails in a way nobody thought of is a finding like the others.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import FairleadError, RunError
from fairlead.node.gpu.meter import GpuInfo, MeterError
from fairlead.node.gpu.nvml import NvmlMeter
from fairlead.node.identity import AttemptId, LaunchId
from fairlead.node.mps import daemon as mps_daemon
from fairlead.node.order import Order
from fairlead.node.process import cgroups
from fairlead.node.process.launcher import Launcher

COMPILERS = ("cc", "gcc", "clang")
SLURM = ("sbatch", "squeue", "scancel", "sinfo")
PACKAGES = {
    "fastapi": "fastapi", "uvicorn": "uvicorn", "prometheus_client": "prometheus-client", "pynvml": "nvidia-ml-py",
}  # fmt: skip
"""What `fairlead[live]` brings: modules, and what they are called on PyPI."""
_MANAGERS = (("apt-get", "apt-get install"), ("dnf", "dnf install"), ("zypper", "zypper install"))
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_SHARED_MEMORY = Path("/dev/shm")
_DRIVER = "install NVIDIA's driver (https://docs.nvidia.com/datacenter/tesla/driver-installation-guide), then reboot"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked for."""

    name: str
    works: bool | None
    """None: could not be tried."""
    found: str
    costs: str = ""
    """What you do without where it does not work."""
    fix: str = ""
    """The command that adds it, or what to do."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, and the GPUs that could be read."""

    findings: tuple[Finding, ...]
    gpus: tuple[GpuInfo, ...] = ()


def examine(
    *, open_meter: Callable[[], NvmlMeter] = NvmlMeter, mps_binary: str = mps_daemon.CONTROL, try_mps: bool = True
) -> Diagnosis:
    """Look at everything; takes a second or two."""
    findings, gpus = _gpu_findings(open_meter)
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("packages", _packages),
        ("MPS", lambda: _mps(mps_binary, gpus, try_mps)),
        ("C compiler", _compiler),
        ("shared memory", _shared_memory),
        ("jobs", _jobs),
        ("root", _root),
        ("cgroup v2", _cgroup),
        ("Slurm", _slurm),
    ]
    findings += [_examined(name, check) for name, check in checks]
    return Diagnosis(tuple(findings), gpus)


def _examined(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        said = error.message if isinstance(error, FairleadError) else f"{type(error).__name__}: {error}"
        return Finding(name, None, f"could not be examined: {said}")


def _packages() -> Finding:
    missing = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return Finding("packages", True, "all that a live cluster needs")
    costs = "a live cluster cannot run, or not see its GPUs; the simulator works"
    pip = f"{shlex.quote(sys.executable)} -m pip install 'fairlead[live]'"
    return Finding("packages", False, f"missing: {', '.join(missing)}", costs, pip)


def _install(package: str) -> str:
    """The command of this machine's package manager."""
    found = next((line for program, line in _MANAGERS if shutil.which(program)), None)
    return f"sudo {found} {package}" if found else f"install {package} with this machine's package manager"


def _gpu_findings(open_meter: Callable[[], NvmlMeter]) -> tuple[list[Finding], tuple[GpuInfo, ...]]:
    blind = "no GPU of this machine can be used; --fake-gpus and the simulator work"
    try:
        meter = open_meter()
    except MeterError as error:
        loaded = _DRIVER_FILE.exists()
        said = f"{error.message} ({error.hint})" if error.hint else error.message
        driver = Finding(
            "driver", loaded, "loaded" if loaded else "none", "" if loaded else blind, "" if loaded else _DRIVER
        )
        return [driver, Finding("GPUs", False, said, blind)], ()
    except Exception as error:
        return [Finding("GPUs", None, f"could not be examined: {type(error).__name__}: {error}", blind)], ()
    try:
        gpus = meter.gpus
        version, cuda = meter.driver_version() or "unknown version", meter.cuda_version() or "unknown"
    finally:
        meter.close()
    return [Finding("driver", True, f"{version}, CUDA {cuda}"), *_counters(gpus, blind)], gpus


def _counters(gpus: Sequence[GpuInfo], blind: str) -> list[Finding]:
    if not gpus:
        return [Finding("GPUs", False, "the driver shows none", blind)]
    listed = "; ".join(f"{gpu.index}: {gpu.name}, {_memory(gpu)}, {gpu.uuid}" for gpu in gpus)
    wanted = (
        ("energy counter", [gpu.has_energy_counter for gpu in gpus],
         "joules per job are estimates from power readings, or unknown"),
        ("GPM", [gpu.has_gpm for gpu in gpus],
         "SM activity, occupancy and DRAM activity are unknown: the guard goes by utilisation and clock alone"),
        ("utilisation per process", [gpu.has_process_utilisation for gpu in gpus],
         "joules of a shared GPU are split equally between its jobs"),
        ("Xid events", [gpu.has_xid_events for gpu in gpus],
         "errors of a GPU are noticed only when a job fails"),
    )  # fmt: skip
    found = [Finding("GPUs", True, listed)]
    for name, has, costs in wanted:
        works = all(has)
        found.append(Finding(name, works, f"on {sum(has)} of {len(has)} GPUs", "" if works else costs))
    return found


def _memory(gpu: GpuInfo) -> str:
    return "memory unknown" if gpu.memory_total_mib is None else f"{gpu.memory_total_mib:,.0f} MiB"


def _mps(binary: str, gpus: Sequence[GpuInfo], is_tried: bool) -> Finding:
    costs = "jobs that share a GPU take turns on it: measured 1.65x step time for four of them, 1.14x under MPS"
    path = shutil.which(binary)
    if path is None:
        return Finding("MPS", False, f"no {binary}", costs, _install("nvidia-cuda-mps"))
    if not gpus:
        return Finding("MPS", None, f"{path}; not tried without a GPU")
    if not is_tried:
        return Finding("MPS", None, f"{path}; not tried")
    with tempfile.TemporaryDirectory(prefix="fl-mps-") as folder:
        daemon = mps_daemon.MpsDaemon(gpus[0].uuid, Path(folder), path)
        try:
            daemon.start()
            return Finding("MPS", True, f"{path}; a daemon starts and answers")
        except mps_daemon.MpsError as error:
            return Finding("MPS", False, error.message, costs)
        finally:
            daemon.stop()


def _compiler() -> Finding:
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    costs = "the library that holds offline jobs to a memory quota and a launch rate cannot be built"
    if found is not None:
        return Finding("C compiler", True, found)
    return Finding("C compiler", False, f"none of {', '.join(COMPILERS)}", costs, _install("gcc"))


def _shared_memory() -> Finding:
    works = os.access(_SHARED_MEMORY, os.W_OK)
    costs = "" if works else "the launch rate of offline jobs cannot be controlled while they run"
    fix = "" if works else f"sudo mount -t tmpfs tmpfs {_SHARED_MEMORY}"
    return Finding("shared memory", works, f"{_SHARED_MEMORY} is {'writable' if works else 'not writable'}", costs, fix)


def _jobs() -> Finding:
    costs = "no job can be run on this machine"
    with tempfile.TemporaryDirectory(prefix="fl-jobs-") as folder:
        launcher, launch = Launcher(Path(folder)), LaunchId(AttemptId(0, 0))
        try:
            launcher.start(launch, Order(launch.attempt, ("true",)))
        except RunError as error:
            return Finding("jobs", False, error.message, costs)
        status = launcher.wait(launch, 10.0)
        if status.has_succeeded:
            return Finding("jobs", True, "a job starts, and its exit code is kept")
        return Finding("jobs", False, f"a job that should succeed is {status.state}: {status.reason}", costs)


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("root", True, "yes")
    costs = "jobs run as this user, and no other's can be stopped"
    return Finding("root", False, f"no, user {os.geteuid()}", costs, "sudo fairlead install-service")


def _cgroup() -> Finding:
    parent, found = cgroups.writable_parent()
    costs = "" if parent else "jobs cannot be held to limits of host memory, CPU and processes"
    return Finding("cgroup v2", parent is not None, found, costs, "" if parent else "fairlead install-service")


def _slurm() -> Finding:
    missing = [name for name in SLURM if shutil.which(name) is None]
    if not missing:
        return Finding("Slurm", True, "its commands are here")
    return Finding("Slurm", False, f"no {', '.join(missing)}", "nodes cannot come from Slurm", _install("slurm-client"))

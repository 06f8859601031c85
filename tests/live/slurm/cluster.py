"""A throw-away Slurm on loopback: real slurmctld and slurmd daemons, as many nodes and fake GPUs as a test wants."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from tests.patience import PATIENCE_S

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo", "scancel")
_CONFIGURATION = """
ClusterName=made-up
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmdTimeout={slurmd_s}
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
SchedulerType=sched/builtin
SchedulerParameters=sched_min_interval=1,sched_interval=2,batch_sched_delay=0
PriorityType=priority/basic
KillWait={kill_s}
MinJobAge=300
OverTimeLimit=0
GresTypes=gpu
NodeName=n[0-{last}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{end}] CPUs=64 Boards=1 \
SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000 Gres=gpu:v100:{gpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} here; on Debian: apt-get install slurmctld slurmd slurm-client"
    if os.geteuid() != 0:
        return "Slurm's daemons are started by root only"
    folder = Path(tempfile.mkdtemp(prefix="mknod"))
    try:
        os.mknod(folder / "gpu", stat.S_IFCHR | 0o666, os.makedev(195, 0))
    except OSError as error:
        return f"no device files can be made here: {error.strerror}"
    finally:
        shutil.rmtree(folder)
    return ""


class SlurmCluster:
    """`with SlurmCluster(8, 4) as slurm:`; its commands are those of `slurm.env`."""

    def __init__(self, nodes: int, gpus: int, *, slurmd_s: int = 6, kill_s: int = 3) -> None:
        self.nodes = nodes
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        base = _free_ports(nodes + 1)
        for name in ("state", "dev", *(f"spool/n{i}" for i in range(nodes))):
            (self.folder / name).mkdir(parents=True)
        for i in range(gpus):  # plain files would leave CUDA_VISIBLE_DEVICES empty
            os.mknod(self.folder / f"dev/gpu{i}", stat.S_IFCHR | 0o666, os.makedev(195, i))
        text = _CONFIGURATION.format(
            folder=self.folder, port=base, first=base + 1, end=base + nodes, last=nodes - 1, gpus=gpus,
            slurmd_s=slurmd_s, kill_s=kill_s,
        )  # fmt: skip
        (self.folder / "slurm.conf").write_text(text)
        devices = f"{self.folder}/dev/gpu[0-{gpus - 1}]" if gpus > 1 else f"{self.folder}/dev/gpu0"
        gres = f"AutoDetect=off\nNodeName=n[0-{nodes - 1}] Name=gpu Type=v100 File={devices}\n"
        (self.folder / "gres.conf").write_text(gres)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> SlurmCluster:
        try:
            self.start_controller(clean=True)
            for number in range(self.nodes):
                self.start_slurmd(number)
            self.until_idle()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *line: str, text: str | None = None) -> str:
        done = subprocess.run(line, env=self.env, input=text, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout

    def until_idle(self) -> None:
        until_s = time.monotonic() + PATIENCE_S
        states = ""
        while states.split().count("idle") < self.nodes:
            assert time.monotonic() < until_s, f"Slurm does not come up: {states}"
            time.sleep(0.05)
            with contextlib.suppress(subprocess.SubprocessError):
                states = self.run("sinfo", "-h", "-N", "-o", "%t")
                if "drain" in states:  # what was killed while its node's daemon was away
                    self.run("scontrol", "update", f"NodeName=n[0-{self.nodes - 1}]", "State=RESUME")

    def jobs(self) -> dict[int, str]:
        """The states of those that are not over."""
        rows = (line.split() for line in self.run("squeue", "-h", "-o", "%i %T").splitlines())
        return {int(number): state for number, state in rows}

    def start_controller(self, *, clean: bool = False) -> None:
        self._daemon("slurmctld", "slurmctld", "-D", "-i", *(["-c"] if clean else []))

    def stop_controller(self) -> None:
        self._end("slurmctld", signal.SIGKILL)

    def start_slurmd(self, number: int) -> None:
        self._daemon(f"n{number}", "slurmd", "-D", "-N", f"n{number}")

    def kill_slurmd(self, number: int) -> None:
        self._end(f"n{number}", signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "-u", "root")
            until_s = time.monotonic() + 15.0
            while self.jobs() and time.monotonic() < until_s:
                time.sleep(0.1)
        for name in sorted(self._daemons, key=lambda name: name == "slurmctld"):
            self._end(name, signal.SIGTERM)
        _kill_all_below(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _daemon(self, name: str, *line: str) -> None:
        log = open(self.folder / f"{name}.out", "ab")  # noqa: SIM115
        self._daemons[name] = subprocess.Popen(line, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

    def _end(self, name: str, number: int) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is not None:
            daemon.send_signal(number)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)


def _kill_all_below(folder: Path) -> None:
    """slurmstepd and what it started live on where their slurmd was killed: they know this folder."""
    marks = bytes(folder)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if marks in (entry / "environ").read_bytes() or marks in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)


def _free_ports(count: int) -> int:
    """The first of so many in a row that nobody listens on."""
    for base in range(41000 + os.getpid() % 97 * 100, 60000, 100):
        with contextlib.ExitStack() as held:
            try:
                for port in range(base, base + count):
                    probe = held.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise AssertionError("no free ports in a row")

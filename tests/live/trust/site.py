"""The place where it happens: folders, accounts, the controller and its agents, a small disk, a clock to be set."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pwd
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairlead.live.home import Home
from tests.live.rig import agents_in
from tests.live.trust.web import Web

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
NODES, GPUS_EACH = 3, 2
HOME_MIB = 96
HANG_S = 300.0
"""Bounds what would never end; nothing is judged by it but that."""
_ACCOUNTS = ("games", "news", "lp", "mail", "uucp", "irc", "nobody")
_DETACH = 2

SPECS = {
    "fifo-greedy": "fifo-greedy", "eaco": "eaco", "pal": "pal", "boa": "boa", "muxflow": "muxflow", "las": "las",
}  # fmt: skip
_CONFIG = """
[policy]
stack = "{stack}"
[engine]
fake_gpus = {gpus}
fake_nodes = {nodes}
wake_s = 0.2
{rent}
{accounts}
[controller]
lost_after_s = 3.0
save_s = 1.0
[guard]
init_s = 1.0
[server]
port = {port}
[jobs]
grace_s = 5.0
[limits]
output_mib = 1.0
start_s = 20.0
{more}
"""


@dataclass(frozen=True, slots=True)
class User:
    """Who submits."""

    name: str
    secret: str
    folder: Path
    """What is true of their jobs."""


class Site:
    """One home folder with its controller, agents and users, under one policy."""

    def __init__(self, policy: str, seed: int) -> None:
        self.policy = policy
        self.skipped: dict[str, str] = {}
        """Faults that cannot be made here, and why."""
        self.folder = Path(tempfile.mkdtemp(prefix="fl-"))  # short: sockets are made in it
        self.folder.chmod(0o755)
        self.home = Home(self.folder / "home")
        self.home.path.mkdir(mode=0o711)
        self._is_disk_small = self._mount_home()
        self.port = _free_port()
        self.web = Web(self.port)
        self.python, self._own_accounts = _python(self.folder)
        self._copy_library()
        self.users = self._make_users(seed)
        self._clock = self._make_clock()
        self._write_config()
        self._fork_server = subprocess.Popen(
            [sys.executable, "-m", "tests.live.fork_server", str(self.home.path)],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=self._environment(),
        )  # fmt: skip
        self._born = 0
        self._hung: list[tuple[int, Path]] = []

    # ---- the controller and its agents ----

    def fork(self) -> None:
        """A new controller, which is not waited for."""
        assert self._fork_server.stdin is not None
        assert self._fork_server.stdout is not None
        self._fork_server.stdin.write("one\n")
        self._fork_server.stdin.flush()
        self._born = int(self._fork_server.stdout.readline())

    def controller(self) -> int | None:
        """Its process, if there is one, be it only that it finds its feet."""
        holder = self.home.holder()
        if holder is not None:
            return holder[0]
        return self._born if self._born and Path(f"/proc/{self._born}").exists() else None

    def be_up(self) -> None:
        """Wait until it answers, and bring one up where there is none."""
        end_s = time.monotonic() + HANG_S
        while not self.web.answers():
            if self.controller() is None:
                self.fork()
            assert time.monotonic() < end_s, f"no controller comes up: {_tail(self.home.log)}"
            time.sleep(0.05)

    def kill_controller(self) -> int:
        """SIGKILL, and wait until it is gone; how many there were."""
        pid = self.controller()
        if pid is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while self.controller() == pid:
            time.sleep(0.002)
        return 1

    def agents(self) -> list[int]:
        """Processes, in no order."""
        return [pid for pid in agents_in(self.folder) if _parent(pid) != self._fork_server.pid]

    def fairlead(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command line, as whoever runs the controller uses it."""
        line = [sys.executable, "-c", "from fairlead.cli.main import run; run()", *words, "--home", str(self.home.path)]
        done = subprocess.run(
            line, cwd=ROOT, text=True, capture_output=True, timeout=HANG_S, check=False, env=self._environment()
        )
        assert "Traceback" not in done.stderr, f"fairlead {' '.join(words)}: {done.stderr}"
        return done

    # ---- disk, clock, mounts ----

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Nobody can write a byte to the home folder meanwhile."""
        filler = self.home.path / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass
        try:
            yield
        finally:
            filler.unlink()

    def set_clock(self, shift_s: float) -> None:
        """The time of day, for controllers and agents."""
        assert self._clock is not None
        with self._clock.open("r+b") as file:
            file.write(struct.pack("d", shift_s))

    def hang(self) -> Path | None:
        """A folder that does not answer from now on, until `unhang`."""
        folder = self.folder / f"hung-{len(self._hung)}-{time.monotonic_ns()}"
        try:
            device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            self.skipped["hung_mount"] = f"/dev/fuse: {error.strerror}"
            return None
        folder.mkdir()
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if ctypes.CDLL(None).mount(b"hung", os.fsencode(folder), b"fuse", 0, options) != 0:
            os.close(device)
            self.skipped["hung_mount"] = "this account may not mount"
            return None
        self._hung.append((device, folder))
        return folder / "inside"

    def unhang(self) -> None:
        """All of them answer, with an error."""
        for device, folder in self._hung:
            os.close(device)
            ctypes.CDLL(None).umount2(os.fsencode(folder), _DETACH)
        self._hung.clear()

    # ---- the end ----

    def close(self) -> None:
        """Nothing is left behind, whatever went wrong before."""
        self.unhang()
        for pid in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
            self.fairlead("down", "--kill-jobs", "--grace", "0s")
        self.kill_controller()
        assert self._fork_server.stdin is not None
        assert self._fork_server.stdout is not None
        self._fork_server.stdin.close()
        self._fork_server.wait(HANG_S)
        self._fork_server.stdout.close()
        for pid in self.agents():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._is_disk_small:
            ctypes.CDLL(None).umount2(os.fsencode(self.home.path), _DETACH)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- how it is made ----

    def _mount_home(self) -> bool:
        options = f"size={HOME_MIB}m,mode=711".encode()
        if ctypes.CDLL(None).mount(b"home", os.fsencode(self.home.path), b"tmpfs", 0, options) == 0:
            return True
        self.skipped["full_disk"] = "this account may not mount a small disk"
        return False

    def _make_clock(self) -> Path | None:
        """A library that shifts the time of day, for every process that is started from here."""
        built = subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", self.folder / "clock.so", HERE / "wallclock.c", "-ldl", "-lm"],
            capture_output=True, text=True, check=False,
        ) if shutil.which("cc") else None  # fmt: skip
        if built is None or built.returncode != 0:
            self.skipped["clock_step"] = built.stderr[-200:] if built else "no C compiler"
            return None
        clock = self.folder / "clock"
        clock.write_bytes(struct.pack("d", 0.0))
        return clock

    def _environment(self) -> dict[str, str]:
        more = {"LD_PRELOAD": str(self.folder / "clock.so"), "TRUST_CLOCK": str(self._clock)} if self._clock else {}
        kept = {name: text for name, text in os.environ.items() if not name.startswith("FAIRLEAD_")}
        return kept | more

    def _copy_library(self) -> None:
        """What jobs import, where every account can read it."""
        source, copy = ROOT / "src" / "fairlead", self.folder / "lib" / "fairlead"
        shutil.copytree(source / "job", copy / "job", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("__init__.py", "errors.py"):
            shutil.copy(source / name, copy / name)
        shutil.copy(HERE / "program.py", self.folder / "lib" / "program.py")
        self.program = self.folder / "lib" / "program.py"

    def _make_users(self, seed: int) -> list[User]:
        names = self._own_accounts or ["ann", "bob", "cyd"]
        rng, made = random.Random(seed), []
        for name in names:
            folder = self.folder / "truth" / name
            folder.mkdir(parents=True, mode=0o700)
            if self._own_accounts:
                about = pwd.getpwnam(name)
                os.chown(folder, about.pw_uid, about.pw_gid)
            made.append(User(name, f"secret-of-{name}-{rng.randrange(10**12)}", folder))
        (self.folder / "truth").chmod(0o711)
        return made

    def _write_config(self) -> None:
        rent = 'rent = "boot=1,minimum=1,step=1"' if self.policy == "boa" else ""
        more = "[budget]\ngpus = 4.0" if self.policy == "boa" else ""
        is_root = os.geteuid() == 0
        accounts = 'as_submitter = "everyone-is-root"' if is_root and not self._own_accounts else ""
        text = _CONFIG.format(
            stack=SPECS[self.policy],
            gpus=GPUS_EACH,
            nodes=NODES,
            port=self.port,
            rent=rent,
            accounts=accounts,
            more=more,
        )
        (self.home.path / "fairlead.toml").write_text(text)

    @property
    def has_accounts(self) -> bool:
        """Whether each user is an account of the machine, so that files are apart."""
        return bool(self._own_accounts)


def is_locked(path: Path) -> bool:
    """Whether a process of that job runs."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(file)


def journal(path: Path) -> list[dict[str, object]]:
    """What a job has written down."""
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except OSError:
        return []


def _python(folder: Path) -> tuple[str, list[str]]:
    """An interpreter for jobs; under root also accounts that can run it, for users to be."""
    if os.geteuid() != 0:
        return sys.executable, []
    known = {entry.pw_name for entry in pwd.getpwall()}
    names = [name for name in _ACCOUNTS if name in known][:3]
    for python in (sys.executable, "/usr/bin/python3") if len(names) == 3 else ():
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([python, "-c", ""], user=names[0], capture_output=True, cwd=folder, check=True)
            return python, names
    return sys.executable, []


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")[-3000:]
    return ""

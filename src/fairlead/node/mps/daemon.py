"""NVIDIA MPS, one control daemon per GPU: what breaks on one GPU stays there.

Each daemon has a folder of its own, `FOLDER/GPU-1a2b3c4d/{pipe,log}`, by which everybody finds it: its clients, and an
agent that was restarted. Commands go to `nvidia-cuda-mps-control` by stdin, and none of them is waited for longer than
`timeout_s`: a daemon that hangs is killed, not waited for.

A process can be a client of one daemon only, so a process under MPS sees one GPU. A daemon serves one user at a time;
where jobs run as several users, `multiuser` makes one server serve all of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.errors import FairleadError, InputError
from fairlead.node.process.bounded_commands import run_bounded
from fairlead.node.process.log_tail import Tail
from fairlead.node.process.processes import Process, command_line, environment_of, process, processes, send

CONTROL = "nvidia-cuda-mps-control"
_SERVER = "nvidia-cuda-mps-server"
_PIPE, _LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_LONGEST_SOCKET = 107
"""Bytes in the path of a Unix socket; the daemon's longest is `control_privileged`."""
_NAME_LENGTH = len("GPU-1a2b3c4d")


class MpsError(FairleadError):
    """The daemon is absent, refused a command or does not answer."""


class MpsTimeoutError(MpsError):
    """The daemon did not answer in time."""


@dataclass(frozen=True, slots=True)
class MpsServer:
    """One server of a daemon: the process that holds the GPU for its clients."""

    pid: int
    state: str
    """As the daemon says it: INITIALIZING, ACTIVE, FAULT; `unknown` where it says nothing."""
    clients: tuple[int, ...]

    @property
    def has_fault(self) -> bool:
        """It takes no new clients until the affected ones are gone."""
        return self.state == "FAULT"


@dataclass(frozen=True, slots=True)
class MpsStatus:
    """What an MPS daemon tells of itself: its servers and their clients."""

    is_running: bool
    is_hung: bool = False
    pid: int | None = None
    servers: tuple[MpsServer, ...] = ()
    """Empty until a first client has come."""

    @property
    def is_healthy(self) -> bool:
        """It runs, answers, and no server has a fault."""
        return self.is_running and not self.is_hung and not any(server.has_fault for server in self.servers)

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients of all servers."""
        return tuple(pid for server in self.servers for pid in server.clients)


@dataclass(slots=True)
class MpsDaemon:
    """The daemon of one GPU."""

    uuid: str
    folder: Path
    """Where all daemons of this machine have theirs."""
    binary: str = CONTROL
    timeout_s: float = 5.0
    multiuser: bool = False
    _tails: tuple[Tail, ...] = field(init=False, repr=False)
    _changing: threading.RLock = field(init=False, repr=False, default_factory=threading.RLock)
    """Held by whoever starts it: several jobs may come at once."""

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        longest = self.pipe_folder / "control_privileged"
        if len(os.fsencode(longest)) > _LONGEST_SOCKET:
            raise InputError(
                f"{longest}: {len(os.fsencode(longest))} bytes, a socket's path has at most {_LONGEST_SOCKET}",
                hint="choose a shorter run folder, for example under /run or /tmp",
            )
        self._tails = tuple(Tail(self.log_folder / name) for name in ("control.log", "server.log"))

    @property
    def pipe_folder(self) -> Path:
        """The folder of pipes by which clients find the daemon."""
        return self.folder / self.uuid[:_NAME_LENGTH] / "pipe"

    @property
    def log_folder(self) -> Path:
        """control.log and server.log."""
        return self.folder / self.uuid[:_NAME_LENGTH] / "log"

    def start(self) -> None:
        """Start it, unless it runs already; come back when it answers."""
        with self._changing:
            self._start()

    def _start(self) -> None:
        if self.daemon() is not None:
            self.command("get_server_list")  # one that hangs is an error here, not later
            return
        self.clean()
        self.pipe_folder.mkdir(parents=True, exist_ok=True)
        self.log_folder.mkdir(parents=True, exist_ok=True)
        options = ["-d", *(["-multiuser-server"] if self.multiuser else [])]
        try:
            answer = run_bounded([self.binary, *options], timeout_s=self.timeout_s, env=self._daemon_env())
        except OSError as error:
            raise MpsError(f"{self.binary}: {error.strerror}", hint="MPS comes with the NVIDIA driver") from None
        if answer.code != 0:
            how = "did not start in time" if answer.code is None else f"ended with {answer.code}"
            self.clean()
            raise MpsError(f"the MPS daemon of {self.uuid} {how}: {answer.out.strip() or 'it said nothing'}")
        self._await_answer()

    def status(self) -> MpsStatus:
        """What runs, never an error: a daemon that is gone or hangs is an answer too."""
        daemon = self.daemon()
        if daemon is None:
            return MpsStatus(is_running=False)
        try:
            servers = tuple(self._server(pid) for pid in self.servers())
        except MpsTimeoutError:
            return MpsStatus(is_running=True, is_hung=True, pid=daemon.pid)
        except MpsError:
            # It ended between the two questions.
            return MpsStatus(is_running=self.daemon() is not None, pid=daemon.pid)
        return MpsStatus(is_running=True, pid=daemon.pid, servers=servers)

    def servers(self) -> tuple[int, ...]:
        """The pids of its servers."""
        return _numbers(self.command("get_server_list"))

    def clients(self, server: int) -> tuple[int, ...]:
        """The pids of a server's clients."""
        return _numbers(self.command(f"get_client_list {server}"))

    def terminate_client(self, server: int, pid: int) -> str:
        """Take a client's work off the GPU while its neighbours go on; the process itself lives. Its answer."""
        return self.command(f"terminate_client {server} {pid}").strip()

    def terminate(self, pid: int) -> bool:
        """The same, wherever the client is; False where no server has it."""
        for server in self.servers():
            if pid in self.clients(server):
                self.terminate_client(server, pid)
                return True
        return False

    def stop(self) -> None:
        """End it, politely and then not, with whatever servers it has; its clients lose the GPU."""
        try:
            # The daemon waits for its clients unless told how long; ours have been stopped before.
            self.command("quit -t 1")
            self._await_end(self.timeout_s)
        except MpsError:
            pass
        self.kill()
        self.clean()

    def restart(self) -> None:
        """After a fault that does not go away, or when it hangs."""
        with self._changing:
            self.stop()
            self.start()

    def kill(self) -> None:
        """SIGKILL to the daemon and its servers, if any are left."""
        for one in self._leftovers():
            send(one.pid, one.start_ticks, signal.SIGKILL)
        self._await_end(1.0)

    def clean(self) -> None:
        """Remove the pipe folder of a daemon that is dead, and servers that outlived it. Logs stay."""
        if self.daemon() is not None:
            raise MpsError(f"the MPS daemon of {self.uuid} still runs; its folder cannot be cleaned")
        self.kill()
        shutil.rmtree(self.pipe_folder, ignore_errors=True)

    def client_env(
        self, *, share_pct: float | None = None, memory_limit_mib: float | None = None, priority: int | None = None
    ) -> dict[str, str]:
        """The environment of a client. All of it is fixed when the client starts.

        A share caps the SMs that it may use and reserves none; priority 0 is normal, 1 is below and only a hint.
        """
        if share_pct is not None and not 0.0 < share_pct <= 100.0:
            raise InputError(f"an SM share of {share_pct:g} %: expected more than 0 and at most 100")
        if memory_limit_mib is not None and memory_limit_mib < 1.0:
            raise InputError(f"a memory limit of {memory_limit_mib:g} MiB: expected at least 1")
        if priority is not None and priority not in (0, 1):
            raise InputError(f"an MPS priority of {priority}: expected 0 (normal) or 1 (below)")
        env = {"CUDA_VISIBLE_DEVICES": self.uuid, _PIPE: str(self.pipe_folder), _LOG: str(self.log_folder)}
        if share_pct is not None:
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{share_pct:g}"
        if memory_limit_mib is not None:
            # By the daemon's own numbers, and it has one GPU.
            env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={_memory(int(memory_limit_mib))}"
        if priority is not None:
            env["CUDA_MPS_CLIENT_PRIORITY"] = str(priority)
        return env

    def new_log_lines(self) -> list[str]:
        """What daemon and servers have logged since the last call."""
        return [line for tail in self._tails for line in tail.new_lines()]

    def command(self, text: str) -> str:
        """Send one command and give its answer."""
        try:
            answer = run_bounded([self.binary], timeout_s=self.timeout_s, text_in=f"{text}\n", env=self._daemon_env())
        except OSError as error:
            raise MpsError(f"{self.binary}: {error.strerror}", hint="MPS comes with the NVIDIA driver") from None
        if answer.code is None:
            raise MpsTimeoutError(f"the MPS daemon of {self.uuid} did not answer {text!r} within {self.timeout_s:g} s")
        if answer.code != 0 or "Cannot find MPS control daemon" in answer.out:
            raise MpsError(f"the MPS daemon of {self.uuid} refused {text!r}: {answer.out.strip() or 'it said nothing'}")
        return answer.out

    def daemon(self) -> Process | None:
        """Its process, by the pid that it wrote; None where that is gone or by now somebody else's."""
        try:
            pid = int((self.pipe_folder / f"{CONTROL}.pid").read_text())
        except (OSError, ValueError):
            return None
        found = process(pid)
        return found if found is not None and not found.has_ended and self._is_ours(found, CONTROL) else None

    def _leftovers(self) -> list[Process]:
        return [p for p in processes() if not p.has_ended and (self._is_ours(p, CONTROL) or self._is_ours(p, _SERVER))]

    def _is_ours(self, found: Process, program: str) -> bool:
        """Whether it is that program, at work in this folder."""
        if not any(os.path.basename(word).startswith(program) for word in command_line(found.pid)[:2]):
            return False
        return environment_of(found.pid).get(_PIPE) == str(self.pipe_folder)

    def _server(self, pid: int) -> MpsServer:
        said = self.command(f"get_server_status {pid}").split()
        return MpsServer(pid, said[-1].upper() if said else "unknown", self.clients(pid))

    def _daemon_env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        return {**kept, "CUDA_VISIBLE_DEVICES": self.uuid, _PIPE: str(self.pipe_folder), _LOG: str(self.log_folder)}

    def _await_answer(self) -> None:
        until = time.monotonic() + self.timeout_s
        while True:
            try:
                self.command("get_server_list")
                return
            except MpsError as error:
                if time.monotonic() > until:
                    raise error
            time.sleep(0.05)

    def _await_end(self, for_s: float) -> None:
        until = time.monotonic() + for_s
        while self._leftovers() and time.monotonic() < until:
            time.sleep(0.02)


def clean_stale(folder: Path) -> list[Path]:
    """Remove the pipe folders of daemons that are dead, as a crash of the machine or the agent leaves them."""
    cleaned = []
    for pipe in sorted(folder.absolute().glob("*/pipe")):
        daemon = MpsDaemon(pipe.parent.name, folder)
        if daemon.daemon() is None:
            daemon.clean()
            cleaned.append(pipe)
    return cleaned


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split() if word.isdigit())


def _memory(mib: int) -> str:
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"

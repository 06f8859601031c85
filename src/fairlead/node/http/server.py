"""The node agent as a process of its own: `python -m fairlead.node.http.server --folder F`.

It serves JSON over HTTP (`routes.py`) on a Unix socket in its folder, which only its own user can reach, and where
asked to on TCP for those who know the token. It belongs to no controller: it outlives the one that started it, and jobs
outlive it. SIGTERM ends it and leaves the jobs running; one that is started again on the same folder takes them over.
There is one per folder.

Only the standard library, and little of it: it starts in about a quarter of a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from socketserver import BaseServer, TCPServer, ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, Any, NoReturn

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.node.agent_config import AgentConfig
from fairlead.node.gpu import claims
from fairlead.node.gpu.claims import hold_folder
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.meter import Meter
from fairlead.node.host import Host
from fairlead.node.http.connections import Connections
from fairlead.node.http.routes import Handler
from fairlead.node.mps.daemon import CONTROL
from fairlead.node.process import cgroups
from fairlead.node.process.file_descriptors import raise_limit
from fairlead.node.process.launch import LaunchRules, Limits
from fairlead.policy.guarding import GuardConfig

if TYPE_CHECKING:
    from fairlead.node.stream.dialer import Dialer

SOCKET, LOCK, LOG = "agent.sock", "agent.lock", "agent.log"
PROTOCOL = 3
"""Of what is asked and told (`routes.py`): an agent that speaks another one is replaced, and its jobs go on."""
TAKEN = "has an agent already"
_LONGEST_SOCKET = 107


class _Counted(ThreadingMixIn):
    """A thread for each connection, of which there are only so many."""

    daemon_threads = True
    request_queue_size = 512

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection in, then serve it."""
        self._connections.came(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Count the connection out, then close it."""
        self._connections.left(request)
        super().shutdown_request(request)  # type: ignore[misc]

    def service_actions(self) -> None:
        """Between two connections, and every two seconds."""
        self._connections.sweep()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of its request."""

    @property
    def _connections(self) -> Connections:
        found: Connections = self.RequestHandlerClass.connections  # type: ignore[attr-defined]
        return found


class _UnixServer(_Counted, UnixStreamServer):
    pass


class _TcpServer(_Counted, TCPServer):
    allow_reuse_address = True


def serve(options: argparse.Namespace, ready: int | None = None) -> None:
    """Until SIGTERM. `ready` is written to when requests are answered."""
    folder = Path(options.folder).absolute()
    path = socket_path(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    stopping = threading.Event()
    raise_limit()

    def end(*about: object) -> None:
        stopping.set()
        host.wake_up()

    with _only_one(folder), contextlib.ExitStack() as stack:
        host = _host(folder, options, stack)
        stack.callback(host.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        for server in _servers(path, options, host):
            stack.callback(server.server_close)
            thread = threading.Thread(target=server.serve_forever, args=(2.0,), name="serve", daemon=True)
            thread.start()
        if ready is not None:
            with contextlib.suppress(OSError):  # whoever waits for it may be gone, and the next one finds us
                os.write(ready, b"1")
            os.close(ready)
        dialer = _dial(options, folder, host)
        host.run(stopping)
        if options.end_jobs_s is not None:
            _end_jobs(host, dialer, options.end_jobs_s)
        path.unlink(missing_ok=True)


def _dial(options: argparse.Namespace, folder: Path, host: Host) -> Dialer | None:
    if options.dial is None:
        return None
    from fairlead.node.stream.dialer import Credentials, Dialer

    dialer = Dialer(host, folder, Credentials.load(Path(options.dial)))
    dialer.start()
    return dialer


def _end_jobs(host: Host, dialer: Dialer | None, grace_s: float) -> None:
    """While the agent goes on looking: jobs leave their GPUs in the safe order only if somebody sees to it."""
    if dialer is None:
        return
    stopping = threading.Event()
    running = threading.Thread(target=host.run, args=(stopping,), name="last-rounds", daemon=True)
    running.start()
    dialer.leave(grace_s)
    stopping.set()
    host.wake_up()
    running.join(5.0)


def socket_path(folder: Path) -> Path:
    """Where the agent of this folder answers."""
    path = folder.absolute() / SOCKET
    longest = folder.absolute() / "latency.sock"
    if len(os.fsencode(longest)) > _LONGEST_SOCKET:
        raise InputError(
            f"{longest}: {len(os.fsencode(longest))} bytes, a socket's path has at most {_LONGEST_SOCKET}",
            hint="choose a shorter folder, for example under /run or /tmp",
        )
    return path


def _host(folder: Path, options: argparse.Namespace, held: contextlib.ExitStack) -> Host:
    try:
        guard = GuardConfig.from_dict(json.loads(options.guard))
    except ValueError as wrong:
        raise InputError(f"--guard is no JSON: {wrong}") from None
    meter, library = _meter_and_library(folder, options)
    if not meter.is_fake:
        held.enter_context(claims.held([info.uuid for info in meter.gpus]))
    has_mps = shutil.which(CONTROL) is not None  # where there is none, jobs that share take turns
    config = AgentConfig(
        guard,
        uses_mps=has_mps and options.mps and not options.fake_gpus,
        rules=_rules(options.limits),
        cgroup_parent=_cgroup_parent(options.cgroup),
    )
    about = {"wake_s": options.wake_s, "settings": settings(options)}
    try:
        return Host(folder, meter, library=library, config=config, **about)
    except OSError as error:  # a full disk, most often
        where = error.filename or folder
        raise RunError(f"the agent cannot begin: {where}: {error.strerror}", hint=f"make room in {folder}") from None


def _rules(text: str) -> LaunchRules:
    """`--limits`, of which the kernel holds a job to some and we to the others."""
    try:
        given = json.loads(text)
        limits = Limits(**{one.name: given.pop(one.name) for one in fields(Limits) if one.name in given})
        return LaunchRules(**given, limits=limits)
    except (ValueError, TypeError, AttributeError) as wrong:
        raise InputError(f"--limits {text}: {wrong}", hint='for example {"cpus": 8, "output_mib": 256}') from None


def _cgroup_parent(wanted: str) -> Path | None:
    """Where jobs get cgroups of their own; None where they do not, or cannot."""
    if wanted == "off":
        return None
    given = None if wanted == "auto" else Path(wanted)
    parent, found = cgroups.writable_parent(given)
    if parent is None and given is not None:
        raise InputError(f"--cgroup {wanted}: {found}", hint="give a delegated cgroup v2 folder, auto or off")
    return parent


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What an agent was started with, so that one that differs is noticed."""
    names = ("fake_gpus", "fake_model", "fake_first", "wake_s", "guard", "limits", "cgroup", "mps", "listen")
    return {"protocol": PROTOCOL, **{name: getattr(options, name) for name in names}}


def _meter_and_library(folder: Path, options: argparse.Namespace) -> tuple[Meter, Path | None]:
    """A fake GPU has no driver that MPS or the shim could meet.

    The shim is built in the agent's own folder: jobs of other users must be able to read it, unlike root's cache.
    """
    if options.fake_gpus:
        return FakeMeter(options.fake_gpus, options.fake_model, first=options.fake_first), None
    from fairlead.node import shim
    from fairlead.node.gpu.nvml import NvmlMeter

    meter = NvmlMeter()
    try:
        return meter, shim.build(folder / "shim")
    except shim.ShimUnavailableError as error:
        print(f"warning: {error}", file=sys.stderr)
        return meter, None


def _servers(path: Path, options: argparse.Namespace, host: Host) -> list[BaseServer]:
    own = type("Handler", (Handler,), {"host": host, "connections": Connections()})
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        servers: list[BaseServer] = [_UnixServer(str(path), own)]
    finally:
        os.umask(before)
    if options.listen is not None:
        # Connections of their own: however many come from elsewhere, the controller's go on.
        remote = {"token": _token(options.token_file), "connections": Connections()}
        made = _TcpServer(_address(options.listen), type("Handler", (own,), remote))
        host.address = f"{options.listen.rpartition(':')[0]}:{made.server_address[1]}"
        servers.append(made)
    return servers


def _token(path: str | None) -> str:
    try:
        token = "" if path is None else Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"--token-file {path}: {error.strerror}") from None
    if not token:
        raise InputError("--listen needs a token, and --token-file gives none")
    return token


def _address(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition(":")
    if not name or not port.isdigit() or int(port) > 65535:
        raise InputError(f"--listen {text!r}: expected HOST:PORT, for example 0.0.0.0:7000")
    return name, int(port)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    try:
        descriptors = hold_folder(folder, LOCK)
    except BlockingIOError:
        raise RunError(f"{folder} {TAKEN}") from None
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def parser() -> argparse.ArgumentParser:
    """The options of the agent's command line."""
    made = argparse.ArgumentParser(prog="python -m fairlead.node.http.server", description="The agent of one node.")
    made.add_argument("--folder", required=True, help="what survives a restart is kept here; a short path")
    made.add_argument("--fake-gpus", type=int, default=0, help="so many made-up GPUs instead of the machine's own")
    made.add_argument("--fake-model", default="H200")
    made.add_argument("--fake-first", type=int, default=0, help="where their UUIDs begin to count")
    made.add_argument("--wake-s", type=float, default=0.0, help="how long a fake node takes to wake up")
    made.add_argument("--guard", default="{}", help="settings of the guard, as JSON")
    made.add_argument("--limits", default="{}", help="what each job may take of the node, as JSON")
    made.add_argument("--cgroup", default="auto", help="auto, off, or a cgroup v2 folder for the jobs' own cgroups")
    made.add_argument("--no-mps", dest="mps", action="store_false", help="let jobs that share take turns")
    made.add_argument("--listen", metavar="HOST:PORT", help="answer on TCP too")
    made.add_argument("--token-file", help="what callers on TCP must know")
    made.add_argument("--dial", metavar="FILE", help="serve the controller that this file names (node/stream)")
    made.add_argument(
        "--end-jobs-s", type=float, help="on SIGTERM end all jobs, within so many seconds, instead of leaving them"
    )
    made.add_argument("--detach", action="store_true", help="return when it answers, and let it go on by itself")
    return made


def _detach(options: argparse.Namespace) -> NoReturn:
    """In a session of its own, with its words in a file; we end when it answers, or say why it does not."""
    folder = Path(options.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        with open(told, "rb") as answer:
            said = answer.read()
        if said != b"1":
            sys.stderr.write(said.decode(errors="replace"))
        os._exit(0 if said == b"1" else 1)
    os.close(told)
    os.setsid()
    os.chdir("/")
    log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, log, log)):
        os.dup2(descriptor, number)
    try:
        serve(options, tell)
    except FairleadError as error:
        with contextlib.suppress(OSError):
            os.write(tell, str(error).encode())
            print(f"error: {error}", file=sys.stderr)
        os._exit(error.exit_code)
    sys.exit(0)


def main() -> None:
    """Run the agent until it is told to stop."""
    options = parser().parse_args()
    try:
        if options.detach:
            _detach(options)
        serve(options)
    except FairleadError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

"""The node agent as a process of its own: `python -m fairlead.node.server --folder F`.

It serves JSON over HTTP (`requests.py`) on a Unix socket in its folder, which only its own user can reach, and where
asked to on TCP for those who know the token. It belongs to no controller: it outlives the one that started it, and jobs
outlive it. SIGTERM ends it and leaves the jobs running; one that is started again on the same folder takes them over.
There is one per folder.

Only the standard library, and little of it: it starts in about a quarter of a second.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseServer, TCPServer, ThreadingMixIn, UnixStreamServer
from typing import Any, NoReturn

from fairlead.errors import FairleadError, InputError, RunError
from fairlead.node.agent import AgentConfig
from fairlead.node.fake import FakeMeter
from fairlead.node.host import Host
from fairlead.node.meter import Meter
from fairlead.node.mps import CONTROL
from fairlead.node.requests import Handler
from fairlead.policy.guarding import GuardConfig

SOCKET, LOCK, LOG = "agent.sock", "agent.lock", "agent.log"
TAKEN = "has an agent already"
_LONGEST_SOCKET = 107


class _UnixServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of its request."""


class _TcpServer(ThreadingMixIn, TCPServer):
    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The same."""


def serve(options: argparse.Namespace, ready: int | None = None) -> None:
    """Until SIGTERM. `ready` is written to when requests are answered."""
    folder = Path(options.folder).absolute()
    path = socket_path(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    stopping = threading.Event()

    def end(*about: object) -> None:
        stopping.set()
        host.wake_up()

    with _only_one(folder / LOCK), contextlib.ExitStack() as stack:
        host = _host(folder, options)
        stack.callback(host.close)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        for server in _servers(path, options, host):
            stack.callback(server.server_close)
            thread = threading.Thread(target=server.serve_forever, args=(2.0,), name="serve", daemon=True)
            thread.start()
        if ready is not None:
            os.write(ready, b"1")
            os.close(ready)
        host.run(stopping)
        path.unlink(missing_ok=True)


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


def _host(folder: Path, options: argparse.Namespace) -> Host:
    try:
        guard = GuardConfig.from_dict(json.loads(options.guard))
    except ValueError as wrong:
        raise InputError(f"--guard is no JSON: {wrong}") from None
    meter, library = _meter_and_library(folder, options)
    has_mps = shutil.which(CONTROL) is not None  # where there is none, jobs that share take turns
    config = AgentConfig(guard, uses_mps=has_mps and options.mps and not options.fake_gpus)
    return Host(folder, meter, library=library, config=config, wake_s=options.wake_s, settings=settings(options))


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """What an agent was started with, so that one that differs is noticed."""
    names = ("fake_gpus", "fake_model", "fake_first", "wake_s", "guard", "mps", "listen")
    return {name: getattr(options, name) for name in names}


def _meter_and_library(folder: Path, options: argparse.Namespace) -> tuple[Meter, Path | None]:
    """A fake GPU has no driver that MPS or the shim could meet.

    The shim is built in the agent's own folder: jobs of other users must be able to read it, unlike root's cache.
    """
    if options.fake_gpus:
        return FakeMeter(options.fake_gpus, options.fake_model, first=options.fake_first), None
    from fairlead.node import shim
    from fairlead.node.nvml import NvmlMeter

    meter = NvmlMeter()
    try:
        return meter, shim.build(folder / "shim")
    except shim.ShimUnavailableError as error:
        print(f"warning: {error}", file=sys.stderr)
        return meter, None


def _servers(path: Path, options: argparse.Namespace, host: Host) -> list[BaseServer]:
    own = type("Handler", (Handler,), {"host": host})
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        servers: list[BaseServer] = [_UnixServer(str(path), own)]
    finally:
        os.umask(before)
    if options.listen is not None:
        made = _TcpServer(_address(options.listen), type("Handler", (own,), {"token": _token(options.token_file)}))
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
def _only_one(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunError(f"{path.parent} {TAKEN}") from None
    try:
        yield
    finally:
        os.close(descriptor)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m fairlead.node.server", description="The agent of one node.")
    made.add_argument("--folder", required=True, help="what survives a restart is kept here; a short path")
    made.add_argument("--fake-gpus", type=int, default=0, help="so many made-up GPUs instead of the machine's own")
    made.add_argument("--fake-model", default="H200")
    made.add_argument("--fake-first", type=int, default=0, help="where their UUIDs begin to count")
    made.add_argument("--wake-s", type=float, default=0.0, help="how long a fake node takes to wake up")
    made.add_argument("--guard", default="{}", help="settings of the guard, as JSON")
    made.add_argument("--no-mps", dest="mps", action="store_false", help="let jobs that share take turns")
    made.add_argument("--listen", metavar="HOST:PORT", help="answer on TCP too")
    made.add_argument("--token-file", help="what callers on TCP must know")
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
        sys.exit(error.exit_code)
    sys.exit(0)


def main() -> None:
    """The process."""
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

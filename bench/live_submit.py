"""How fast the live controller accepts jobs over HTTP, and how it answers with a hundred thousand of them waiting.

A controller in a process of its own, with all of its GPUs taken, its API on loopback and its database on the disk; the
load comes from another process over connections that stay open. Every acknowledged job is on the disk. Bounds: 1,000
submissions a second; with 100,000 jobs waiting a decision, a submission and a look at a job within 50 ms (the median).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from fairlead.live.client import Client

WARM_UP = 500


def serve(folder: Path, policy: str) -> None:
    """The controller: says on stdout where it is, and when it is told to leave how long its decisions took."""
    from tests.live.scripted import World

    from fairlead.live.api.app import make_app
    from fairlead.live.api.server import Server
    from fairlead.live.storage.tokens import Tokens

    world = World(folder, policy, "1x1")
    tokens = Tokens(world.database)
    app = make_app(world.controller, world.store, tokens)
    count, took = world.controller.decisions.on_decision, list[float]()
    assert count is not None
    world.controller.decisions.on_decision = lambda s: (took.append(s), count(s))[1]
    server = Server(app)
    stopping = threading.Event()
    loop = threading.Thread(target=world.controller.run, args=(stopping,))
    loop.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    signal.signal(signal.SIGUSR1, lambda *_: took.clear())
    print(json.dumps({"url": server.url, "token": tokens.create("bench", "operator")[1]}), flush=True)
    server.run()
    stopping.set()
    world.controller.wake()
    loop.join()
    world.close()
    print(json.dumps(took), flush=True)


class Caller(asyncio.Protocol):
    """One connection: sends the next request as soon as the last is answered."""

    def __init__(self, load: Load) -> None:
        self._load, self._got, self._sent_s = load, b"", 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, gap, body = self._got.partition(b"\r\n\r\n")
        if not gap:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._got = b""
            assert head.split(b" ", 2)[1][:1] == b"2", self._got or head + body
            self._load.took.append(time.perf_counter() - self._sent_s)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.left()

    def _next(self) -> None:
        request = self._load.next()
        if request is None:
            self._transport.close()
            return
        self._sent_s = time.perf_counter()
        self._transport.write(request)


class Load:
    """`count` requests over `connections`."""

    def __init__(self, url: str, token: str, count: int, connections: int, path: str | None = None) -> None:
        self.took: list[float] = []
        self._url, self._count, self._connections, self._open = urlsplit(url), count, connections, connections
        self._head = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
        self._path, self._number, self._run = path, 0, os.urandom(6).hex()

    def next(self) -> bytes | None:
        if self._number >= self._count:
            return None
        self._number += 1
        if self._path is not None:
            return f"GET {self._path} HTTP/1.1\r\n{self._head}\r\n".encode()
        body = json.dumps({
            "command": ["python", "train.py", "--seed", str(self._number)],
            "name": f"job-{self._number}",
            "cwd": "/home/bench",
            "env": {"SEED": str(self._number)},
        })  # fmt: skip
        more = f"Content-Type: application/json\r\nIdempotency-Key: {self._run}-{self._number}\r\n"
        return f"POST /v1/jobs HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    def left(self) -> None:
        self._open -= 1
        if not self._open:
            self._done.set_result(None)

    async def _all(self) -> float:
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        began_s = time.perf_counter()
        for _ in range(self._connections):
            await loop.create_connection(lambda: Caller(self), self._url.hostname, self._url.port)
        await self._done
        return time.perf_counter() - began_s

    def run(self) -> dict[str, float]:
        all_s = asyncio.run(self._all())
        return {"count": len(self.took), "per_s": len(self.took) / all_s, **spread_ms(self.took)}


def spread_ms(took_s: list[float]) -> dict[str, float]:
    ordered = sorted(took_s)
    return {
        "p50_ms": 1000.0 * statistics.median(ordered),
        "p99_ms": 1000.0 * ordered[min(int(0.99 * len(ordered)), len(ordered) - 1)],
    }


def memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024.0


def measure(folder: Path, policy: str, jobs: int, connections: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--serve", str(folder), "--policy", policy]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            where = json.loads(server.stdout.readline())
            url, token = where["url"], where["token"]
            empty_mib = memory_mib(server.pid)
            Load(url, token, WARM_UP, connections).run()
            found: dict[str, Any] = {"policy": policy, "connections": connections}
            found["submit"] = Load(url, token, jobs - WARM_UP, connections).run()
            time.sleep(2.0)
            server.send_signal(signal.SIGUSR1)
            last = jobs
            found["queued"] = {
                "jobs": jobs,
                "submit_one_by_one": Load(url, token, 500, 1).run(),
                "submit": Load(url, token, 5000, connections).run(),
                "job": Load(url, token, 500, 1, f"/v1/jobs/{last // 2}").run(),
                "page_of_100": Load(url, token, 200, 1, "/v1/jobs?limit=100").run(),
                "page_of_waiting": Load(url, token, 200, 1, "/v1/jobs?state=waiting&limit=100&order=oldest").run(),
                "summary": Load(url, token, 50, 1, "/v1/summary").run(),
                "explain": Load(url, token, 50, 1, f"/v1/jobs/{last // 2}/explain").run(),
                "memory_mib": memory_mib(server.pid),
                "empty_memory_mib": empty_mib,
            }
            with Client(url, token) as asker:
                stored = sum(asker.summary()["jobs"].values())
            assert stored == jobs + 5500, f"{stored} jobs are stored"
            server.terminate()
            decisions = json.loads(server.stdout.readline())
            found["queued"]["decision"] = {"count": len(decisions), **spread_ms(decisions)}
        finally:
            server.kill()
    found["queued"]["restart_s"] = restart_s(command)
    return found


def restart_s(command: list[str]) -> float:
    """From the start of the process until the next controller, with all of those jobs, answers."""
    began_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            where = json.loads(server.stdout.readline())
            with Client(where["url"], where["token"]) as asker:
                asker.explain(2)
            return time.perf_counter() - began_s
        finally:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve, options.policy)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        found = measure(Path(folder), options.policy, options.jobs, options.connections)
    queued = found["queued"]
    rows = {"submit, empty to full": found["submit"], **{k: v for k, v in queued.items() if isinstance(v, dict)}}
    for name, row in rows.items():
        rate = f"{row['per_s']:8,.0f}/s" if "per_s" in row else " " * 10
        print(f"{name:24} {rate}  p50 {row['p50_ms']:8.2f} ms  p99 {row['p99_ms']:8.2f} ms", file=sys.stderr)
    used, empty = queued["memory_mib"], queued["empty_memory_mib"]
    print(f"{'memory':24} {used:8,.0f} MiB, {empty:,.0f} when empty", file=sys.stderr)
    print(f"{'restart':24} {queued['restart_s']:8.1f} s", file=sys.stderr)
    if options.json:
        print(json.dumps(found, indent=2))
    slow = max(queued[name]["p50_ms"] for name in ("decision", "submit_one_by_one", "job"))
    sys.exit(found["submit"]["per_s"] < 1000.0 or slow > 50.0)


if __name__ == "__main__":
    main()

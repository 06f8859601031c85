"""An open-loop client: requests at Poisson moments whatever the service does, latencies from the planned moment on.

`--load 20:40,10:200,20:40` is 20 s at 40 requests a second, then 10 s at 200, and so on; a third number is the seed of
that part, so that two parts can have the same moments. A request fails where there is
no service to send it to, the connection breaks before its answer, or no answer comes within --timeout-s. With
--stop-file it repeats the last part of the load until that file is there. --alive is touched at every answer.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import math
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence

REQUEST = struct.Struct("<qd")


class Client:
    def __init__(self, path: str, alive: str = "") -> None:
        self.path = path
        self.alive = alive
        self.planned: list[float] = []
        self.latency: list[float | None] = []
        self.waiting: dict[int, float] = {}
        self.lock = threading.Lock()
        self.connection: socket.socket | None = None

    def connect(self) -> bool:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(self.path)
        except OSError:
            made.close()
            return False
        self.connection = made
        threading.Thread(target=self._receive, args=(made,), daemon=True).start()
        return True

    def _receive(self, connection: socket.socket) -> None:
        buffer = b""
        while True:
            try:
                part = connection.recv(4096)
            except OSError:
                part = b""
            now_s = time.monotonic()
            if not part:
                break
            buffer += part
            while len(buffer) >= REQUEST.size:
                number, _ = REQUEST.unpack(buffer[: REQUEST.size])
                buffer = buffer[REQUEST.size :]
                with self.lock:
                    self.waiting.pop(number, None)
                    self.latency[number] = now_s - self.planned[number]
                if self.alive:
                    with open(self.alive, "w", encoding="utf-8") as file:
                        file.write(str(now_s))
        with self.lock:
            self.waiting.clear()  # what was under way has failed
            if self.connection is connection:
                self.connection = None
        connection.close()

    def send(self, at_s: float) -> None:
        with self.lock:
            number = len(self.planned)
            self.planned.append(at_s)
            self.latency.append(None)
            connection = self.connection
            if connection is not None:
                self.waiting[number] = at_s
        if connection is None:
            return
        try:
            connection.sendall(REQUEST.pack(number, at_s))
        except OSError:
            with self.lock:
                self.waiting.pop(number, None)

    def drop_late(self, timeout_s: float) -> None:
        """A service that hangs: give the connection up."""
        with self.lock:
            oldest = min(self.waiting.values(), default=None)
            connection = self.connection
        if connection is not None and oldest is not None and time.monotonic() - oldest > timeout_s:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def planned(parts: Sequence[tuple[float, ...]], at_s: float, draw: random.Random, *, endless: bool) -> Iterator[float]:
    """The moments of the requests. A part with a seed of its own has the same ones wherever it comes."""
    for i, (seconds, rate, *seed) in enumerate(parts):
        own = random.Random(seed[0]) if seed else draw
        end_s = math.inf if endless and i == len(parts) - 1 else at_s + seconds
        next_s = at_s + own.expovariate(rate)
        while next_s < end_s:
            yield next_s
            next_s += own.expovariate(rate)
        at_s = end_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin-s", type=float, default=0.0, help="When the load begins, on CLOCK_MONOTONIC.")
    parser.add_argument("--timeout-s", type=float, default=10.0)
    parser.add_argument("--stop-file", default="")
    parser.add_argument("--alive", default="")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    parts = [tuple(float(word) for word in part.split(":")) for part in options.load.split(",")]
    client = Client(options.socket, options.alive)
    until_s = time.monotonic() + 120.0
    while not client.connect():
        if time.monotonic() > until_s:
            raise SystemExit("no service within 120 s")
        time.sleep(0.05)
    gc.disable()
    began_s = options.begin_s or time.monotonic() + 0.2
    tried_s = 0.0
    for next_s in planned(parts, began_s, random.Random(options.seed), endless=bool(options.stop_file)):
        if options.stop_file and os.path.exists(options.stop_file):
            break
        while (left_s := next_s - time.monotonic()) > 0:
            time.sleep(left_s)
        if client.connection is None and time.monotonic() - tried_s > 0.05:
            tried_s = time.monotonic()
            client.connect()
        client.drop_late(options.timeout_s)
        client.send(next_s)
    begins = itertools.accumulate((part[0] for part in parts[:-1]), initial=began_s)
    edges = [(edge_s, part[1]) for edge_s, part in zip(begins, parts, strict=True)]
    until_s = time.monotonic() + options.timeout_s
    while client.waiting and time.monotonic() < until_s:
        time.sleep(0.01)
    with open(options.out + ".tmp", "w", encoding="utf-8") as file:
        latencies = [None if one is None else round(one, 6) for one in client.latency]
        json.dump(
            {"planned_s": [round(one, 6) for one in client.planned], "latency_s": latencies, "edges": edges}, file
        )
    os.replace(options.out + ".tmp", options.out)


if __name__ == "__main__":
    main()

"""What the jobs run: `program.py KIND KEY EPOCHS EPOCH_S CODE`, in a folder where it keeps a journal of its own.

A lock is held for as long as any process of an attempt lives, so that a second one is noticed by itself. This runs
under the accounts of users: only the standard library and `fairlead.job` are there.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import socket
import sys
import time
from pathlib import Path

from fairlead import job

KIND, KEY = sys.argv[1], sys.argv[2]
EPOCHS, EPOCH_S, CODE = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
FOLDER = Path(os.environ["TRUST_FOLDER"])
RANK = int(os.environ.get("NODE_RANK", "0"))
SECRET = os.environ["TRUST_SECRET"]
NOISE = 3 << 20


def note(what: str, **about: object) -> None:
    """One line, all or nothing."""
    line = json.dumps({"what": what, "rank": RANK, "pid": os.getpid(), "attempt": job.attempt, "job": job.id, **about})
    file = os.open(FOLDER / f"{KEY}.journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def say(words: str) -> None:
    """On stdout, with whose it is."""
    with contextlib.suppress(OSError):
        os.write(1, f"{KEY} {SECRET} {words}\n".encode())


def epochs_done() -> int:
    """By the checkpoint."""
    try:
        return int((FOLDER / f"{KEY}.checkpoint").read_text())
    except (OSError, ValueError):
        return 0


def save(done: int) -> None:
    """The checkpoint, all or nothing."""
    new = FOLDER / f"{KEY}.checkpoint.new"
    new.write_text(str(done))
    new.replace(FOLDER / f"{KEY}.checkpoint")


def train() -> None:
    """Epochs with a checkpoint, of which node 0 keeps count; leaves when it is asked to."""
    while (done := epochs_done()) < EPOCHS:
        until_s = time.monotonic() + EPOCH_S
        while time.monotonic() < until_s:
            if job.should_stop():
                note("left", epoch=done)
                return
            time.sleep(0.02)
        if RANK == 0:
            save(done + 1)
            note("epoch", epoch=done + 1)
            if done + 1 < EPOCHS:
                job.epoch(done + 1, of=EPOCHS)
    if RANK == 0:
        note("end", stopping=job.should_stop())
        job.epoch(EPOCHS, of=EPOCHS)


def plain() -> None:
    """A program that knows nothing of Fairlead."""
    for epoch in range(EPOCHS):
        time.sleep(EPOCH_S)
        say(f"epoch {epoch}")
    note("end")


def fork_away() -> None:
    """Processes that leave parent, session and any signal behind them, and hold the lock as they go."""
    if os.fork() == 0:
        os.setsid()
        until_s = time.monotonic() + 300.0
        while time.monotonic() < until_s:
            if os.fork():
                os._exit(0)
            time.sleep(0.01)
        os._exit(0)


def serve() -> None:
    """Until it is asked to leave."""
    while not job.should_stop():
        job.latency(0.005)
        time.sleep(0.05)
    note("left", epoch=0)


def snoop() -> None:
    """Look for what others keep secret wherever this account may look, and speak for services of others."""
    home = os.environ["TRUST_HOME"]
    for path in glob.iglob(f"{home}/**", recursive=True):
        with contextlib.suppress(OSError):
            if os.path.isfile(path):
                look_at(path, Path(path).read_bytes())
            elif not os.path.isdir(path):
                forge(path)
    for path in glob.iglob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError):
            look_at(path, Path(path).read_bytes())


def look_at(path: str, found: bytes) -> None:
    """Every secret names its user; whoever is not ours is a leak."""
    own = SECRET.rpartition("-")[0].encode()
    for word in found.replace(b"\0", b" ").replace(b'"', b" ").split():
        at = word.find(b"secret-of-")
        if at >= 0 and not word[at:].startswith(own):
            note("leak", path=path, found=word[at : at + 60].decode(errors="replace"))


def forge(path: str) -> None:
    """Latencies that are none, to whatever socket is there."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sent:
        sent.settimeout(0.2)
        for text in ('{"service": "1", "latency_s": ' + "9" * 4000 + "}", '{"service": "1", "latency_s": 60}', "[", ""):
            sent.sendto(text.encode(), path)
        for number in range(50):
            sent.sendto(json.dumps({"service": str(number), "latency_s": 30.0, "key": "guess"}).encode(), path)


def main() -> None:
    """One attempt."""
    lock = os.open(FOLDER / f"{KEY}.{RANK}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        note("doubled")
    note("start")
    say("start")
    os.set_inheritable(lock, True)
    if KIND in ("train", "serve"):
        train() if KIND == "train" else serve()
        return
    if KIND == "noisy":
        line = f"{KEY} {SECRET} noise\n".encode()
        with contextlib.suppress(OSError):
            for _ in range(NOISE // len(line)):
                os.write(1, line)
    elif KIND == "forker":
        fork_away()
    elif KIND == "snoop":
        snoop()
    if RANK == 0:
        plain()
    sys.exit(CODE)


main()

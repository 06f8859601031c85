"""A service reports its latency, and never suffers from it."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead import job
from fairlead.job import service


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(service, "_default", None)
    yield
    if service._default is not None:
        service._default.close()


def test_a_latency_is_one_datagram(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="la") as folder,  # a socket's path has to be short
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent,
    ):
        path = Path(folder) / "s"
        agent.bind(str(path))
        agent.settimeout(60.0)
        monkeypatch.setenv("FAIRLEAD_LATENCY", str(path))
        monkeypatch.setenv("FAIRLEAD_LAUNCH", "k")
        assert job.latency(0.0063)
        assert json.loads(agent.recv(4096)) == {"key": "k", "latency_s": 0.0063}


def test_without_an_agent_it_is_lost() -> None:
    assert not job.latency(0.1)


def test_what_is_no_number_is_lost() -> None:
    assert not job.latency("slow")  # type: ignore[arg-type]

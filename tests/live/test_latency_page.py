"""A service that tells its latency on a page of its own, over HTTP, from submission to the guard on its node."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.live.jobs.job_files import request
from tests.live.rig import Rig

SERVICE = """
import http.server, pathlib, sys

slow, counts = pathlib.Path(sys.argv[2]), [0, 0]

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        counts[0] += 0 if slow.exists() else 50
        counts[1] += 50
        self.send_response(200)
        self.end_headers()
        bounds = (("0.02", counts[0]), ("1.0", counts[1]), ("+Inf", counts[1]))
        self.wfile.write("".join(f'took_seconds_bucket{{le="{le}"}} {n}\\n' for le, n in bounds).encode())

    def log_message(self, *args):
        pass

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page)
print("serving", flush=True)
server.serve_forever()
"""


@pytest.fixture
def rig() -> Iterator[Rig]:
    guard = {"window_s": 1.0, "sample_s": 0.2, "gap_s": 1.0, "init_s": 1.0}
    made = Rig("muxflow", fake_gpus=1, guard=guard)
    yield made
    made.close()


def test_work_beside_a_service_is_evicted_when_the_services_page_says_that_it_is_slow(rig: Rig, tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    slow = tmp_path / "slow"
    service = rig.submit(
        sys.executable, "-c", SERVICE, port, slow, kind="service", slo_s=0.05,
        latency_url=f"http://127.0.0.1:{port}/metrics", latency_metric="took_seconds",
    )  # fmt: skip
    rig.until(lambda: "serving" in rig.log(service), "the service")
    offline = rig.train(500, 0.5, profile="AlexNet")
    rig.until(lambda: rig.job(offline)["shared"] and rig.job(offline)["attempt"] == 1, "work beside the service")
    slow.touch()
    rig.until(lambda: any(why.startswith("evicted-") for why in rig.reasons(offline)), "an eviction")
    assert (rig.job(service)["state"], rig.job(service)["attempt"]) == ("running", 1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "service", "slo_s": 0.1, "latency_url": "http://10.0.0.1:80/"}, "no page of the service's own"),
        ({"kind": "service", "slo_s": 0.1, "latency_url": "http://127.0.0.1/"}, "no page of the service's own"),
        ({"kind": "service", "latency_url": "http://127.0.0.1:80/"}, "slo_s says which latency is too long"),
        ({"kind": "service", "slo_s": 0.1, "latency_metric": "took"}, "needs a latency_url"),
        (
            {"kind": "service", "slo_s": 0.1, "latency_url": "http://127.0.0.1:80/", "latency_metric": "a b"},
            "latency_metric",
        ),
        ({"latency_url": "http://127.0.0.1:80/"}, "for services"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_submitted(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        request({"command": ["serve"], **asked}, "this job")

"""The agent as a process, spoken to as any program could."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import InputError
from fairlead.node import shim
from fairlead.node.gpu import nvml
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.http import connections, server
from fairlead.node.http.server import socket_path
from fairlead.node.process.launcher import Launcher
from fairlead.node.process.processes import is_running, send
from tests.patience import PATIENCE_S


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))


class Agent:
    """One that is started, spoken to and ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids: list[tuple[int, int]] = []

    def start(self, *options: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "fairlead.node.http.server", "--folder", str(self.folder), "--fake-gpus", "2"]
        done = subprocess.run(
            [*line, *options, "--detach"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode == 0:
            status = self.status()
            self.pids.append((status["pid"], status["start_ticks"]))
        return done

    def ask(self, method: str, where: str, body: Any = None) -> tuple[int, bytes]:
        connection = UnixConnection(self.folder / "agent.sock")
        try:
            connection.request(method, where, body if isinstance(body, bytes) or body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self, query: str = "") -> dict[str, Any]:
        code, found = self.ask("GET", f"/status?{query}")
        assert code == 200, found
        answer: dict[str, Any] = json.loads(found)
        return answer

    def run(self, program: str, job_id: int = 1, **about: Any) -> tuple[int, bytes]:
        asked = {"id": f"{job_id}.1", "argv": [sys.executable, "-c", program], "gpus": ["FAKE-GPU-0000"]}
        return self.ask("POST", "/start", {**asked, **about})

    def kill(self, number: signal.Signals) -> None:
        send(*self.pids[-1], number)
        wait_until(lambda: not is_running(*self.pids[-1]))

    def end(self) -> None:
        for one in self.pids:
            send(*one, signal.SIGKILL)
        launcher = Launcher(self.folder / "jobs")
        for launch in launcher.launches():
            launcher.kill(launch)
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_until(true: Callable[[], object], for_s: float = PATIENCE_S) -> None:
    until_s = time.monotonic() + for_s
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent(Path(tempfile.mkdtemp(prefix="fs", dir="/tmp")))
    yield made
    made.end()


def test_only_its_own_user_can_reach_it_and_only_one_has_the_folder(agent: Agent) -> None:
    assert agent.start().returncode == 0
    assert (agent.folder / "agent.sock").stat().st_mode & 0o777 == 0o600
    again = agent.start()
    assert again.returncode == 1
    assert "has an agent already" in again.stderr
    assert agent.status()["pid"] == agent.pids[0][0]


def test_sigterm_ends_it_and_leaves_its_jobs_to_the_next(agent: Agent) -> None:
    agent.start()
    agent.run("import time; print('up', flush=True); time.sleep(1.5); raise SystemExit(6)")
    before = agent.status()["attempts"][0]
    agent.kill(signal.SIGTERM)
    assert not (agent.folder / "agent.sock").exists()
    assert agent.start().returncode == 0
    found = agent.status()["attempts"][0]
    assert (found["started_at_s"], found["id"]) == (before["started_at_s"], "1.1")
    wait_until(lambda: agent.status()["attempts"][0]["state"] == "ended")
    assert agent.status()["attempts"][0]["exit_code"] == 6


def test_whoever_waits_is_told_at_the_end_of_a_job(agent: Agent) -> None:
    agent.start()
    agent.run("import sys; sys.stdin.read(); import time; time.sleep(0.5)")
    revision = agent.status()["revision"]
    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: found.append(agent.status(f"after={revision}&wait_s=60")))
    thread.start()
    thread.join(55.0)
    assert found, "it must not take the whole wait"
    assert found[0]["attempts"][0]["state"] == "ended"
    assert found[0]["revision"] != revision


def test_an_old_revision_is_answered_at_once_also_one_of_an_agent_before(agent: Agent) -> None:
    agent.start()
    assert agent.status("after=somebody-elses&wait_s=3600")["attempts"] == []


def test_a_connection_can_be_used_again(agent: Agent) -> None:
    agent.start()
    connection = UnixConnection(agent.folder / "agent.sock")
    for path, code in (("/status", 200), ("/nothing", 400), ("/status", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == code
    connection.close()


@pytest.mark.parametrize(
    ("where", "body", "says"),
    [
        ("/start", b"no json", "no JSON"),
        ("/start", [1], "JSON object"),
        ("/start", {"argv": ["true"]}, "cannot be read"),
        ("/start", {"id": 1, "argv": ["true"]}, "cannot be read"),
        ("/start", {"id": "1.1", "argv": ["true"], "gpus": ["GPU-none"]}, "no GPU GPU-none"),
        ("/start", {"id": "1.1", "argv": [], "gpus": ["FAKE-GPU-0000"]}, "command is empty"),
        ("/start", {"id": "1.1", "argv": ["true"], "cwd": 7, "gpus": ["FAKE-GPU-0000"]}, "cannot be read"),
        ("/stop", {"id": "x.1", "grace_s": 1}, "'x.1' is no attempt"),
        ("/stop", {"id": "1.1", "grace_s": -1}, "grace of -1"),
        ("/stop", {}, "'' is no attempt"),
        ("/remove", {"job_id": "x"}, "job_id is 'x'"),
        ("/dance", {}, "nothing is at /dance"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(agent: Agent, where: str, body: Any, says: str) -> None:
    agent.start()
    code, found = agent.ask("POST", where, body)
    assert (code, says in json.loads(found)["error"]) == (400, True), found
    assert agent.status()["attempts"] == []


def test_a_big_log_is_read_in_bounded_pieces(agent: Agent) -> None:
    agent.start()
    agent.run("print('x' * 3_000_000)")
    wait_until(lambda: agent.status()["attempts"][0]["state"] == "ended")
    total, piece = 0, b"."
    while piece:
        _, piece = agent.ask("GET", f"/log?id=1.1&stream=stdout&offset={total}&limit=900000000")
        assert len(piece) <= 1 << 20
        total += len(piece)
    assert total == 3_000_001


def test_over_tcp_a_token_is_needed(agent: Agent) -> None:
    secret = agent.folder / "token"
    secret.write_text("open sesame\n")
    assert "needs a token" in agent.start("--listen", "127.0.0.1:0").stderr
    assert "expected HOST:PORT" in agent.start("--listen", "here", "--token-file", str(secret)).stderr
    assert agent.start("--listen", "127.0.0.1:0", "--token-file", str(secret)).returncode == 0
    name, _, port = agent.status()["address"].rpartition(":")
    codes = []
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer open sesame"}):
        connection = http.client.HTTPConnection(name, int(port), timeout=PATIENCE_S)
        connection.request("GET", "/status", headers=headers)
        answer = connection.getresponse()
        answer.read()
        codes.append(answer.status)
        connection.close()
    assert codes == [401, 401, 200]


def test_settings_that_are_wrong_are_told_to_whoever_starts_it(agent: Agent) -> None:
    assert "--guard is no JSON" in agent.start("--guard", "{").stderr
    assert "unknown setting 'window'" in agent.start("--guard", '{"window": 1}').stderr
    assert "no GPU model" in agent.start("--fake-model", "H2O").stderr


def test_on_a_full_disk_it_says_so_and_leaves_nothing_behind(agent: Agent) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); from fairlead.node.http import server"
    line = [sys.executable, "-c", f"{full}; server.main()", "--folder", str(agent.folder), "--fake-gpus", "2"]
    done = subprocess.run([*line, "--detach"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("the agent cannot begin")
    assert "Traceback" not in done.stderr
    assert not list(agent.folder.glob("**/*.tmp"))
    assert agent.start().returncode == 0, "there is room again"


def test_what_cannot_be_written_while_it_runs_is_refused_in_words_and_can_be_asked_again(agent: Agent) -> None:
    agent.start()
    soft, hard = resource.prlimit(agent.pids[-1][0], resource.RLIMIT_FSIZE)
    resource.prlimit(agent.pids[-1][0], resource.RLIMIT_FSIZE, (0, hard))
    code, said = agent.ask("POST", "/stop", {"id": "7.1"})
    assert (code, "cannot do it now" in json.loads(said)["error"]) == (409, True), said
    resource.prlimit(agent.pids[-1][0], resource.RLIMIT_FSIZE, (soft, hard))
    assert agent.ask("POST", "/stop", {"id": "7.1"})[0] == 200
    assert [bar["id"] for bar in agent.status()["barred"]] == ["7.1"]
    assert "Traceback" not in (agent.folder / server.LOG).read_text()


def test_whoever_started_it_may_be_gone_when_it_is_ready(agent: Agent) -> None:
    program = (
        "import os; from fairlead.node.http import server; told, tell = os.pipe(); os.close(told);"
        "server.serve(server.parser().parse_args(), tell)"
    )
    line = [sys.executable, "-c", program, "--folder", str(agent.folder), "--fake-gpus", "2"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: process.poll() is not None or (agent.folder / "agent.sock").exists())
        assert agent.run("print('ran')")[0] == 200
        wait_until(lambda: agent.status()["attempts"][0]["state"] == "ended")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=PATIENCE_S)[1] == ""
    assert process.returncode == 0


def test_a_folder_with_too_long_a_path_is_refused() -> None:
    with pytest.raises(InputError, match="a socket's path has at most 107"):
        socket_path(Path("/tmp") / ("x" * 100))


@pytest.mark.skipif(shim.find_compiler() is None, reason="needs a C compiler")
def test_the_shim_is_where_jobs_of_other_users_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "NvmlMeter", lambda: FakeMeter(1))
    options = server.parser().parse_args(["--folder", str(tmp_path)])
    _, library = server._meter_and_library(tmp_path, options)
    assert library is not None
    assert library.is_relative_to(tmp_path)
    for one in (library, *library.parents):
        if one == tmp_path:
            break
        assert one.stat().st_mode & 0o005 == 0o005, one


def test_connections_that_say_nothing_or_say_it_slowly_keep_no_agent_from_answering(agent: Agent) -> None:
    agent.folder.mkdir(parents=True, exist_ok=True)
    (agent.folder / "token").write_text("secret")
    assert agent.start("--listen", "127.0.0.1:0", "--token-file", str(agent.folder / "token")).returncode == 0
    host, _, port = agent.status()["address"].rpartition(":")
    with contextlib.ExitStack() as stack:
        many = []
        for _ in range(3 * connections.MOST):
            made = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            with contextlib.suppress(OSError):
                made.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            many.append(made)
        remote = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        remote.request("GET", "/status", headers={"Authorization": "Bearer secret"})
        assert remote.getresponse().status == 200
        remote.close()
        assert agent.status()["guard_age_s"] < 30.0
        tasks = Path(f"/proc/{agent.pids[-1][0]}/task")
        wait_until(lambda: len(list(tasks.iterdir())) < connections.MOST + 32)
        assert many[0].recv(1) == b""  # whoever was waited for the longest went first


def test_who_is_waited_for_too_long_is_cut_off_and_who_is_answered_is_not() -> None:
    now_s = 0.0
    counted = connections.Connections(most=2, clock=lambda: now_s)
    pairs = [socket.socketpair() for _ in range(3)]
    slow, asking, late = (ours for ours, _ in pairs)
    try:
        counted.came(slow)
        counted.came(asking)
        with counted.known(asking):
            now_s = connections.REQUEST_S + 1.0
            counted.sweep()
            assert pairs[0][1].recv(1) == b""
            counted.left(slow)
            counted.came(late)
            counted.came(slow)  # too many, and the one that is answered stays
            assert pairs[2][1].recv(1) == b""
        pairs[1][1].setblocking(False)
        with pytest.raises(BlockingIOError):
            pairs[1][1].recv(1)
    finally:
        for pair in pairs:
            for end in pair:
                end.close()

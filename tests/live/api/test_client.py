"""The client against a real server: what it returns, how it fails, and that it survives restarts."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.live import client as client_module
from fairlead.live.api.app import make_app
from fairlead.live.api.server import Server
from fairlead.live.client import Client, default_client
from fairlead.live.connection import AccessError, ControllerError, ControllerUnreachableError, NotFoundError
from fairlead.live.storage.tokens import Tokens
from tests.live.api.serving import Served
from tests.live.conftest import MakeWorld
from tests.live.scripted import World, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("FAIRLEAD_URL", "FAIRLEAD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(client_module, "_LOOK_S", 0.02)


def test_a_whole_story_through_the_client(site: Served) -> None:
    engine = site.world.engine
    with site.client() as alice, site.client("olga") as olga, site.client("adam") as adam:
        job_id = alice.submit({"command": ["train"], "name": "first"})["id"]
        wait_for(lambda: (job_id, 1) in engine.running)
        assert alice.job(job_id)["state"] == "running"
        assert alice.explain(job_id)["why"]
        assert alice.nodes()["nodes"][0]["gpus"][0]["jobs"][0]["id"] == job_id
        assert alice.summary()["jobs"]["running"] == 1
        assert alice.snapshot()["jobs"][0]["id"] == job_id
        assert alice.health()["status"] == "ok"
        assert [event["what"] for event in alice.events(job_id=job_id)] == ["placed"]
        assert alice.hold(job_id)["wish"] == "hold"
        wait_for(lambda: alice.job(job_id)["state"] == "held")
        alice.release(job_id)
        wait_for(lambda: (job_id, 2) in engine.running)
        assert olga.drain("n0:3")["gpus"] == ["n0:3"]
        assert olga.resume("n0")["is_drained"] is False
        assert olga.config() == {"poll_s": [5.0, "default"]}
        assert "fairlead_jobs" in olga.metrics()
        made = adam.make_token("eve", "user", "laptop")
        assert [t["user"] for t in adam.tokens() if t["id"] == made["id"]] == ["eve"]
        assert adam.revoke_token(made["id"]) == {"id": made["id"]}
        alice.cancel(job_id)
        wait_for(lambda: alice.job(job_id)["state"] == "cancelled")


def test_jobs_are_iterated_over_all_pages(site: Served) -> None:
    ids = [site.submit(hold=True) for _ in range(7)]
    with site.client() as alice:
        assert [job["id"] for job in alice.jobs(order="oldest", page=3)] == ids
        assert [job["id"] for job in alice.jobs(states="held,running", most=4, page=3)] == ids[:2:-1]
        assert list(alice.jobs(states="running")) == []


def test_logs_are_followed_over_attempts_until_the_job_is_over(site: Served) -> None:
    job_id, engine = site.submit(), site.world.engine
    wait_for(lambda: (job_id, 1) in engine.running)
    engine.write((job_id, 1), b"one ")
    with site.client() as alice:
        assert b"".join(alice.log(job_id)) == b"one "
        assert b"".join(alice.log(job_id, offset=-2)) == b"e "
        followed = alice.log(job_id, follow=True)
        assert next(followed) == b"one "
        engine.write((job_id, 1), b"two ")
        assert next(followed) == b"two "
        engine.evict((job_id, 1))
        wait_for(lambda: (job_id, 2) in engine.running)
        engine.write((job_id, 2), b"three")
        assert next(followed) == b"three"
        engine.end((job_id, 2))
        assert list(followed) == []
        assert b"".join(alice.log(job_id, attempt=1, follow=True)) == b"one two "
        assert b"".join(alice.log(job_id, follow=True)) == b"three"


def test_following_a_job_that_is_cancelled_before_it_starts_ends(site: Served) -> None:
    job_id = site.submit(hold=True)
    with site.client() as alice:
        followed: list[bytes] = []
        reader = threading.Thread(target=lambda: followed.extend(alice.log(job_id, follow=True)))
        reader.start()
        site.call("POST", f"/v1/jobs/{job_id}/cancel")
        reader.join()
    assert followed == []


def test_events_can_be_followed(site: Served) -> None:
    with site.client() as alice:
        followed = alice.events(follow=True, wait_s=0.1)
        job_id = site.submit()
        found = next(followed)
        assert (found["job_id"], found["what"]) == (job_id, "placed")


@pytest.mark.parametrize(
    ("call", "kind", "exit_code"),
    [
        (lambda c: c.job(77), NotFoundError, 2),
        (lambda c: c.submit({"command": []}), InputError, 2),
        (lambda c: c.submit({"command": ["a"], "gpus": 99}), InputError, 2),
        (lambda c: c.config(), AccessError, 2),
        (lambda c: c.drain("n0/../x"), InputError, 2),
        (lambda c: list(c.jobs(states="nonsense")), InputError, 2),
    ],
)
def test_refusals_become_errors_with_the_servers_words(
    site: Served, call: Callable[[Client], object], kind: type[Exception], exit_code: int
) -> None:
    role = "olga" if "drain" in str(call.__code__.co_names) else "alice"
    with site.client(role) as client, pytest.raises(kind) as caught:
        call(client)
    assert getattr(caught.value, "exit_code", None) == exit_code
    assert getattr(caught.value, "message", "")


def test_a_token_that_does_not_stand_is_told_where_it_comes_from(site: Served) -> None:
    with Client(site.server.url, "fl_nonsense") as nobody, pytest.raises(AccessError) as caught:
        nobody.summary()
    assert "FAIRLEAD_TOKEN" in str(caught.value)


def test_where_nobody_answers_the_hint_says_how_to_start_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with Client(f"http://127.0.0.1:{taken.getsockname()[1]}", "t") as client:
            for call in (client.summary, lambda: client.submit({"command": ["a"]})):
                with pytest.raises(ControllerUnreachableError) as caught:
                    call()
                assert "fairlead up" in str(caught.value)


def test_another_server_is_not_taken_for_a_controller() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def answer() -> None:
            for body in (
                b"200 OK\r\nContent-Length: 4\r\n\r\n<ht>",
                b"500 X\r\nContent-Length: 0\r\n\r\n",
            ):
                connection, _ = other.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 " + body)

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        for _ in range(2):
            with Client(url, "t") as client, pytest.raises(ControllerError, match="answered with"):
                client.summary()
        answering.join()


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://x:y", "http://x/path", "http://[::1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="no address of a controller"):
        Client(url, "t")


@pytest.mark.parametrize("token", ["fl_\nx", "fl_\u00e4", "\0"])
def test_what_can_be_no_token_is_refused_before_it_is_sent(token: str) -> None:
    with pytest.raises(AccessError, match="in no token"):
        Client("http://127.0.0.1:1", token)


def test_a_host_that_cannot_be_a_name_is_unreachable() -> None:
    with Client("http://a..b\u00e4:80", "t") as client, pytest.raises(ControllerUnreachableError):
        client.summary()


@contextmanager
def at_port(world: World, token: list[str], port: int = 0) -> Iterator[Server]:
    """A server that can be gone and come back on the same port, with the same tokens."""
    tokens = Tokens(world.database)
    app = make_app(world.controller, world.store, tokens)
    if not token:
        token.append(tokens.create("alice", "admin")[1])
    server = Server(app, port=port)
    server.start()
    try:
        with world.running():
            yield server
    finally:
        server.stop()
        app.state.context.close()


def test_the_connection_is_made_anew_after_a_restart(make_world: MakeWorld) -> None:
    token: list[str] = []
    world = make_world()
    with at_port(world, token) as server:
        client = Client(server.url, token[0])
        assert client.submit({"command": ["a"], "hold": True})["id"] == 1
    port = int(server.url.rpartition(":")[2])
    world.close()
    with at_port(make_world(), token, port), client:
        assert client.job(1)["state"] == "held"
        assert client.make_token("bob", "user")["id"] == 2


def test_a_restart_in_the_middle_of_submissions_neither_loses_nor_doubles_one(make_world: MakeWorld) -> None:
    """Connections are cut at every moment: before the request is read, before the answer is sent, and between."""
    token: list[str] = []
    world = make_world()
    count, ids = 60, dict[str, int]()
    with at_port(world, token) as server:
        port = int(server.url.rpartition(":")[2])
        client = Client(server.url, token[0])
        seen = threading.Event()

        def submit() -> None:
            with client:
                for number in range(count):
                    wanted = {"command": ["a"], "name": f"j{number}", "hold": True}
                    ids[f"j{number}"] = client.submit(wanted, retry_s=120.0)["id"]
                    if number == 10:
                        seen.set()

        submitting = threading.Thread(target=submit)
        submitting.start()
        assert seen.wait(PATIENCE_S)
    world.close()
    world = make_world()
    with at_port(world, token, port):
        submitting.join()
        with Client(server.url, token[0]) as asker:
            stored = {job["name"]: job["id"] for job in asker.jobs()}
            assert len(list(asker.jobs())) == count
    assert stored == ids


def test_a_submission_whose_answer_never_came_is_sent_again_with_its_key(site: Served) -> None:
    """A relay that lets the request through and cuts the connection before the answer, twice."""
    host, _, port = site.server.url.removeprefix("http://").rpartition(":")
    cuts = itertools.count()
    with socket.socket() as relay:
        relay.bind(("127.0.0.1", 0))
        relay.listen()

        def pass_on() -> None:
            for _ in range(3):
                near, _ = relay.accept()
                with near, socket.create_connection((host, int(port))) as far:
                    asked = b""
                    while b"train" not in asked:
                        asked += near.recv(65536)
                    far.sendall(asked)
                    answer = b""
                    while not answer.endswith(b"}"):
                        answer += far.recv(65536)
                    if next(cuts) == 2:
                        near.sendall(answer)

        passing = threading.Thread(target=pass_on)
        passing.start()
        with Client(f"http://127.0.0.1:{relay.getsockname()[1]}", site.token["alice"]) as client:
            assert client.submit({"command": ["train"], "hold": True}) == {"id": 1, "is_new": False}
        passing.join()
    assert len(site.call("GET", "/v1/jobs").json["jobs"]) == 1


def test_the_controller_is_found_by_environment_or_in_its_folder(
    site: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ControllerUnreachableError, match="FAIRLEAD_URL is not set"):
        default_client()
    home = tmp_path / "home"
    home.mkdir()
    (home / "url").write_text(site.server.url + "\n")
    with pytest.raises(AccessError, match="FAIRLEAD_TOKEN is not set"):
        default_client()
    (home / "token").write_text(site.token["alice"] + "\n")
    with default_client() as found:
        assert found.summary()
    monkeypatch.setenv("FAIRLEAD_URL", "http://127.0.0.1:1")
    with default_client() as found, pytest.raises(ControllerUnreachableError):
        found.summary()


def test_a_unix_socket_will_do(make_world: MakeWorld, tmp_path: Path) -> None:
    world = make_world()
    tokens = Tokens(world.database)
    app = make_app(world.controller, world.store, tokens)
    path = tmp_path / "s"
    for _ in range(2):  # the second finds the file that the first would have left if it had been killed
        server = Server(app, uds=path)
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(InputError, match="another controller"):
            Server(app, uds=path)
        server.start()
        with Client(server.url, tokens.create("alice", "user")[1]) as client:
            assert client.summary()["jobs"]["waiting"] == 0
        server.stop()
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    app.state.context.close()


def test_tls_is_spoken_where_a_certificate_is_given(
    make_world: MakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    world = make_world()
    tokens = Tokens(world.database)
    app = make_app(world.controller, world.store, tokens)
    with pytest.raises(InputError, match="both"):
        Server(app, tls_cert=cert)
    with pytest.raises(InputError, match="cannot read"):
        Server(app, tls_cert=cert, tls_key=tmp_path / "none.pem")
    token = tokens.create("alice", "user")[1]
    server = Server(app, tls_cert=cert, tls_key=key, connections=12, connections_each=8)
    server.start()
    try:
        assert server.url.startswith("https://")
        with Client(server.url, token) as wary, pytest.raises(ControllerUnreachableError, match="certificate"):
            wary.summary()
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with Client(server.url, token) as client:
            assert client.summary()["trouble"] == "the control loop does not run"
            host, _, port = server.url.removeprefix("https://").rpartition(":")
            with contextlib.ExitStack() as silent:
                for _ in range(40):  # none of them begins its handshake
                    silent.enter_context(socket.create_connection((host, int(port))))
                assert client.summary()["jobs"]["running"] == 0
                assert len(server.limits.inside) <= 8
    finally:
        server.stop()
        app.state.context.close()


def test_a_port_that_is_taken_and_an_open_address_are_told(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    app = make_app(world.controller, world.store, Tokens(world.database))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot listen on"):
            Server(app, port=taken.getsockname()[1])
    with pytest.raises(InputError, match="cannot listen on"):
        Server(app, "no.such.host.invalid")
    assert "without TLS" not in caplog.text.split("no.such.host")[0]
    server = Server(app, "0.0.0.0")
    assert "listening on 0.0.0.0 without TLS" in caplog.text
    server.start()
    server.stop()
    app.state.context.close()


def test_the_client_loads_without_the_servers_libraries() -> None:
    heavy = "fastapi, uvicorn, pydantic, prometheus_client, numpy, polars"
    code = f"import sys, fairlead.live.client; print([m for m in '{heavy}'.split(', ') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

"""One MPS daemon per GPU, and none of them can hang or outlive us unnoticed."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.node.mps.daemon import MpsDaemon, MpsError, MpsTimeoutError, clean_stale
from fairlead.node.process.log_tail import Tail
from fairlead.node.process.processes import process
from tests.node.mps import fake_mps

UUID = "GPU-1a2b3c4d-0000-0000-0000-000000000000"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mps") as made:  # short: sockets have short paths
        yield Path(made)


@pytest.fixture
def daemon(folder: Path) -> Iterator[MpsDaemon]:
    made = MpsDaemon(UUID, folder / "run", str(fake_mps.install(folder / "bin")))
    yield made
    made.kill()


def test_a_daemon_starts_answers_and_quits(daemon: MpsDaemon) -> None:
    assert not daemon.status().is_running
    daemon.start()
    status = daemon.status()
    assert status.is_healthy
    assert status.servers == ()
    assert status.pid is not None
    daemon.start()
    assert daemon.status().pid == status.pid, "starting again changes nothing"
    daemon.stop()
    assert not daemon.status().is_running
    assert process(status.pid) is None or process(status.pid).has_ended  # type: ignore[union-attr]
    assert not daemon.pipe_folder.exists()
    assert "Start " + UUID in (daemon.log_folder / "control.log").read_text()


def test_servers_clients_and_their_termination(daemon: MpsDaemon) -> None:
    daemon.start()
    server = int(daemon.command("start_server"))
    fake_mps.change(daemon.pipe_folder, server, clients=[101, 102])
    (found,) = daemon.status().servers
    assert (found.pid, found.state, found.clients) == (server, "ACTIVE", (101, 102))
    assert daemon.status().clients == (101, 102)
    assert daemon.terminate_client(server, 101) == "0"
    assert daemon.terminate(102)
    assert not daemon.terminate(102)
    assert daemon.clients(server) == ()


def test_a_fault_is_seen_and_a_restart_heals_it(daemon: MpsDaemon) -> None:
    daemon.start()
    server = int(daemon.command("start_server"))
    fake_mps.change(daemon.pipe_folder, server, state="FAULT")
    faulty = daemon.status()
    assert not faulty.is_healthy
    assert faulty.servers[0].has_fault
    daemon.restart()
    healed = daemon.status()
    assert healed.is_healthy
    assert healed.pid != faulty.pid
    found = process(server)
    assert found is None or found.has_ended


def test_a_hung_daemon_does_not_hang_us(daemon: MpsDaemon) -> None:
    daemon.start()
    daemon.timeout_s = 0.5
    (daemon.pipe_folder / "hang").touch()
    began_s = time.monotonic()
    with pytest.raises(MpsTimeoutError, match=r"did not answer 'get_server_list' within 0\.5 s"):
        daemon.start()
    assert daemon.status().is_hung
    assert time.monotonic() - began_s < 60.0  # a hang would last for ever
    daemon.timeout_s = 5.0
    daemon.restart()
    assert daemon.status().is_healthy


def test_a_daemon_that_cannot_start_says_why(daemon: MpsDaemon, folder: Path) -> None:
    (folder / "bin" / "broken").touch()
    with pytest.raises(MpsError, match="ended with 1: MPS: an internal error"):
        daemon.start()
    (folder / "bin" / "broken").unlink()
    (folder / "bin" / "stuck").touch()
    daemon.timeout_s = 0.3
    with pytest.raises(MpsError, match="did not start in time"):
        daemon.start()
    missing = MpsDaemon(UUID, folder, "no-such-program")
    with pytest.raises(MpsError, match="No such file"):
        missing.start()
    missing.stop()  # nothing to end, nothing to complain of
    assert not missing.status().is_running


def test_a_daemon_is_found_again_by_its_folder(daemon: MpsDaemon) -> None:
    daemon.start()
    again = MpsDaemon(UUID, daemon.folder, daemon.binary)
    assert again.status().pid == daemon.status().pid
    assert clean_stale(daemon.folder) == []
    assert again.status().is_running


def test_what_a_dead_daemon_left_is_cleaned_up(daemon: MpsDaemon) -> None:
    daemon.start()
    server = int(daemon.command("start_server"))
    pid = daemon.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while daemon.status().is_running:
        time.sleep(0.01)
    assert daemon.pipe_folder.exists()
    assert clean_stale(daemon.folder) == [daemon.pipe_folder]
    assert not daemon.pipe_folder.exists()
    assert daemon.log_folder.exists()
    found = process(server)
    assert found is None or found.has_ended
    daemon.start()
    assert daemon.status().is_healthy


def test_a_pid_file_that_names_a_stranger_is_no_daemon(daemon: MpsDaemon) -> None:
    daemon.pipe_folder.mkdir(parents=True)
    (daemon.pipe_folder / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    assert daemon.daemon() is None
    daemon.stop()  # and we are still here


def test_a_running_daemon_is_not_cleaned_away(daemon: MpsDaemon) -> None:
    daemon.start()
    with pytest.raises(MpsError, match="still runs"):
        daemon.clean()


def test_the_environment_of_a_client(daemon: MpsDaemon) -> None:
    plain = daemon.client_env()
    assert plain == {
        "CUDA_VISIBLE_DEVICES": UUID,
        "CUDA_MPS_PIPE_DIRECTORY": str(daemon.pipe_folder),
        "CUDA_MPS_LOG_DIRECTORY": str(daemon.log_folder),
    }
    limited = daemon.client_env(share_pct=42.5, memory_limit_mib=20 * 1024, priority=1)
    assert set(limited.items()) - set(plain.items()) == {
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "42.5"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=20G"),
        ("CUDA_MPS_CLIENT_PRIORITY", "1"),
    }
    assert daemon.client_env(memory_limit_mib=1500)["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1500M"


@pytest.mark.parametrize("bad", [{"share_pct": 0.0}, {"share_pct": 101.0}, {"memory_limit_mib": 0.0}, {"priority": 2}])
def test_limits_that_mps_does_not_know_are_refused(daemon: MpsDaemon, bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        daemon.client_env(**bad)  # type: ignore[arg-type]


def test_a_folder_too_deep_for_a_socket_is_refused() -> None:
    with pytest.raises(InputError, match="a socket's path has at most 107"):
        MpsDaemon(UUID, Path("/") / ("x" * 90))


def test_several_users_need_a_server_for_all(daemon: MpsDaemon) -> None:
    daemon.multiuser = True
    daemon.start()
    assert "-multiuser-server" in (daemon.pipe_folder / "state.json").read_text()


def test_new_log_lines_come_once(daemon: MpsDaemon) -> None:
    assert daemon.new_log_lines() == []
    daemon.start()
    assert daemon.new_log_lines()[0] == f"Start {UUID}"
    assert daemon.new_log_lines() == []
    (daemon.log_folder / "server.log").write_text("Server FAULT\nhalf a li")
    assert daemon.new_log_lines() == ["Server FAULT"]
    with (daemon.log_folder / "server.log").open("a") as log:
        log.write("ne\n")
    assert daemon.new_log_lines() == ["half a line"]


def test_a_log_that_is_cut_or_replaced_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.new_lines() == []
    path.write_text("one\ntwo\n")
    assert tail.new_lines() == ["one", "two"]
    path.write_text("cut\n")
    assert tail.new_lines() == ["cut"]
    (tmp_path / "other").write_text("a longer line than before\n")
    (tmp_path / "other").rename(path)
    assert tail.new_lines() == ["a longer line than before"]
    assert Tail(path, from_end=True).new_lines() == []

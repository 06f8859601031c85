"""What Xids and log lines ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.policy.guarding import Remedy, classify_line, classify_xid
from fairlead.policy.guarding.faults import MPS_LINES, XIDS, xid_of


@pytest.mark.parametrize("number", [46, 48, 62, 64, 74, 79, 95, 109, 119, 120, 140])
def test_faults_of_the_gpu_disable_it(number: int) -> None:
    assert classify_xid(number).remedy is Remedy.DISABLE


@pytest.mark.parametrize("number", [13, 31, 43, 45, 94])
def test_faults_of_a_client_ask_for_a_look_at_the_server(number: int) -> None:
    assert classify_xid(number).remedy is Remedy.CHECK_MPS


@pytest.mark.parametrize("number", [63, 92])
def test_corrected_errors_are_harmless(number: int) -> None:
    assert classify_xid(number).remedy is Remedy.HARMLESS


@given(st.integers(0, 1000).filter(lambda n: n not in XIDS))
def test_an_unknown_xid_takes_the_gpu_out_of_the_pool(number: int) -> None:
    fault = classify_xid(number)
    assert fault.remedy is Remedy.DISABLE
    assert str(number) in fault.what


def test_every_entry_says_what_it_is_and_where_that_comes_from() -> None:
    for fault in [*XIDS.values(), *(fault for _, fault in MPS_LINES)]:
        assert fault.what
        assert fault.source


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("[2024-04-29 11:22:10.441 Control    73] Server encountered a fatal exception. Shutting down", "restart-mps"),
        ("[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 1", "restart-mps"),
        ("[2024-04-29 11:22:10.446 Control    73] Server 95 exited with status 0", "harmless"),
        ("[Legacy Server   425] Failed to start : invalid argument", "restart-mps"),
        ("[2013-08-06 10:51:31.706 Server 29489] MPS server failed to start", "restart-mps"),
        ("[Server 29489] MPS is only supported on 64-bit Linux platforms, with an SM 3.5 or higher GPU.", "disable"),
        ("[Server 4428] Status of server 4428 changed from ACTIVE to FAULT", "restart-mps"),
        ("[Other    17] Receive command failed, assuming client exit", "harmless"),
        (
            "Server failed to recevie command with status 806, assuming client {PID: 627, Context ID: 1} exit",
            "harmless",
        ),
        ("Client {PID: 470, Context: 1} encountered a fatal GPU error.", "restart-mps"),
        ("Client {PID: 470, Context ID: 1} on the error-trigging process 470 to be torn down", "restart-mps"),
        ("Status of client {PID: 660, Context ID: 1} is ACTIVE", "harmless"),
        ("[Other    17] Volta MPS: Client disconnected. Number of active client contexts is 2", "harmless"),
        ("[Control    74] User did not send valid credentials", "harmless"),
        ("[Control    74] NEW CLIENT 0 from user 0: Server is not ready, push client to pending list", "harmless"),
        ("[Server  4428] Received new client request for {PID: 4267, Context ID: 0}", "harmless"),
        ("[Server  4428] Device default pinned memory limit set", "harmless"),
        ("[Server  4428] an error of a kind never seen before", "restart-mps"),
        ("", "harmless"),
    ],
)
def test_lines_of_the_mps_logs(line: str, remedy: str) -> None:
    assert classify_line(line).remedy == remedy


@pytest.mark.parametrize(
    ("line", "number", "remedy"),
    [
        ("[...] NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked", 63, "harmless"),
        ("[...] NVRM: Xid (0000:03:00): 31, Ch 00000001, intr 10000000. MMU Fault", 31, "check-mps"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 79, "disable"),
        (
            "NVRM: Xid (PCI:0000:3b): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            154,
            "disable",
        ),
        (
            "NVRM: Xid (PCI:0000:3b): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
            154,
            "harmless",
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 154", 154, "disable"),
        ("NVRM: Xid (PCI:0000:3b:00): 999, what is that", 999, "disable"),
    ],
)
def test_xid_lines_of_the_kernel_log(line: str, number: int, remedy: str) -> None:
    assert xid_of(line) == number
    assert classify_line(line).remedy == remedy


def test_a_line_without_xid_has_none() -> None:
    assert xid_of("usb 1-1: new device") is None


@given(st.text())
def test_any_text_has_an_answer(line: str) -> None:
    assert classify_line(line).remedy in Remedy

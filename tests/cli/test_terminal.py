"""What users wrote does nothing to the terminal of whoever looks at it."""

from __future__ import annotations

import io
import logging
import sys
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli import console as shown
from fairlead.cli.live_tables import event_text, gpu_table, job_page, job_table
from fairlead.cli.top import frame
from fairlead.live.daemon import _LINE, _Line
from fairlead.printable import printable, printable_lines

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200bz\x7f"
OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
JOB: dict[str, Any] = {
    "id": 1, "name": HOSTILE, "user": HOSTILE, "kind": "training", "state": "waiting", "phase": "", "reason": HOSTILE,
    "detail": f"{HOSTILE}\nsecond line", "wait_reason": HOSTILE, "command": ["python", HOSTILE], "cwd": HOSTILE,
    "gpus": 1, "min_gpus": 1, "max_gpus": 1, "memory_mib": 0.0, "profile": HOSTILE, "application": HOSTILE,
    "priority": 0, "deadline_s": None,
    "estimate_s": None, "slo_s": None, "placement": [], "shared": False, "sm_share": 1.0, "attempt": 1, "failures": 0,
    "epochs_done": None, "epochs": None, "epoch_s": None, "loss": None, "submitted_at_s": 0.0, "started_at_s": None,
    "ended_at_s": None, "exit_code": None, "energy_j": None, "energy_at_s": None,
    "deadline_state": "", "deadline_at_s": None, "is_fake": True,
}  # fmt: skip
EVENT = {"id": 1, "at_s": 0.0, "what": "parked", "job_id": 1, "node": "", "about": f"{HOSTILE}\n00:00:00  job 2"}
GPU = {
    "name": "n0:0", "model": "H200", "memory_mib": 1024.0, "is_drained": False, "utilisation_frac": 0.5, "power_w": 1.0,
    "memory_used_mib": 1.0, "guard_state": "", "jobs": [{"id": 1, "name": HOSTILE, "user": HOSTILE}],
}  # fmt: skip
NODE = {"name": "n0", "state": "up", "gpus": [GPU]}
SUMMARY = {
    "gpus": {"busy": 0, "all": 1, "drained": 0}, "jobs": {}, "is_fake": True, "power_w": None, "version": "1",
    "cluster": HOSTILE, "policy": HOSTILE, "trouble": HOSTILE, "power_at_s": None, "deadlines": {},
}  # fmt: skip
SEEN = {"summary": SUMMARY, "nodes": [NODE], "running": [], "waiting": [JOB], "events": [EVENT]}


def harmless(text: str) -> bool:
    return all(one in "\n\t" or unicodedata.category(one) not in OBEYED for one in text)


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8")

    def isatty(self) -> bool:
        return True

    @property
    def said(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode()


@pytest.mark.parametrize(
    "made",
    [
        lambda: job_table([JOB]),
        lambda: job_page(JOB),
        lambda: gpu_table([NODE]),
        lambda: event_text(EVENT),
        lambda: frame(SEEN, 100),
        lambda: HOSTILE,
    ],
)
def test_no_table_hands_on_what_a_terminal_would_obey(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown.stdout_console().print(made())
    said = capsys.readouterr().out
    assert "evil" in said.replace("\n", "")
    assert harmless(said)


def test_markup_in_what_users_wrote_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    shown.stdout_console().print("[link=file:///etc/passwd]click[/link]")
    assert capsys.readouterr().out == "[link=file:///etc/passwd]click[/link]\n"


def test_errors_and_hints_are_harmless_too(capsys: pytest.CaptureFixture[str]) -> None:
    shown.say("error", f"no job is called {HOSTILE}")
    said = capsys.readouterr().err
    assert "evil" in said
    assert harmless(said)


def test_an_event_is_one_line_whatever_a_job_said_last(capsys: pytest.CaptureFixture[str]) -> None:
    shown.stdout_console().print(event_text(EVENT), soft_wrap=True)
    assert capsys.readouterr().out.count("\n") == 1


def test_a_log_on_a_terminal_is_harmless_even_where_a_sequence_is_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"one\r\ntwo\tx\r{HOSTILE}\nümlaut\n".encode()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    shown.print_log([data[cut : cut + 1] for cut in range(len(data))])
    assert harmless(terminal.said)
    assert "two\tx\n" in terminal.said
    assert "ümlaut\n" in terminal.said


def test_a_log_is_as_it_is_in_a_pipe_and_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"{HOSTILE}\r\n".encode() + b"\xff\xfe"
    terminal = Terminal()
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    shown.print_log([data], raw=True)
    assert terminal.bytes.getvalue() == data
    monkeypatch.setattr(sys, "stdout", pipe)
    shown.print_log([data])
    assert pipe.buffer.getvalue() == data  # type: ignore[attr-defined]


def test_the_controllers_own_log_is_harmless_and_a_message_is_one_line() -> None:
    record = logging.LogRecord("fairlead", logging.INFO, "", 0, "job 1 parked: %s", (f"{HOSTILE}\nforged",), None)
    said = _Line(_LINE).format(record)
    assert harmless(said)
    assert "\n" not in said


@given(st.text())
def test_nothing_gets_through(text: str) -> None:
    assert harmless(printable_lines(text))
    assert not any(one in "\n\t" for one in printable(text))
    assert len(printable(text)) == len(text)


def test_what_stands_for_itself_stays() -> None:
    for text in ("ümlaut", "日本語", "naïve café", "🚀", "a\u00a0b", "é"):
        assert printable(text) == text


def test_long_text_costs_little() -> None:
    began_s = time.process_time()
    printable_lines("x\x1b[0m\n" * 200_000)
    assert time.process_time() - began_s < 2.0

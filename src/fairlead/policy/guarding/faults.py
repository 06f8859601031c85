"""What an Xid or a line of the MPS logs asks for.

Xids: the "immediate action" of NVIDIA's catalogue for Ampere and newer
(docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), read for a GPU that MPS clients share. What is not
listed takes the GPU out of the pool: offline work can wait for a person, the service can't take the risk.

MPS logs: wordings differ between drivers, so patterns are short; each names where it was seen. A line that nothing
matches is harmless unless it speaks of failing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Remedy(StrEnum):
    """From the mildest to the strongest."""

    HARMLESS = "harmless"
    """Nothing to do."""
    CHECK_MPS = "check-mps"
    """A client's own fault: it ends, and with it perhaps every client of the MPS server. Ask for the server's status,
    and restart it unless it is ACTIVE.
    """
    RESTART_MPS = "restart-mps"
    """Evict the offline job and restart the MPS server."""
    DISABLE = "disable"
    """Out of the pool, and the operator is told (`Sample.fatal_fault`)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is known, or the default for one that isn't."""

    remedy: Remedy
    what: str
    source: str


_CATALOGUE = "NVIDIA Xid catalogue"


def _xid(remedy: Remedy, what: str, action: str) -> Fault:
    return Fault(remedy, what, f"{_CATALOGUE}: {action}")


XIDS: dict[int, Fault] = {
    # Clients. On a shared GPU all clients of the server can go down with the one at fault (measured on an H200 for an
    # illegal address), hence the look at the server.
    8: _xid(Remedy.CHECK_MPS, "GPU stopped processing", "RESTART_APP"),
    11: _xid(Remedy.CHECK_MPS, "invalid push buffer", "RESTART_APP"),
    13: _xid(Remedy.CHECK_MPS, "graphics engine exception, as from an out-of-bounds access", "RESTART_APP"),
    25: _xid(Remedy.CHECK_MPS, "illegal notify", "RESTART_APP"),
    31: _xid(Remedy.CHECK_MPS, "GPU memory page fault, as from an illegal address", "RESTART_APP"),
    32: _xid(Remedy.CHECK_MPS, "corrupted push buffer", "RESTART_APP"),
    43: _xid(Remedy.CHECK_MPS, "a client's channel was reset", "IGNORE; the client has ended all the same"),
    45: _xid(
        Remedy.CHECK_MPS, "channels removed after a kill or another fault", "WORKFLOW_XID_45: follow the other Xid"
    ),
    69: _xid(Remedy.CHECK_MPS, "graphics engine class error", "RESTART_APP"),
    80: _xid(Remedy.CHECK_MPS, "push buffer checksum mismatch", "RESTART_APP"),
    94: _xid(Remedy.CHECK_MPS, "memory error, contained in a client", "RESTART_APP"),
    **{n: _xid(Remedy.CHECK_MPS, "copy engine error", "RESTART_APP") for n in (39, 40, 41, 70, 71, 72, 75, 76, 77, 85)},
    # Information.
    14: _xid(Remedy.HARMLESS, "test error", "IGNORE"),
    63: _xid(Remedy.HARMLESS, "a memory row will be remapped at the next reset", "IGNORE"),
    92: _xid(Remedy.HARMLESS, "many single-bit errors, all corrected", "IGNORE, then contact support"),
    106: _xid(Remedy.HARMLESS, "test message", "IGNORE"),
    107: _xid(Remedy.HARMLESS, "test message", "IGNORE"),
    # The GPU.
    46: _xid(Remedy.DISABLE, "GPU timeout", "RESET_GPU"),
    48: _xid(Remedy.DISABLE, "double-bit memory error", "WORKFLOW_XID_48: reset or reboot"),
    54: _xid(Remedy.DISABLE, "power cable not connected", "CHECK_MECHANICALS"),
    62: _xid(Remedy.DISABLE, "internal micro-controller halt", "RESET_GPU"),
    64: _xid(Remedy.DISABLE, "a memory row could not be remapped", "RESET_GPU"),
    74: _xid(Remedy.DISABLE, "NVLink error", "WORKFLOW_NVLINK_ERR: reset or reboot"),
    79: _xid(Remedy.DISABLE, "GPU has fallen off the bus", "RESTART_BM"),
    95: _xid(Remedy.DISABLE, "memory error, not contained", "RESET_GPU"),
    109: _xid(Remedy.DISABLE, "context switch timeout", "RESET_GPU"),
    110: _xid(Remedy.DISABLE, "security fault", "RESET_GPU"),
    119: _xid(Remedy.DISABLE, "GSP timeout", "RESET_GPU"),
    120: _xid(Remedy.DISABLE, "GSP error", "RESET_GPU"),
    136: _xid(Remedy.DISABLE, "NVLink training failed", "RESET_GPU"),
    140: _xid(Remedy.DISABLE, "memory error that was not recovered from", "RESET_GPU"),
    143: _xid(Remedy.DISABLE, "GPU initialisation failed", "RESET_GPU"),
    154: _xid(Remedy.DISABLE, "the driver asks for a recovery action", "XID_154; harmless where the action is None"),
    156: _xid(Remedy.DISABLE, "a resource is retired", "RESET_GPU"),
    158: _xid(Remedy.DISABLE, "fatal timeout", "RESET_GPU"),
}


def classify_xid(number: int) -> Fault:
    """What an Xid asks for."""
    return XIDS.get(number) or Fault(Remedy.DISABLE, f"Xid {number}, not known here", "default")


_MPS_DOCS = "NVIDIA MPS documentation"
_PLUGIN = "github.com/NVIDIA/k8s-device-plugin/issues"

MPS_LINES: tuple[tuple[re.Pattern[str], Fault], ...] = tuple(
    (re.compile(pattern), Fault(remedy, what, source))
    for pattern, remedy, what, source in (
        # The first that matches counts, so what is worst comes first.
        (
            r"MPS is only supported",
            Remedy.DISABLE,
            "MPS does not run on this GPU or platform",
            f"{_MPS_DOCS}, server log",
        ),
        (
            r"(?i)encountered a fatal exception",
            Remedy.RESTART_MPS,
            "the server is shutting down after a fatal fault",
            f"control log in {_PLUGIN}/685",
        ),
        (
            r"Server \d+ exited with status (?!0\b)",
            Remedy.RESTART_MPS,
            "the server died",
            f"control logs in {_PLUGIN}/685 and {_PLUGIN}/1614",
        ),
        (
            r"(?i)\bfailed to start\b",
            Remedy.RESTART_MPS,
            "the server could not start",
            f"{_MPS_DOCS}, server log; {_PLUGIN}/685",
        ),
        (
            r"(?i)fatal GPU error",
            Remedy.RESTART_MPS,
            "a client's fatal fault, which reaches the others",
            "server log of driver 580 on an H200, after an illegal address and after SIGKILL to a busy client",
        ),
        (
            r"(?i)(?:will|to) be torn down|sticky error set",
            Remedy.RESTART_MPS,
            "what the server says after a fatal fault",
            "the same log",
        ),
        (
            r"\bFAULT\b",
            Remedy.RESTART_MPS,
            "the server refuses clients until all that the fault reached have exited",
            f"{_MPS_DOCS}, error containment: server status ACTIVE to FAULT",
        ),
        (
            r"\bServer \d+ exited with status 0\b",
            Remedy.HARMLESS,
            "the server ended in order",
            f"control log, as in {_PLUGIN}/685",
        ),
        (
            r"Receive command failed, assuming client exit",
            Remedy.HARMLESS,
            "a client has exited",
            "github.com/NVIDIA/nvidia-container-toolkit/issues/277, github.com/openmm/openmm/issues/3873",
        ),
        (
            r"failed to rec\w+ command with status \d+, assuming client .* exit",
            Remedy.HARMLESS,
            "a client has exited",
            "server log of driver 580 on an H200, at every end of a client",
        ),
        (
            r"User did not send valid credentials",
            Remedy.HARMLESS,
            "part of every connection",
            f"control log in {_PLUGIN}/679",
        ),
        (
            r"Server is not ready, push client to pending list",
            Remedy.HARMLESS,
            "a client waits for the server's start",
            f"control log in {_PLUGIN}/679",
        ),
    )
)

_SPEAKS_OF_FAILING = re.compile(
    r"(?i)\b(?:error|fail(?:ed|ure)?|fault(?:ed)?|fatal|exception|abort(?:ed)?|crash(?:ed)?)\b"
)
_KERNEL_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)")
_RECOVERY_TO = re.compile(r"recovery action changed from .*? to \S+ \(([^)]*)\)")
_NOTHING = Fault(Remedy.HARMLESS, "an ordinary line", "default")
_SUSPECT = Fault(Remedy.RESTART_MPS, "a line that speaks of failing, not known here", "default")


def xid_of(line: str) -> int | None:
    """The Xid that a line of the kernel's log tells of."""
    found = _KERNEL_XID.search(line)
    return int(found[1]) if found else None


def classify_line(line: str) -> Fault:
    """What a line asks for: of the MPS control's or server's log, or an Xid line of the kernel's."""
    xid = xid_of(line)
    if xid is not None:
        action = _RECOVERY_TO.search(line) if xid == 154 else None
        if action and action[1].strip().lower() == "none":
            return _xid(Remedy.HARMLESS, "the driver asks for no recovery action any more", "XID_154")
        return classify_xid(xid)
    for pattern, fault in MPS_LINES:
        if pattern.search(line):
            return fault
    return _SUSPECT if _SPEAKS_OF_FAILING.search(line) else _NOTHING

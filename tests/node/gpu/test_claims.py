"""What one process holds and another is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from fairlead.errors import InputError
from fairlead.node.gpu import claims
from fairlead.node.gpu.claims import folder_holder, hold_folder

HOLD = """
import sys, time
from fairlead.node.gpu import claims
with claims.held(sys.argv[3:]):
    print("up", flush=True)
    time.sleep(60)
"""


def test_gpus_are_held_by_one_process_and_free_when_it_is_killed() -> None:
    mine, both = f"GPU-{uuid.uuid4()}", [f"GPU-{uuid.uuid4()}", f"GPU-{uuid.uuid4()}"]
    line = [sys.executable, "-c", HOLD, "--folder", "/homes/first/node-0", *both]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"up\n"
            named = f"process {other.pid} .*in /homes/first/node-0"
            with pytest.raises(InputError, match=named) as refused, claims.held([mine, both[1]]):
                pass
            assert both[1] in refused.value.message
        finally:
            other.send_signal(signal.SIGKILL)
            other.wait()
    with claims.held([mine, *both]):  # what the refused one had claimed before it was refused is free, too
        pass


def test_a_folder_has_one_holder_whatever_is_deleted_in_it(tmp_path: Path) -> None:
    assert folder_holder(tmp_path) is None
    descriptors = hold_folder(tmp_path, "lock")
    (tmp_path / "lock").unlink()
    with pytest.raises(BlockingIOError):
        hold_folder(tmp_path, "lock")
    assert folder_holder(tmp_path) == os.getpid()
    for descriptor in descriptors:
        os.close(descriptor)
    assert folder_holder(tmp_path) is None

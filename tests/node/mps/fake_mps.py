"""A stand-in for NVIDIA's MPS control program: daemon, state, faults and hangs, without a GPU.

The daemon only lives; commands read and change `state.json` in the pipe folder. A test plays the world with `change`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_CONTROL = """#!{python}
import json, os, signal, subprocess, sys, time
from pathlib import Path
pipe, log = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"]), Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])
pid_file, state_file = pipe / "nvidia-cuda-mps-control.pid", pipe / "state.json"
here = Path(sys.argv[0]).parent

def say(line):
    with (log / "control.log").open("a") as file:
        file.write(line + "\\n")

if "-d" in sys.argv:
    if (here / "broken").exists():
        print("MPS: an internal error")
        sys.exit(1)
    if (here / "stuck").exists():
        time.sleep(600)
    if os.fork():
        sys.exit(0)
    os.setsid()
    state_file.write_text(json.dumps({{"servers": {{}}, "options": sys.argv[1:]}}))
    say("Start " + os.environ["CUDA_VISIBLE_DEVICES"])
    time.sleep(0.1)
    pid_file.write_text(str(os.getpid()))
    while True:
        time.sleep(600)

try:
    daemon = int(pid_file.read_text())
    os.kill(daemon, 0)
except (OSError, ValueError):
    print("Cannot find MPS control daemon process")
    sys.exit(1)
if (pipe / "hang").exists():
    time.sleep(600)
for line in sys.stdin:
    words, state = line.split(), json.loads(state_file.read_text())
    servers = state["servers"]
    say("Command " + line.strip())
    if words[0] == "get_server_list":
        print(*servers, sep="\\n")
    elif words[0] == "get_server_status":
        print(servers[words[1]]["state"])
    elif words[0] == "get_client_list":
        print(*servers[words[1]]["clients"], sep="\\n")
    elif words[0] == "terminate_client":
        servers[words[1]]["clients"].remove(int(words[2]))
        state_file.write_text(json.dumps(state))
        print(0)
    elif words[0] == "quit":
        for pid in [*servers, daemon]:
            os.kill(int(pid), signal.SIGKILL)
        pid_file.unlink()
    elif words[0] == "start_server":
        server = subprocess.Popen([here / "nvidia-cuda-mps-server"], stdout=subprocess.DEVNULL, start_new_session=True)
        servers[str(server.pid)] = {{"state": "ACTIVE", "clients": []}}
        state_file.write_text(json.dumps(state))
        print(server.pid)
    else:
        print("unknown command")
        sys.exit(1)
"""
_SERVER = "#!{python}\nimport time\ntime.sleep(600)\n"


def install(folder: Path) -> Path:
    """Write the programs; the one to call."""
    folder.mkdir(exist_ok=True)
    for name, text in (("nvidia-cuda-mps-control", _CONTROL), ("nvidia-cuda-mps-server", _SERVER)):
        (folder / name).write_text(text.format(python=sys.executable))
        (folder / name).chmod(0o755)
    return folder / "nvidia-cuda-mps-control"


def change(pipe: Path, server: int, **values: Any) -> None:
    """A server's state or clients, as if the world had changed it."""
    state = json.loads((pipe / "state.json").read_text())
    state["servers"][str(server)] |= values
    (pipe / "state.json").write_text(json.dumps(state))

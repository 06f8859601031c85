"""A process that has everything loaded and forks controllers: `python -m tests.live.fork_server HOME A=B ...`.

One line on its input makes one controller, whose number it prints. A fresh interpreter would take a second of two cores
for each of hundreds of them; what is killed is a whole process all the same. Each reads the folder's fairlead.toml.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

import fairlead.live.api.app
import fairlead.live.api.server  # noqa: F401
from fairlead.live import daemon
from fairlead.live.config import find_file, load
from fairlead.live.home import Home


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that were killed
    home = Home(Path(sys.argv[1]))
    options = dict(word.split("=", 1) for word in sys.argv[2:])
    values = {name: _value(text) for name, text in options.items()}
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                config = load(find_file(None, home.path), {}, values)
                daemon.serve(home, config, on_ready=lambda *_: None, log_to_stderr=False)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(pid, flush=True)


def _value(text: str) -> object:
    return int(text) if text.isdigit() else text


if __name__ == "__main__":
    main()

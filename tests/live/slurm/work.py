"""A job that counts epochs: `work.py FOLDER EPOCHS EPOCH_S`. It goes on where its last run stopped.

Each process notes, over and over, since when it runs and until when it was seen: two that overlap ran twice at a time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from fairlead import job

folder, epochs, epoch_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
number, rank = int(os.environ["FAIRLEAD_JOB_ID"]), int(os.environ.get("NODE_RANK", "0"))
count = folder / f"{number}.{rank}.epochs"
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
began_s = time.clock_gettime(time.CLOCK_BOOTTIME)
me = folder / f"{number}.{rank}.{os.getpid()}.{began_s}.runs"


def note() -> None:
    seen = {"job": number, "rank": rank, "began_s": began_s, "seen_s": time.clock_gettime(time.CLOCK_BOOTTIME)}
    seen["gpus"] = os.environ["FAIRLEAD_GPUS"].split(",")
    part = me.with_suffix(".part")
    part.write_text(json.dumps(seen) + "\n")
    part.replace(me)


done = int(count.read_text()) if count.exists() else 0
while done < epochs and not stopping:
    until_s = time.monotonic() + epoch_s
    while time.monotonic() < until_s and not stopping:
        note()
        time.sleep(0.05)
    if stopping:
        break
    done += 1
    part = count.with_suffix(".part")
    part.write_text(str(done))
    part.replace(count)
    job.epoch(done, of=epochs)
note()
sys.exit(0 if done >= epochs else 143)

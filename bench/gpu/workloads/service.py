"""An inference service on a Unix socket: one request after the other, as they come.

It never sleeps while it waits, as services do whose latency matters: a core that wakes up is slow for a while.

A request is 16 bytes, its number and the moment that the client sent it; the answer is the number. Latencies, from
that moment to the answer, are reported to the node agent where FAIRLEAD_LATENCY says where.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import struct
import time

import torch
import torch.fx.experimental.optimization
import torchvision

REQUEST = struct.Struct("<qd")


def receive(connection: socket.socket) -> bytes:
    """One request; empty when the client has gone."""
    found = b""
    while len(found) < REQUEST.size:
        try:
            part = connection.recv(REQUEST.size - len(found), socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        if not part:
            return b""
        found += part
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()

    model = torchvision.models.get_model(options.model, weights=None).cuda().half().eval()
    model = torch.fx.experimental.optimization.fuse(model).to(memory_format=torch.channels_last)
    image = torch.randn(options.batch, 3, 224, 224).half().to(memory_format=torch.channels_last).pin_memory()

    def infer() -> None:
        with torch.inference_mode():
            model(image.to("cuda", non_blocking=True)).argmax(1).cpu()

    for _ in range(50):
        infer()
    reporter = None
    if os.environ.get("FAIRLEAD_LATENCY"):
        from fairlead.job.service import Reporter

        reporter = Reporter.from_environment()
    if os.path.exists(options.socket):
        os.unlink(options.socket)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(options.socket)
    listener.listen(4)
    gc.collect()
    gc.disable()
    while True:
        connection, _ = listener.accept()
        with connection:
            while request := receive(connection):
                number, sent_s = REQUEST.unpack(request)
                infer()
                connection.sendall(REQUEST.pack(number, sent_s))
                if reporter is not None:
                    reporter.report(time.monotonic() - sent_s)


if __name__ == "__main__":
    main()

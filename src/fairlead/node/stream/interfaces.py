"""Which network interface an address belongs to."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct


def interface_of(address: str) -> str:
    """The network interface with this address; empty where none has it, or it is the machine's own."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                found = fcntl.ioctl(probe.fileno(), 0x8915, asked)  # SIOCGIFADDR
                if socket.inet_ntoa(found[20:24]) == address:
                    return name
    return ""

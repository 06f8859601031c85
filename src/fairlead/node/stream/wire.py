"""Messages on a connection: JSON with its length before it, each numbered, so that none counts twice.

After the greeting, numbers begin at one that the controller draws for this connection alone, and rise by one in each
direction: what was recorded, from here or elsewhere, and is sent again has the wrong number, and ends the connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import Mapping
from typing import Any

from fairlead.errors import FairleadError

PROTOCOL = 1
"""Of what is said on the stream. A controller answers no agent that speaks another one."""
MOST_BYTES = 16 << 20
_LENGTH = 4

Message = dict[str, Any]


class WireError(FairleadError):
    """The other side said what it may not, or is gone."""


class Wire:
    """One connection. Messages may be sent from any task of its loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._next_in: int | None = None
        self._next_out: int | None = None
        self.bytes_in = self.bytes_out = 0

    def number(self, first: int) -> None:
        """From now on messages are numbered, from this one on."""
        self._next_in = self._next_out = first

    @property
    def certificate(self) -> bytes:
        """The other side's, as it came."""
        found: ssl.SSLObject | None = self._writer.get_extra_info("ssl_object")
        return (found.getpeercert(binary_form=True) if found is not None else None) or b""

    @property
    def peer(self) -> str:
        """The address of the other side."""
        found = self._writer.get_extra_info("peername")
        return str(found[0]) if found else ""

    @property
    def own_address(self) -> str:
        """By which the other side is reached from here."""
        found = self._writer.get_extra_info("sockname")
        return str(found[0]) if found else ""

    def send(self, message: Mapping[str, Any]) -> None:
        """It goes out as soon as it can; `drained` waits for that."""
        if self._next_out is not None:
            message = {"n": self._next_out, **message}
            self._next_out += 1
        data = json.dumps(message, separators=(",", ":")).encode()
        self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)
        self.bytes_out += len(data) + _LENGTH

    async def drained(self) -> None:
        """Not too much is waiting to go out."""
        await self._writer.drain()

    async def receive(self, most: int = MOST_BYTES) -> Message:
        """The next message; an error where it is not the next one, or no message at all."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if length > most:
                raise WireError(f"a message of {length} bytes, where {most} are allowed")
            found = json.loads(await self._reader.readexactly(length))
        except (OSError, EOFError, ValueError, RecursionError, ssl.SSLError) as error:
            raise WireError(f"the connection ended: {error or type(error).__name__}") from None
        self.bytes_in += length + _LENGTH
        if not isinstance(found, dict):
            raise WireError("a message that is no object")
        if self._next_in is not None:
            if found.pop("n", None) != self._next_in:
                raise WireError("a message out of turn, as if it were sent again")
            self._next_in += 1
        return found

    def close(self) -> None:
        """At once, with what is waiting to go out."""
        transport = self._writer.transport
        if transport is not None:
            transport.abort()


def fingerprint(certificate: bytes) -> str:
    """What a certificate is known by: the SHA-256 of its DER bytes, in hexadecimal."""
    return hashlib.sha256(certificate).hexdigest()


def client_context() -> ssl.SSLContext:
    """For who knows the certificate by its fingerprint, which says more than any name or authority."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made

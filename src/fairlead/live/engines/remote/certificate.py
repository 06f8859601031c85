"""The certificate by which agents know the controller: made once, kept in the home folder, known by its fingerprint.

`openssl` makes it: it is there wherever Python has TLS, and only the controller's machine needs it. A library for this
one call would be the largest dependency of all.
"""

from __future__ import annotations

import os
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import InputError, RunError
from fairlead.node.stream.wire import fingerprint

_DAYS = 36500
"""It is pinned, not believed: who wants another one replaces it, and every agent with it."""
_MAKE_S = 60.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files of a certificate and its key."""

    cert: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """What agents know it by."""
        return fingerprint(ssl.PEM_cert_to_DER_cert(self.cert.read_text(encoding="ascii")))

    def context(self) -> ssl.SSLContext:
        """The TLS settings for the server's end."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        # No tickets: a connection that was recorded cannot be taken up again.
        made.num_tickets = 0
        try:
            made.load_cert_chain(self.cert, self.key)
        except OSError as error:
            hint = f"delete both, and join all nodes again: {self.cert.parent}"
            raise InputError(f"{self.cert} and {self.key} cannot be used: {error}", hint=hint) from None
        return made


def certificate_in(folder: Path) -> Certificate:
    """The one that is there, or a new one."""
    found = Certificate(folder / "agents.crt", folder / "agents.key")
    if not (found.cert.exists() and found.key.exists()):
        _make(found)
    return found


def _make(wanted: Certificate) -> None:
    cert, key = (path.with_name(f".{path.name}") for path in (wanted.cert, wanted.key))
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch"]
    line += ["-subj", "/CN=fairlead controller", "-days", str(_DAYS), "-keyout", str(key), "-out", str(cert)]
    os.close(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_MAKE_S, check=False
        )
    except FileNotFoundError:
        hint = f"install openssl, or put a certificate and its key there: {wanted.cert}, {wanted.key}"
        raise InputError("no openssl here, which makes the certificate that agents know us by", hint=hint) from None
    except subprocess.TimeoutExpired:
        raise RunError(f"openssl made no certificate within {_MAKE_S:g} s") from None
    if done.returncode != 0:
        raise RunError(f"openssl makes no certificate: {done.stderr.strip()[-300:]}")
    key.replace(wanted.key)  # a certificate is there only if its key is
    cert.replace(wanted.cert)

"""The shim: a C library preloaded into offline jobs that keeps them within their memory quota and launch rate.

The C sources beside this file say what it does and how (`shim.h` is the place to begin). Here it is built, with the
system's C compiler and without the CUDA toolkit, into a cache folder whose name follows from the sources, so that it is
built once per version; and the environment that switches it on for a job is put together.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairlead.errors import FairleadError

FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-foptimize-sibling-calls",
    "-Wl,-Bsymbolic",
    "-Wl,-z,defs",
)
LIBRARIES = ("-lpthread", "-ldl")
LIBRARY_NAME = "libfairlead_shim.so"


class ShimUnavailableError(FairleadError):
    """The shim can't be built here; sharing works without it, but without its protection."""


def sources() -> list[Path]:
    """The C files and headers, in a fixed order."""
    here = Path(__file__).parent
    return sorted([*here.glob("*.c"), *here.glob("*.h")])


def find_compiler() -> str | None:
    """The C compiler: `$CC` if set, else cc, gcc or clang, whichever is found first; None if there is none."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def cache_folder() -> Path:
    """Where built libraries are kept: `$FAIRLEAD_CACHE`, else the user's cache folder."""
    given = os.environ.get("FAIRLEAD_CACHE")
    if given:
        return Path(given) / "shim"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fairlead" / "shim"


def build(folder: Path | None = None, *, extra_flags: Sequence[str] = ()) -> Path:
    """The built library; compiled on the first call for these sources, compiler and flags, found again after that."""
    compiler = find_compiler()
    if compiler is None:
        raise ShimUnavailableError(
            "the shim can't be built: no C compiler found (looked for $CC, cc, gcc, clang)",
            hint="install one, for example gcc and libc6-dev; without the shim offline jobs have no memory quota, "
            "no launch rate and no safe exit",
        )
    flags = [*FLAGS, *extra_flags]
    target = (folder or cache_folder()) / _fingerprint(compiler, flags) / LIBRARY_NAME
    if not target.is_file():
        _compile(compiler, flags, target)
    return target


def environment(
    library: Path,
    *,
    page: Path | None = None,
    usage: Path | None = None,
    quota_bytes: int | Mapping[str, int] | None = None,
    log: Path | None = None,
    preload: str | None = None,
) -> dict[str, str]:
    """The variables that switch the shim on for a job.

    `quota_bytes` is one number for every GPU, or one per GPU by UUID. `preload` is what LD_PRELOAD holds already: the
    shim goes in front of it.
    """
    variables = {"LD_PRELOAD": f"{library}:{preload}" if preload else str(library)}
    if page is not None:
        variables["FAIRLEAD_SHIM_PAGE"] = str(page)
    if usage is not None:
        variables["FAIRLEAD_SHIM_USAGE"] = str(usage)
    if isinstance(quota_bytes, Mapping):
        variables["FAIRLEAD_SHIM_QUOTA"] = ",".join(f"{uuid}={amount}" for uuid, amount in quota_bytes.items())
    elif quota_bytes is not None:
        variables["FAIRLEAD_SHIM_QUOTA"] = str(quota_bytes)
    if log is not None:
        variables["FAIRLEAD_SHIM_LOG"] = str(log)
    return variables


def observing_environment(library: Path, busy: Path) -> dict[str, str]:
    """The variables by which a service is only observed: its busy page tells when it is at work."""
    return {"LD_PRELOAD": str(library), "FAIRLEAD_SHIM_BUSY": str(busy)}


def _fingerprint(compiler: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    digest.update("\0".join([compiler, *flags]).encode() + version)
    return digest.hexdigest()[:16]


def _compile(compiler: str, flags: Sequence[str], target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: a second process may be building, and a job may be starting, at the same time.
        handle, scratch = tempfile.mkstemp(dir=target.parent, suffix=".so")
    except OSError as problem:
        raise ShimUnavailableError(
            f"the shim can't be built: {target.parent} can't be written: {problem.strerror}",
            hint="set FAIRLEAD_CACHE to a folder that can",
        ) from problem
    os.close(handle)
    files = [str(path) for path in sources() if path.suffix == ".c"]
    command = [compiler, *flags, "-o", scratch, *files, *LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        os.unlink(scratch)
        first = (done.stderr.strip() or "no message").splitlines()[:5]
        raise ShimUnavailableError(
            f"the shim can't be built: {compiler} exited with {done.returncode}:\n" + "\n".join(first),
            hint="the C library's headers are needed too (libc6-dev, glibc-devel)",
        )
    os.chmod(scratch, 0o755)
    os.replace(scratch, target)

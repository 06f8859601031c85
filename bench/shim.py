"""What the shim costs a launch and an allocation, on the stub driver that the tests build.

The stub's own launch takes a few nanoseconds, so nearly all of the difference is the shim. Bounds: 1 microsecond a
launch at full rate and under a limited one that is not reached. A real launch takes 2 to 5 microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from fairlead.node import shim
from fairlead.node.guard.busy_page import BusyPage
from fairlead.node.guard.control_page import ControlPage, GpuOrder

STUB = Path(__file__).resolve().parents[1] / "tests" / "node" / "stub"
BOUND_NS = 1000.0


def build(folder: Path) -> tuple[Path, Path]:
    """The stub's client and the shim."""
    compiler = shim.find_compiler()
    if compiler is None:
        sys.exit("no C compiler: nothing to measure")
    driver = [compiler, "-O2", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]
    driver += [f"-I{Path(shim.__file__).parent}", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*driver, str(STUB / "libcuda.c"), str(STUB / "copies.c"), "-lpthread"], check=True)
    libraries = [f"-L{folder}", "-l:libcuda.so.1", "-lpthread"]
    subprocess.run([compiler, "-O2", "-o", str(folder / "client"), str(STUB / "client.c"), *libraries], check=True)
    return folder / "client", shim.build(folder / "shim")


def ns_each(client: Path, what: str, count: int, variables: dict[str, str]) -> float:
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(client.parent), **variables}
    done = subprocess.run([str(client), what, str(count)], env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def measure(folder: Path, page: ControlPage) -> list[dict[str, object]]:
    client, library = build(folder)
    shared = shim.environment(library, page=page.path, usage=folder / "usage", quota_bytes=1 << 30)
    alone = shim.environment(library)
    rows: list[dict[str, object]] = []

    def row(name: str, what: str, count: int, variables: dict[str, str], rate_frac: float = 1.0) -> None:
        page.write(GpuOrder(rate_frac=rate_frac))
        bare_ns, with_ns = ns_each(client, what, count, {}), ns_each(client, what, count, variables)
        rows.append({"what": name, "bare_ns": bare_ns, "with_ns": with_ns, "added_ns": with_ns - bare_ns})

    row("launch, no page", "cost", 3_000_000, alone)
    row("launch, page at full rate", "cost", 3_000_000, shared)
    row("launch, rate limited, not reached", "cost", 300_000, shared, 0.99)
    busy = BusyPage.create(folder / "service.busy")
    row("launch of a service, observed", "cost", 3_000_000, shim.observing_environment(library, busy.path))
    page.obey([busy.path], inflight_s=0.001)
    row("launch, beside an idle service", "cost", 3_000_000, shared)
    page.obey([])
    row("allocation and free, one process", "memory-cost", 100_000, alone)
    row("allocation and free, shared quota", "memory-cost", 100_000, shared)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ControlPage.create(Path(name) / "page") as page:
        stopping = threading.Event()

        def beat() -> None:
            while not stopping.wait(0.5):
                page.heartbeat()

        heart = threading.Thread(target=beat)
        heart.start()
        try:
            rows = measure(Path(name), page)
        finally:
            stopping.set()
            heart.join()
    for row in rows:
        print(
            f"{row['what']:36} {row['bare_ns']:8.1f} ns bare, {row['with_ns']:8.1f} ns with the shim: "
            f"{row['added_ns']:+8.1f} ns",
            file=sys.stderr,
        )
    if options.json:
        print(json.dumps(rows, indent=2))
    launches = [row for row in rows if str(row["what"]).startswith("launch")]
    sys.exit(any(float(str(row["added_ns"])) > BOUND_NS for row in launches))


if __name__ == "__main__":
    main()

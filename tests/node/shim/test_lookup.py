"""Every way to find a function of the driver leads to its hook, and to the hook of that very variant."""

from __future__ import annotations

import signal

import pytest

from tests.node.shim.conftest import Rig
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(
    "find",
    [
        "cuda.cuMemAlloc_v2",
        "ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(get_proc('cuMemAlloc', 12000))",
        "ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(get_proc('cuMemAlloc', 12000, second=False))",
    ],
    ids=["dlsym", "cuGetProcAddress_v2", "cuGetProcAddress"],
)
def test_an_allocation_is_counted_however_the_call_was_found(rig: Rig, find: str) -> None:
    program = f"""
    start()
    alloc_by = {find}
    p = ctypes.c_ulonglong()
    print(alloc_by(ctypes.byref(p), ctypes.c_size_t(64 * MIB)), alloc_by(ctypes.byref(p), ctypes.c_size_t(64 * MIB)))
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 << 20) == "0 2"
    assert rig.stats()["allocations"] == 1


def test_direct_links_are_hooked(rig: Rig) -> None:
    process = rig.start("hold", 200, FAIRLEAD_SHIM_QUOTA=100 << 20)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "2"


def test_variants_are_never_mixed_up(rig: Rig) -> None:
    program = """
    for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuGraphLaunch", "cuMemAllocAsync", "cuLaunchCooperativeKernel"):
        legacy, own = get_proc(name, 12000, LEGACY), get_proc(name, 12000, PER_THREAD)
        assert legacy != own, name
        assert legacy == get_proc(name, 12000) == get_proc(name, 12000, LEGACY, second=False) == address(name), name
        assert own == address(name + "_ptsz") == get_proc(name, 12000, PER_THREAD, second=False), name
    for name in ("cuMemAlloc", "cuMemFree", "cuDeviceTotalMem"):
        assert get_proc(name, 2000) == address(name) != get_proc(name, 3020) == address(name + "_v2"), name
    assert get_proc("cuGetProcAddress", 11030) == address("cuGetProcAddress")
    assert get_proc("cuGetProcAddress", 12000) == address("cuGetProcAddress_v2")
    with open("/proc/self/maps") as maps:
        spans = [l.split()[0].split("-") for l in maps if "libfairlead_shim" in l]
    for found in (get_proc("cuLaunchKernel", 12000, PER_THREAD), get_proc("cuGetProcAddress", 12000)):
        assert any(int(a, 16) <= found < int(b, 16) for a, b in spans)
    """
    rig.run(program)


def test_the_hook_of_a_variant_calls_that_variant(rig: Rig) -> None:
    program = """
    start()
    f, s = function(10), stream()
    kernel = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
    kernel(get_proc("cuLaunchKernel", 12000, PER_THREAD))(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    kernel(get_proc("cuLaunchKernel", 12000, LEGACY))(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    cuda.cuLaunchKernel_ptsz(f, 1, 1, 1, 1, 1, 1, 0, s, None, None)
    """
    rig.run(program)
    stats = rig.stats()
    assert (stats["launch_ptsz"], stats["launch_legacy"]) == (2, 1)


def test_a_driver_whose_own_table_can_be_interposed_on_does_not_recurse(rig: Rig) -> None:
    program = """
    start()
    kernel = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
    print(kernel(get_proc("cuLaunchKernel", 12000, LEGACY))(function(1), 1, 1, 1, 1, 1, 1, 0, None, None, None))
    """
    assert rig.run(program, LD_LIBRARY_PATH=rig.built / "loose") == "0"
    assert rig.stats()["launch_legacy"] == 1


def test_an_unknown_variant_is_passed_on_and_told(rig: Rig) -> None:
    program = """
    start()
    print(get_proc("cuMemAlloc", 14000) == address("cuMemAlloc_v3"), get_proc("cuNothing", 14000))
    """
    assert rig.run(program) == "True 0"
    assert "cuMemAlloc, version 14000, flags 0: a variant that is not hooked" in rig.log()
    assert "cuNothing" not in rig.log()


def test_missing_symbols_are_missing_with_the_usual_error(rig: Rig) -> None:
    program = """
    try:
        cuda.cuNoSuchCall
    except AttributeError as error:
        print(error)
    """
    assert "undefined symbol: cuNoSuchCall" in rig.run(program)


def test_rtld_next_still_depends_on_who_asks(rig: Rig) -> None:
    program = """
    print(ctypes.CDLL(None).atol(b"41"))
    """
    preload = f"{rig.library}:{rig.built / 'libnext.so'}"
    assert rig.run(program, LD_PRELOAD=preload) == "42"


def test_a_process_without_cuda_is_left_alone(rig: Rig) -> None:
    program = """
    import ctypes, os, signal, threading, time
    try:
        ctypes.CDLL(None).cuInit
    except AttributeError as error:
        print("none" if "undefined symbol: cuInit" in str(error) else error)
    print("libcuda" in open("/proc/self/maps").read(), len(os.listdir("/proc/self/task")), flush=True)
    time.sleep(30)
    """
    plain = "\n".join(line.removeprefix("    ") for line in program.splitlines())
    usage = rig.folder / "usage"
    process = rig.start(_without_driver(plain), FAIRLEAD_SHIM_USAGE=usage, FAIRLEAD_SHIM_PAGE=rig.folder / "page")
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "none"
    assert process.stdout.readline().split() == ["False", "1"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_S) == -signal.SIGTERM
    assert not usage.exists()
    assert rig.log() == ""


def _without_driver(program: str) -> str:
    """The rig's programs begin by importing the driver; this one gets an empty one in its place."""
    return f"import sys\nos.execv(sys.executable, [sys.executable, '-c', {program!r}])\n"


def test_fork_gives_a_child_of_its_own(rig: Rig) -> None:
    program = """
    start()
    assert alloc(60)[0] == 0
    child = os.fork()
    if child == 0:
        signal.raise_signal(signal.SIGTERM)  # the child has no helper thread: it must still die of it
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), alloc(60)[0], alloc(30)[0])
    child = os.fork()
    if child == 0:
        start()  # the stub lets a child begin anew
        os._exit(10 * alloc(20)[0] + alloc(5)[0])
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    usage = rig.folder / "usage"
    out = rig.run(program, FAIRLEAD_SHIM_QUOTA=100 << 20, FAIRLEAD_SHIM_USAGE=usage).split()
    assert out == ["-15", "2", "0", "20"]

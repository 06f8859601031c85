"""The memory quota: every call that takes memory, every call that gives it back, and what the job is told."""

from __future__ import annotations

import signal

import pytest

from fairlead.node.guard.control_page import UsagePage
from tests.node.shim.conftest import UUID, Rig, eventually

MIB = 1 << 20
# An expression that takes 40 MiB and gives (result, key), and one that gives `key` back.
CALLS = {
    "cuMemAlloc_v2": ("p(cuda.cuMemAlloc_v2, size)", "cuda.cuMemFree_v2(key)"),
    "cuMemAlloc": ("p(cuda.cuMemAlloc, 40 * MIB)", "cuda.cuMemFree(ctypes.c_uint(key.value))"),
    "cuMemAllocManaged": ("p(cuda.cuMemAllocManaged, size, 1)", "cuda.cuMemFree_v2(key)"),
    "cuMemAllocPitch_v2": (
        "p(cuda.cuMemAllocPitch_v2, ctypes.byref(ctypes.c_size_t()), ctypes.c_size_t(40 * 1024 - 9), "
        "ctypes.c_size_t(1024), 4)",
        "cuda.cuMemFree_v2(key)",
    ),
    "cuMemAllocAsync": ("p(cuda.cuMemAllocAsync, size, None)", "cuda.cuMemFreeAsync(key, None)"),
    "cuMemAllocAsync_ptsz": ("p(cuda.cuMemAllocAsync_ptsz, size, None)", "cuda.cuMemFreeAsync_ptsz(key, None)"),
    "cuMemAllocFromPoolAsync": ("p(cuda.cuMemAllocFromPoolAsync, size, None, None)", "cuda.cuMemFreeAsync(key, None)"),
    "cuMemAllocFromPoolAsync_ptsz": (
        "p(cuda.cuMemAllocFromPoolAsync_ptsz, size, None, None)",
        "cuda.cuMemFreeAsync_ptsz(key, None)",
    ),
    "cuMemCreate": (
        "p(cuda.cuMemCreate, size, pack(ints=(1, 0, 1, 0)), ctypes.c_ulonglong(0))",
        "cuda.cuMemRelease(key)",
    ),
    "cuArrayCreate_v2": ("p(cuda.cuArrayCreate_v2, pack(1024, 2560, ints=(0x20, 4)))", "cuda.cuArrayDestroy(key)"),
    "cuArray3DCreate_v2": (
        "p(cuda.cuArray3DCreate_v2, pack(1024, 256, 10, ints=(0x20, 4, 0)))",
        "cuda.cuArrayDestroy(key)",
    ),
    "cuMipmappedArrayCreate": (
        "p(cuda.cuMipmappedArrayCreate, pack(1024, 2048, 0, ints=(0x20, 4, 0)), 3)",
        "cuda.cuMipmappedArrayDestroy(key)",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_stops_at_the_quota_and_gives_back(rig: Rig, call: str) -> None:
    take, give = CALLS[call]
    program = f"""
    start()
    size = ctypes.c_size_t(40 * MIB)
    def p(call, *arguments):
        out = ctypes.c_ulonglong()
        return call(ctypes.byref(out), *arguments), out
    results = []
    first, key = {take}
    second, other = {take}
    third, _ = {take}
    before = info()[0]
    freed = {give}
    fourth, _ = {take}
    print(first, second, third, freed, fourth, before < 100 - 2 * 39, info()[0] < 100 - 2 * 39)
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB) == "0 0 2 0 0 True True"


def test_past_the_quota_the_driver_is_not_asked(rig: Rig) -> None:
    usage = rig.folder / "usage"
    program = """
    start()
    print([alloc(1000)[0] for _ in range(5)])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=usage) == "[2, 2, 2, 2, 2]"
    assert rig.stats()["allocations"] == 0
    assert "refused" in rig.log()


def test_a_pitch_larger_than_expected_is_settled_afterwards(rig: Rig) -> None:
    program = """
    start()
    def pitched(height):
        out, pitch = ctypes.c_ulonglong(), ctypes.c_size_t()
        width = ctypes.c_size_t(512)
        return cuda.cuMemAllocPitch_v2(ctypes.byref(out), ctypes.byref(pitch), width, ctypes.c_size_t(height), 16)
    print(pitched(20 * 1024), info()[0], pitched(10 * 1024), info()[0], alloc(20)[0], alloc(1)[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB) == "0 20 2 20 0 2"
    assert rig.stats()["frees"] == 1  # the one that did not fit was taken back


def test_virtual_memory_counts_until_handle_and_mappings_are_gone(rig: Rig) -> None:
    program = """
    start()
    def create(mib):
        out = ctypes.c_ulonglong()
        prop = pack(ints=(1, 0, 1, 0))
        return cuda.cuMemCreate(ctypes.byref(out), ctypes.c_size_t(mib * MIB), prop, ctypes.c_ulonglong(0)), out
    u64, at = ctypes.c_ulonglong, 0x500000000000
    _, a = create(30)
    _, b = create(30)
    zero = ctypes.c_size_t(0)
    cuda.cuMemMap(u64(at), ctypes.c_size_t(30 * MIB), zero, a, u64(0))
    cuda.cuMemMap(u64(at + 30 * MIB), ctypes.c_size_t(30 * MIB), zero, b, u64(0))
    cuda.cuMemRelease(a), cuda.cuMemRelease(b)  # released while mapped, as libraries do
    left = [info()[0]]
    again = ctypes.c_ulonglong()
    cuda.cuMemRetainAllocationHandle(ctypes.byref(again), ctypes.c_void_p(at + 5 * MIB))
    cuda.cuMemUnmap(u64(at), ctypes.c_size_t(60 * MIB))  # both at once
    left.append(info()[0])
    cuda.cuMemRelease(again)
    left.append(info()[0])
    host = pack(ints=(1, 0, 3, 0))
    out = u64()
    assert cuda.cuMemCreate(ctypes.byref(out), ctypes.c_size_t(500 * MIB), host, u64(0)) == 0  # the host's memory
    print(left, info()[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB) == "[40, 70, 100] 100"


def test_the_job_is_told_its_quota(rig: Rig) -> None:
    program = """
    start()
    total, small = ctypes.c_size_t(), ctypes.c_uint()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0), cuda.cuDeviceTotalMem(ctypes.byref(small), 0)
    alloc(30)
    print(total.value // MIB, small.value // MIB, info())
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB) == "100 100 (70, 100)"
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=1 << 40).split()[0] == "16384"  # more than there is: what there is
    assert rig.run(program, STUB_STATS=rig.folder / "fresh") == f"16384 4095 ({16384 - 30}, 16384)"


def test_nvml_tells_the_quota_too(rig: Rig) -> None:
    program = """
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    def memory(call, *lead):
        out = (ctypes.c_ulonglong * 8)(*lead)
        assert call(None, out) == 0
        return [value // MIB for value in out]
    first = memory(nvml.nvmlDeviceGetMemoryInfo)[:3]  # before CUDA is in use
    start()
    alloc(30)
    print(first, memory(nvml.nvmlDeviceGetMemoryInfo)[:3], memory(nvml.nvmlDeviceGetMemoryInfo_v2, 2)[1:5])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB) == "[100, 100, 0] [100, 70, 30] [100, 0, 70, 30]"
    assert rig.run(program) == "[16384, 15360, 1024] [16384, 15360, 1024] [16384, 1, 15360, 1024]"


def test_a_destroyed_context_gives_its_memory_back(rig: Rig) -> None:
    program = """
    start()
    alloc(80)
    cuda.cuDevicePrimaryCtxReset_v2(0)
    start()
    print(alloc(80)[0], alloc(80)[0])
    cuda.cuDevicePrimaryCtxRelease_v2(0)
    start()
    print(alloc(80)[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB).split() == ["0", "2", "0"]


def test_threads_that_race_never_pass_the_quota(rig: Rig) -> None:
    usage = rig.folder / "usage"
    granted = int(rig.run("race", FAIRLEAD_SHIM_QUOTA=50 * MIB, FAIRLEAD_SHIM_USAGE=usage))
    assert granted == 50
    assert rig.stats()["allocated"] == 50 * MIB


def test_processes_of_a_job_share_the_quota_and_a_neighbour_is_untouched(rig: Rig) -> None:
    usage, other = rig.folder / "usage", rig.folder / "other"
    first = rig.start("hold", 60, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=usage)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "0"
    second = rig.start("hold", 60, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=usage)
    assert second.stdout is not None
    assert second.stdout.readline().strip() == "2"
    neighbour = rig.start("hold", 90, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=other)
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline().strip() == "0"
    page = UsagePage(usage)
    assert page.used_bytes() == {UUID: 60 * MIB}
    assert sorted((p.pid, p.out_of_memory) for p in page.processes()) == sorted([(first.pid, 0), (second.pid, 1)])
    assert UsagePage(other).used_bytes() == {UUID: 90 * MIB}


def test_what_a_killed_process_held_is_reclaimed(rig: Rig) -> None:
    usage = rig.folder / "usage"
    first = rig.start("hold", 60, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=usage)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "0"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert UsagePage(usage).used_bytes() == {}
    second = rig.start("hold", 90, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=usage)
    assert second.stdout is not None
    assert second.stdout.readline().strip() == "0"
    assert eventually(lambda: UsagePage(usage).used_bytes() == {UUID: 90 * MIB})


def test_gpus_are_told_apart_by_uuid_not_by_ordinal(rig: Rig) -> None:
    usage = rig.folder / "usage"
    quota = f"{UUID}={100 * MIB},{UUID[:-1]}1={50 * MIB}"
    first = rig.start("hold", 90, FAIRLEAD_SHIM_QUOTA=quota, FAIRLEAD_SHIM_USAGE=usage)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "0"
    program = """
    start()  # ordinal 0 again, another GPU
    print(alloc(45)[0], alloc(45)[0], info())
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=quota, FAIRLEAD_SHIM_USAGE=usage, STUB_UUID=1) == "0 2 (5, 50)"


def test_several_gpus_have_a_quota_each(rig: Rig) -> None:
    program = """
    start(0)
    print(alloc(80)[0], alloc(80)[0])
    start(1)
    print(alloc(150)[0], alloc(80)[0])
    """
    quota = f"{100 * MIB},{200 * MIB}"
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=quota, STUB_GPUS=2).split() == ["0", "2", "0", "2"]


def test_an_unusable_usage_page_leaves_the_quota_to_each_process(rig: Rig) -> None:
    program = """
    start()
    print(alloc(80)[0], alloc(80)[0])
    """
    usage = rig.folder / "absent" / "usage"
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=100 * MIB, FAIRLEAD_SHIM_USAGE=usage) == "0 2"
    assert "can't be used" in rig.log()


def test_a_quota_that_is_no_number_is_ignored_aloud(rig: Rig) -> None:
    program = """
    start()
    print(alloc(80)[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA="10GiB") == "0"
    assert "'10GiB' is no number of bytes" in rig.log()

"""Ways round the quota that a program has tried: each is closed inside the process, or fails."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from fairlead.node.guard.control_page import SLOTS, ControlPage, UsagePage
from tests.node.shim.conftest import UUID, Rig, eventually
from tests.patience import PATIENCE_S

MIB = 1 << 20
QUOTA = 100 * MIB
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from driver import *; start(); print(alloc(80)[0], alloc(80)[0])"
# How a program starts another one, with an environment that it has emptied of the shim.
WAYS = {
    "execve": "os.execve(words[0], words, clean)",
    "execv": "os.environ.clear(), os.environ.update(clean), os.execv(words[0], words)",
    "execvpe": "os.execvpe(words[0], words, clean)",
    "fork": "os.fork() or os.execve(words[0], words, clean)\nos.wait()",
    "subprocess": "subprocess.run(words, env=clean)",
    "posix_spawn": "os.waitpid(os.posix_spawn(words[0], words, clean), 0)",
    "posix_spawnp": "os.waitpid(os.posix_spawnp(words[0], words, clean), 0)",
    "system": "os.environ.clear(), os.environ.update(clean), os.system(shlex.join(words))",
    "shell": "subprocess.run(['sh', '-c', 'unset LD_PRELOAD FAIRLEAD_SHIM_QUOTA; exec ' + shlex.join(words)])",
    "env": "subprocess.run(['env', '-u', 'LD_PRELOAD', '-u', 'FAIRLEAD_SHIM_QUOTA', *words])",
    "env -i": "subprocess.run(['env', '-i', 'LD_LIBRARY_PATH=' + os.environ['LD_LIBRARY_PATH'], *words])",
    "libc": "libc = ctypes.CDLL(None)\nfor name in list(os.environ): libc.unsetenv(name.encode())\n"
    "libc.setenv(b'LD_LIBRARY_PATH', clean['LD_LIBRARY_PATH'].encode(), 1)\n"
    "libc.execl(words[0].encode(), words[0].encode(), *(w.encode() for w in words[1:]), None)",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_child_has_the_shim_whatever_was_done_to_the_environment(rig: Rig, way: str) -> None:
    body = "\n    ".join(WAYS[way].splitlines())
    program = f"""
    import shlex, subprocess
    words = [{sys.executable!r}, "-c", {CHILD!r}, os.environ["PYTHONPATH"]]
    clean = {{"LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]}}
    {body}
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=rig.folder / "usage") == "0 2"


def test_other_variables_and_preloads_of_a_child_are_its_own(rig: Rig) -> None:
    show = "import os; print(os.environ.get('MINE'), os.environ['LD_PRELOAD'])"
    program = f"""
    import subprocess
    env = {{"MINE": "yes", "LD_PRELOAD": "/lib/other.so", "LD_LIBRARY_PATH": os.environ["LD_LIBRARY_PATH"]}}
    subprocess.run([{sys.executable!r}, "-c", {show!r}], env=env, stderr=subprocess.DEVNULL)
    """
    assert rig.run(program) == f"yes {rig.library}:/lib/other.so"


def test_settings_changed_before_cuda_is_used_change_nothing(rig: Rig) -> None:
    program = """
    for name in [name for name in os.environ if name.startswith(("FAIRLEAD", "LD_PRE"))]:
        del os.environ[name]
    os.environ["FAIRLEAD_SHIM_QUOTA"] = str(1 << 40)
    start()
    print(alloc(80)[0], alloc(80)[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=rig.folder / "usage") == "0 2"


def test_a_page_that_the_job_wipes_is_not_what_it_is_judged_by(rig: Rig) -> None:
    usage = rig.folder / "usage"
    program = """
    start()
    first = alloc(80)[0]
    with open(os.environ["FAIRLEAD_SHIM_USAGE"], "r+b") as page:
        page.write(bytes(os.path.getsize(page.name)))
    print(first, alloc(80)[0], info()[0], flush=True)
    input()
    """
    environment = rig.environment(FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    words = [sys.executable, "-c", "from driver import *\nimport os\n" + "\n".join(x[4:] for x in program.splitlines())]
    process = subprocess.Popen(words, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    rig.started.append(process)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline().strip() == "0 2 20"
    page = UsagePage(usage)  # repaired: the job's other processes, and the agent, see what it holds
    assert eventually(lambda: "repaired" in rig.log())
    assert eventually(lambda: page.used_bytes() == {UUID: 80 * MIB})
    second = rig.start("hold", 60, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    assert second.stdout is not None
    assert second.stdout.readline().strip() == "2"
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0


def test_closing_every_descriptor_loses_nothing(rig: Rig) -> None:
    usage = rig.folder / "usage"
    program = """
    start()
    alloc(60)
    os.closerange(3, 4096)
    for _ in range(2):  # and closing another descriptor of the same file, which drops record locks
        os.close(os.open(os.environ["FAIRLEAD_SHIM_USAGE"], os.O_RDWR))
    print("closed", flush=True)
    signal.pause()
    """
    first = rig.start(program, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "closed"
    second = rig.start("hold", 60, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    assert second.stdout is not None
    assert second.stdout.readline().strip() == "2"
    assert UsagePage(usage).used_bytes() == {UUID: 60 * MIB}
    first.send_signal(signal.SIGKILL)
    first.wait()
    third = rig.start("hold", 60, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    assert third.stdout is not None
    assert third.stdout.readline().strip() == "0"


def test_a_pool_that_keeps_what_was_freed_is_charged_for_it(rig: Rig) -> None:
    program = """
    start()
    u64, pool = ctypes.c_ulonglong, ctypes.c_void_p()
    cuda.cuMemPoolCreate(ctypes.byref(pool), None)
    cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(u64(1 << 62)))  # never give anything back
    out = u64()
    size = ctypes.c_size_t(80 * MIB)
    print(cuda.cuMemAllocFromPoolAsync(ctypes.byref(out), size, pool, None))
    cuda.cuMemFreeAsync(out, None)
    print(info()[0])                    # freed, and still the pool's
    print(alloc(80)[0], info()[0])      # the pool is told to let go
    print(cuda.cuMemAllocFromPoolAsync(ctypes.byref(out), size, pool, None))
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA).split() == ["0", "20", "0", "20", "2"]
    assert rig.stats()["most_allocated"] <= QUOTA
    assert rig.stats()["trims"] > 0


def test_allocation_nodes_of_graphs_count_from_when_they_are_made(rig: Rig) -> None:
    program = """
    start()
    class Params(ctypes.Structure):
        _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("where", ctypes.c_int), ("id", ctypes.c_int),
                    ("rest", ctypes.c_char * 72), ("access", ctypes.c_void_p), ("count", ctypes.c_size_t),
                    ("bytes", ctypes.c_size_t), ("ptr", ctypes.c_ulonglong)]
    def node(graph, mib):
        params = Params(1, 0, 1, 0, b"", None, 0, mib * MIB, 0)
        return cuda.cuGraphAddMemAllocNode(ctypes.byref(ctypes.c_void_p()), graph, None, 0, ctypes.byref(params))
    graph, run = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuGraphCreate(ctypes.byref(graph), 0)
    print(node(graph, 60), node(graph, 60), info()[0])
    cuda.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_ulonglong(0))
    cuda.cuGraphDestroy(graph)
    print(cuda.cuGraphLaunch(run, None), info()[0])  # the executable holds it
    cuda.cuGraphExecDestroy(run)
    print(info()[0], alloc(90)[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA).split() == ["0", "2", "40", "0", "40", "100", "0"]
    assert rig.stats()["most_allocated"] <= QUOTA


def test_allocations_that_are_captured_belong_to_the_graph(rig: Rig) -> None:
    program = """
    start()
    s, out, graph, run = stream(), ctypes.c_ulonglong(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuStreamBeginCapture_v2(s, 0)
    size = ctypes.c_size_t(60 * MIB)
    print(cuda.cuMemAllocAsync(ctypes.byref(out), size, s), cuda.cuMemFreeAsync(out, s))
    print(cuda.cuMemAllocAsync(ctypes.byref(out), size, s))
    cuda.cuStreamEndCapture(s, ctypes.byref(graph))
    cuda.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_ulonglong(0))
    cuda.cuGraphLaunch(run, s)
    print(info()[0])
    cuda.cuGraphExecDestroy(run), cuda.cuGraphDestroy(graph)
    print(info()[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA).split() == ["0", "0", "2", "40", "100"]
    assert rig.stats()["spoiled"] == 0


@pytest.mark.parametrize("lazily", [False, True])
def test_static_arrays_of_modules_count(rig: Rig, lazily: bool) -> None:
    load = (
        "(cuda.cuLibraryLoadData(ctypes.byref(m), image, None, None, 0, None, None, 0),"
        " cuda.cuLibraryGetModule(ctypes.byref(ctypes.c_void_p()), m))[1]"
        if lazily
        else "cuda.cuModuleLoadData(ctypes.byref(m), image)"
    )
    unload = "cuLibraryUnload" if lazily else "cuModuleUnload"
    program = f"""
    start()
    image = b"static=" + str(60 * MIB).encode()
    def load():
        m = ctypes.c_void_p()
        return {load}, m
    result, module = load()
    print(result, info()[0], load()[0], alloc(60)[0])
    cuda.{unload}(module)
    print(info()[0])
    """
    expected = ["0", "40", "2", "2", "100"]
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA).split() == expected


def test_the_heap_of_device_code_counts(rig: Rig) -> None:
    program = """
    start()
    limit = lambda mib: cuda.cuCtxSetLimit(2, ctypes.c_size_t(mib * MIB))
    print(limit(60), info()[0], limit(120), info()[0], limit(20), info()[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA) == "0 40 2 40 0 80"


def test_memory_outlives_the_process_that_exported_it(rig: Rig) -> None:
    usage, handle = rig.folder / "usage", rig.folder / "handle"
    exporter = f"""
    start()
    _, pointer = alloc(60)
    out = ctypes.create_string_buffer(64)
    cuda.cuIpcGetMemHandle(out, pointer)
    open({str(handle)!r}, "wb").write(out.raw)
    print("exported", flush=True)
    signal.pause()
    """
    importer = f"""
    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_char * 64)]
    start()
    raw = Handle.from_buffer_copy(open({str(handle)!r}, "rb").read())
    out = ctypes.c_ulonglong()
    cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    cuda.cuIpcOpenMemHandle_v2(ctypes.byref(out), raw, 0)
    print(info()[0], flush=True)  # held once, by two
    os.read(0, 1)
    print(info()[0], alloc(60)[0])
    cuda.cuIpcCloseMemHandle(out)
    print(info()[0], alloc(60)[0], flush=True)
    """
    first = rig.start(exporter, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "exported"
    second = rig.start(importer, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage)
    assert second.stdout is not None
    assert second.stdout.readline().strip() == "40"
    first.send_signal(signal.SIGKILL)
    first.wait()
    out, _ = second.communicate("\n", timeout=PATIENCE_S)
    assert out.split() == ["40", "2", "100", "0"]


def test_more_processes_than_slots_get_no_memory_uncounted(rig: Rig) -> None:
    usage = rig.folder / "usage"
    UsagePage.create(usage)
    program = f"""
    import mmap, struct
    with open(os.environ["FAIRLEAD_SHIM_USAGE"], "r+b") as file:
        page = mmap.mmap(file.fileno(), 0)
    # Every slot taken, by locks whose owners live: what a thousand processes would look like.
    slots = os.path.getsize(os.environ["FAIRLEAD_SHIM_USAGE"]) - 512 * {SLOTS}
    for i in range({SLOTS}):
        page[slots + 512 * i:slots + 512 * i + 4] = struct.pack("I", 1)
    page[20:24] = struct.pack("I", {SLOTS})
    start()
    print(alloc(1)[0])
    """
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=QUOTA, FAIRLEAD_SHIM_USAGE=usage) == "2"
    assert "no slot" in rig.log()


def test_two_hundred_processes_share_one_quota(rig: Rig) -> None:
    program = """
    ready, begin = os.pipe()
    done, end = os.pipe()
    told, tell = os.pipe()
    for _ in range(200):
        if not os.fork():
            os.read(ready, 1)
            start()
            os.write(tell, b"y" if alloc(1)[0] == 0 else b"n")
            os.read(done, 1)  # until all have tried
            os._exit(0)
    os.write(begin, b"g" * 200)
    answers = b""
    while len(answers) < 200:
        answers += os.read(told, 200)
    os.write(end, b"g" * 200)
    print(answers.count(b"y"))
    """
    usage = rig.folder / "usage"
    assert rig.run(program, FAIRLEAD_SHIM_QUOTA=150 * MIB, FAIRLEAD_SHIM_USAGE=usage) == "150"


def test_the_agent_changes_the_quota_while_the_job_runs(rig: Rig) -> None:
    page = ControlPage.create(rig.folder / "page")
    program = """
    start()
    def step():
        print(alloc(60)[0], info(), flush=True)
        os.read(0, 1)
    step()
    step()
    step()
    print(info(), flush=True)
    """
    job = rig.start(program, FAIRLEAD_SHIM_PAGE=page.path)
    assert job.stdin is not None
    assert job.stdout is not None

    def then(quota: int) -> str:
        assert job.stdin is not None
        assert job.stdout is not None
        page.set_quota(quota)
        job.stdin.write("\n")
        job.stdin.flush()
        return job.stdout.readline().strip()

    assert job.stdout.readline().strip() == f"0 ({16384 - 60}, 16384)"
    assert then(QUOTA) == "2 (40, 100)"
    assert then(150 * MIB) == "0 (30, 150)"
    assert then(50 * MIB) == "(0, 50)", "it keeps what it has, and gets no more"
    page.close()
    assert eventually(lambda: job.poll() == 0)

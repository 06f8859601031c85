"""The nodes of the local engine: what they have, and the agent processes that run them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.errors import InputError
from fairlead.live.engines import multi_node
from fairlead.live.engines.agent_client import AgentClient
from fairlead.live.engines.engine import EngineError
from fairlead.live.engines.node_source import NO_EVENTS, AgentAwayError, Status
from fairlead.model.cluster import GPU_MODELS, GpuModel, Node, gpu_model_named
from fairlead.node.gpu.fake_gpus import FakeMeter
from fairlead.node.gpu.meter import GpuInfo, MeterError
from fairlead.node.http import server
from fairlead.node.process.processes import is_running, send

_COME_UP_S = 60.0
_END_S = 30.0
_LOOK_S = 0.1
_IDLE_FRAC = 0.12
"""What a GPU that we do not know draws when idle, of its limit; those we know draw 0.10 to 0.19 of it."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node: where its agent lives and how it is started."""

    folder: Path
    options: tuple[str, ...]
    uuids: tuple[str, ...]


def fake_local_nodes(
    folder: Path, gpus: int, nodes: int, model: str, wake_s: float, common: tuple[str, ...]
) -> tuple[list[Node], list[LocalNode]]:
    """Equal nodes of made-up GPUs; `common` is for their agents' command lines."""
    if gpus < 1 or nodes < 1:
        raise InputError(f"--fake-gpus {gpus} on {nodes} nodes: expected at least 1 of each")
    kind = gpu_model_named(model)
    local_nodes, made = [], []
    for number in range(nodes):
        first = number * gpus
        uuids = tuple(info.uuid for info in FakeMeter(gpus, kind.name, first=first).gpus)
        given = {"--fake-gpus": gpus, "--fake-model": kind.name, "--fake-first": first, "--wake-s": wake_s}
        options = tuple(str(word) for item in given.items() for word in item)
        local_nodes.append(LocalNode(folder / f"node-{number}", (*options, *common), uuids))
        made.append(Node(f"node-{number}", gpus, kind, wake_s=wake_s, uuids=uuids))
    return made, local_nodes


def real_local_node(folder: Path, common: tuple[str, ...]) -> tuple[list[Node], list[LocalNode]]:
    """This machine with the GPUs that its driver shows."""
    from fairlead.node.gpu.nvml import NvmlMeter

    hint = "where there are no GPUs, --fake-gpus 4 makes some up for jobs to run on"
    try:
        meter = NvmlMeter()
    except MeterError as error:
        both = f"{error.hint}; {hint}" if error.hint else hint
        raise InputError(f"this machine's GPUs cannot be used: {error.message}", hint=both) from None
    infos = meter.gpus
    meter.close()
    if not infos:
        raise InputError("this machine has no GPUs that its driver shows", hint=hint)
    uuids = tuple(info.uuid for info in infos)
    # Of GPUs that differ the smallest counts: what fits there fits all.
    model = min((model_of(info) for info in infos), key=lambda one: one.memory_mib)
    node = Node(socket.gethostname(), len(infos), model, wake_s=0.0, uuids=uuids)
    return [node], [LocalNode(folder / "node-0", common, uuids)]


def model_of(info: GpuInfo) -> GpuModel:
    """What clusters know of a GPU, with its own memory; of a model that we do not know, what its meter says."""
    known = GPU_MODELS.get(info.model)
    memory_mib = info.memory_total_mib
    if known is not None:
        return known if memory_mib is None else replace(known, memory_mib=memory_mib)
    peak_w = info.power_limit_w or 300.0
    return GpuModel(info.model, memory_mib or 0.0, _IDLE_FRAC * peak_w, peak_w, price_usd_per_h=0.0)


def bring(local_node: LocalNode) -> None:
    """Find the agent of a node, or start one. One that was started otherwise is replaced; its jobs do not notice."""
    until_s = time.monotonic() + _COME_UP_S
    while not _is_there(local_node):
        said = _start(local_node)
        if not said:
            return
        # One that somebody else has started, a controller that was killed meanwhile for instance, is coming up.
        if server.TAKEN not in said or time.monotonic() > until_s:
            raise EngineError(f"the agent of {local_node.folder} cannot be started: {said}")
        time.sleep(_LOOK_S)


def _is_there(local_node: LocalNode) -> bool:
    try:
        status = AgentClient(server.socket_path(local_node.folder)).status(NO_EVENTS)
    except AgentAwayError:
        return False
    if status["settings"] == server.settings(server.parser().parse_args(_line(local_node))):
        return True
    _refuse_other_gpus(local_node, status)
    end(local_node)
    return False


def _start(local_node: LocalNode) -> str:
    """Why it did not come up; empty if it did."""
    line = [sys.executable, "-m", "fairlead.node.http.server", *_line(local_node), "--detach"]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COME_UP_S, check=False, cwd="/"
        )
    except subprocess.TimeoutExpired:
        return f"nothing from it within {_COME_UP_S:g} s"
    return "" if done.returncode == 0 else done.stderr.strip() or f"see {local_node.folder / server.LOG}"


def _line(local_node: LocalNode) -> list[str]:
    return ["--folder", str(local_node.folder.absolute()), *local_node.options]


def _refuse_other_gpus(local_node: LocalNode, status: Status) -> None:
    found = tuple(info["uuid"] for info in status["gpus"])
    alive = [part for part in status["attempts"] if not multi_node.is_over(part)]
    if alive and found != local_node.uuids:
        raise InputError(
            f"{local_node.folder} has {len(alive)} running jobs on {len(found)} GPUs, "
            f"not the {len(local_node.uuids)} wanted now",
            hint="ask for the same GPUs as before, or stop the jobs first",
        )


def end(local_node: LocalNode) -> None:
    """SIGTERM to its agent, if it has one; its jobs go on."""
    try:
        status = AgentClient(server.socket_path(local_node.folder)).status(NO_EVENTS)
    except EngineError:
        return
    pid, start_ticks = status["pid"], status["start_ticks"]
    send(pid, start_ticks, signal.SIGTERM)
    until_s = time.monotonic() + _END_S
    while is_running(pid, start_ticks):
        if time.monotonic() > until_s:
            raise EngineError(f"the agent of {local_node.folder} does not end")
        time.sleep(0.02)

"""Clusters: nodes, their GPUs, what these cost, draw and score.

GPUs and nodes are numbered from 0 in the order in which they are listed; the GPUs of a node are consecutive. Names are
for people, numbers are for policies.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fairlead.errors import InputError, did_you_mean
from fairlead.model.variability import Variability


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model. Memory is the vendor's; prices are typical figures; power is a curve (power.py)."""

    name: str
    memory_mib: float
    idle_w: float
    """Without any context on it."""
    peak_w: float
    """At full utilisation."""
    price_usd_per_h: float
    floor_w: float | None = None
    """Where the curve of an active GPU starts; idle power unless measurements say otherwise."""
    context_w: float = 0.0
    """What a CUDA context adds to idle power, however little its job does."""


# Idle power as measured on data-centre cards (T4 9-10 W, V100 40-45, A100 54-65, H100 72, H200 73-84). The V100's curve
# is the EaCO paper's fit over ten measured sets on a node of eight, 359.8 + 176.57 * (100 u)^0.48 W, less 200 W for the
# node; its context can add at most 22 W, or AlexNet would draw more than was measured. Other peaks are the vendors'.
# Prices are on-demand list prices of large clouds, rounded. Override any of them in a cluster file.
GPU_MODELS = {
    m.name: m
    for m in (
        GpuModel("K80", 12_288, 26.0, 150.0, 0.45),
        GpuModel("P100", 16_384, 26.0, 250.0, 1.00),
        GpuModel("T4", 15_360, 10.0, 70.0, 0.53, context_w=16.0),
        GpuModel("V100", 32_768, 42.0, 221.3, 2.50, floor_w=20.0, context_w=22.0),
        GpuModel("A10", 24_576, 20.0, 150.0, 1.00),
        GpuModel("A100", 81_920, 60.0, 400.0, 3.70, context_w=26.0),
        GpuModel("H100", 81_559, 72.0, 700.0, 6.90, context_w=46.0),
        GpuModel("H200", 143_771, 78.0, 700.0, 7.90, context_w=46.0),
    )
}
DEFAULT_GPU_MODEL = "V100"
DEFAULT_NODE_BASE_W = 200.0
"""A node without its GPUs: CPUs, memory, fans."""
DEFAULT_NODE_SLEEP_W = 15.0
"""A sleeping node, GPUs included: suspended, woken over the network."""
DEFAULT_NODE_WAKE_S = 120.0
"""From sleep to running jobs, at full base power."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine with its GPUs and what it draws itself."""

    name: str
    gpus: int
    gpu_model: GpuModel
    base_w: float = DEFAULT_NODE_BASE_W
    sleep_w: float = DEFAULT_NODE_SLEEP_W
    wake_s: float = DEFAULT_NODE_WAKE_S
    uuids: tuple[str, ...] = ()
    """The vendor's name of each GPU, in the order of their indices; empty where unknown, of one GPU or of all."""
    cpus: float = 0.0
    """CPU cores that jobs may ask for; 0: not stated, and not counted."""
    ram_mib: float = 0.0
    """Memory of the host, likewise."""

    def __post_init__(self) -> None:
        if self.uuids and len(self.uuids) != self.gpus:
            raise InputError(f"node {self.name} has {self.gpus} GPUs and {len(self.uuids)} UUIDs; give one for each")


@dataclass(frozen=True, slots=True)
class Rental:
    """On what terms nodes are rented; prices are those of their GPU models."""

    boot_s: float = 120.0
    """From the order until jobs can run there; paid for."""
    minimum_s: float = 60.0
    """The least that is billed for one rental of a node."""
    step_s: float = 1.0
    """Rentals are billed in whole multiples of it."""

    def __post_init__(self) -> None:
        finite = all(math.isfinite(term) for term in (self.boot_s, self.minimum_s, self.step_s))
        if not finite or self.boot_s < 0.0 or self.minimum_s < 0.0 or self.step_s <= 0.0:
            raise InputError(
                f"rental with boot_s={self.boot_s:g}, minimum_s={self.minimum_s:g}, step_s={self.step_s:g}",
                hint="finite seconds, 0 or more; step_s above 0",
            )

    def billed_s(self, held_s: float) -> float:
        """What is billed for a node that was held that long."""
        # A microsecond of slack: given back at the end of a step, by a clock that rounds, it costs no further step.
        return max(0, math.ceil((max(self.minimum_s, held_s) - 1e-6) / self.step_s)) * self.step_s


@dataclass(frozen=True)
class Cluster:
    """Nodes in order, with the arrays that make a placement cheap to reason about."""

    nodes: tuple[Node, ...]
    variability: Variability | None = None
    rental: Rental | None = None
    """The terms where nodes are rented; these are then the nodes that can be had at most. None: they are owned."""
    node_of: list[int] = field(init=False, repr=False, compare=False)
    """The node of each GPU."""
    first_gpu: list[int] = field(init=False, repr=False, compare=False)
    """The first GPU of each node, with the total as one entry more."""
    least_memory_mib: float = field(init=False, repr=False, compare=False)
    """Memory of the smallest GPU: what fits there fits everywhere."""
    states_hosts: bool = field(init=False, repr=False, compare=False)
    """Whether it says of any node what CPUs or memory of the host jobs may ask for."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InputError("a cluster needs at least one node, found none")
        node_of: list[int] = []
        first_gpu = [0]
        for number, node in enumerate(self.nodes):
            node_of.extend([number] * node.gpus)
            first_gpu.append(len(node_of))
        object.__setattr__(self, "node_of", node_of)
        object.__setattr__(self, "first_gpu", first_gpu)
        object.__setattr__(self, "least_memory_mib", min(n.gpu_model.memory_mib for n in self.nodes))
        object.__setattr__(self, "states_hosts", any(n.cpus or n.ram_mib for n in self.nodes))
        known = [uuid for node in self.nodes for uuid in node.uuids if uuid]
        if len(set(known)) < len(known):
            twice, _ = Counter(known).most_common(1)[0]
            raise InputError(f"GPU UUID {twice} stands twice in the cluster; every GPU has its own")
        if self.variability is not None and self.variability.gpus != len(node_of):
            raise InputError(
                f"the variability profile has {self.variability.gpus} GPUs, the cluster has {len(node_of)}",
                hint="give a profile made for this cluster",
            )

    @property
    def gpus(self) -> int:
        """The number of GPUs on all nodes."""
        return len(self.node_of)

    def spanned(self, gpus: Iterable[int]) -> int:
        """How many nodes these GPUs are on."""
        return len({self.node_of[g] for g in gpus})

    def gpus_holding(self, memory_mib: float) -> int:
        """How many GPUs have that much memory."""
        return sum(node.gpus for node in self.nodes if node.gpu_model.memory_mib >= memory_mib)

    def gpu_model(self, gpu: int) -> GpuModel:
        """The model of a GPU, by its number."""
        return self.nodes[self.node_of[gpu]].gpu_model

    def gpu_name(self, gpu: int) -> str:
        """Node and index, as people say it: `n3:0`."""
        node = self.node_of[gpu]
        return f"{self.nodes[node].name}:{gpu - self.first_gpu[node]}"

    def gpu_numbered(self, text: str) -> int:
        """The GPU that people call `35` or `n8:3`."""
        number = _as_number(text)
        if number is None:
            node_name, _, index = text.rpartition(":")
            at = next((i for i, n in enumerate(self.nodes) if n.name == node_name), None)
            place = _as_number(index)
            if at is not None and place is not None and place < self.nodes[at].gpus:
                number = self.first_gpu[at] + place
        if number is None or number >= self.gpus:
            raise InputError(f"no GPU {text!r} in {self.describe()}", hint="give its number, or NODE:INDEX")
        return number

    def gpu_uuid(self, gpu: int) -> str:
        """The vendor's name of one GPU, empty where it is unknown."""
        node = self.node_of[gpu]
        uuids = self.nodes[node].uuids
        return uuids[gpu - self.first_gpu[node]] if uuids else ""

    def with_variability(self, variability: Variability | None) -> Cluster:
        """The same nodes with other scores."""
        return Cluster(self.nodes, variability, self.rental)

    def rented(self, rental: Rental | None) -> Cluster:
        """The same nodes on other terms."""
        return Cluster(self.nodes, self.variability, rental)

    @property
    def node_gpus(self) -> int:
        """GPUs of the largest node."""
        return max(n.gpus for n in self.nodes)

    def describe(self) -> str:
        """A few words: `16 nodes x 4 V100, 64 GPUs`."""
        groups: dict[tuple[int, str], int] = {}
        for node in self.nodes:
            key = (node.gpus, node.gpu_model.name)
            groups[key] = groups.get(key, 0) + 1
        parts = [f"{count} nodes x {gpus} {model}" for (gpus, model), count in groups.items()]
        return f"{' + '.join(parts)}, {self.gpus} GPUs"


def gpu_model_named(name: str) -> GpuModel:
    """A built-in GPU model by its name; an error that names the others where there is none."""
    for known, model in GPU_MODELS.items():
        if known.lower() == name.lower():
            return model
    raise InputError(f"unknown GPU model {name!r}", hint=did_you_mean(name, GPU_MODELS))


def make_nodes(count: int, gpus: int, model: GpuModel, *, first: int = 0, prefix: str = "n") -> tuple[Node, ...]:
    """`count` equal nodes named n0, n1, ..."""
    return tuple(Node(f"{prefix}{first + i}", gpus, model) for i in range(count))


_SHAPE = re.compile(r"^(\d+)x(\d+)(?::([\w.-]+))?$")


def parse_shape(text: str) -> Cluster:
    """`NODESxGPUS[:model]`, parts joined by `+` for a mixed cluster: `16x4`, `16x4:V100+8x8:A100`."""
    nodes: Sequence[Node] = ()
    for part in text.split("+"):
        match = _SHAPE.match(part.strip())
        if match is None:
            raise InputError(
                f"cluster {text!r} is neither NODESxGPUS[:model] nor a TOML file",
                hint="for example 16x4, 16x4:V100, or cluster.toml",
            )
        count, gpus = int(match[1]), int(match[2])
        if count < 1 or gpus < 1:
            raise InputError(f"cluster {text!r} has {count} nodes of {gpus} GPUs; both must be at least 1")
        if count * gpus > 10_000_000:
            raise InputError(f"cluster {text!r} has {count * gpus:,} GPUs; at most 10,000,000 can be simulated")
        model = gpu_model_named(match[3] or DEFAULT_GPU_MODEL)
        nodes = (*nodes, *make_nodes(count, gpus, model, first=len(nodes)))
    return Cluster(tuple(nodes))


_TERMS = ("boot_s", "minimum_s", "step_s")
_TERMS_HINT = "default, or some of boot=120,minimum=60,step=1"


def parse_rental(text: str) -> Rental:
    """`default`, or terms in seconds of which any may be left out: `boot=120,minimum=60,step=1`."""
    if text.strip() == "default":
        return Rental()
    terms: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        field_name = f"{name.removesuffix('_s')}_s"
        if field_name not in _TERMS:
            raise InputError(f"rent {text!r}: unknown term {name!r}", hint=_TERMS_HINT)
        if field_name in terms:
            raise InputError(f"rent {text!r} gives {name} twice")
        try:
            terms[field_name] = float(value)
        except ValueError:
            raise InputError(f"rent {text!r}: {name} is {value!r}, expected seconds", hint=_TERMS_HINT) from None
    return Rental(**terms)


def _as_number(text: str) -> int | None:
    """Plain digits, not thousands of them, which Python refuses to read."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None

"""Five ways to guess what is left of two speeds, ready for use: NumPy only, trained elsewhere.

All take standardised features of services (the SM share is one of them) and of offline jobs, and give two numbers
per pair: the speed that is left to the offline job and that left to the service. `pairs` is every service with every
job, `rows` is the first service with the first job and so on. `arrays` is what a file has to hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_BLOCK = 4096
"""Rows that go through a network together: its layers then stay in the cache."""


class Regressor(Protocol):
    """What every method can do."""

    method: ClassVar[str]

    def pairs(self, services: Floats, offline: Floats) -> Floats:
        """Speeds of every service with every job: an array (services, offline jobs, 2)."""
        ...

    def rows(self, services: Floats, offline: Floats) -> Floats:
        """Speeds of the first service with the first job and so on: an array (rows, 2)."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All numbers that a file has to hold, by name."""
        ...


class _Plain:
    """Methods that do no better for all pairs at once than row by row."""

    def rows(self, services: Floats, offline: Floats) -> Floats:
        raise NotImplementedError

    def pairs(self, services: Floats, offline: Floats) -> Floats:
        """(services, offline jobs, 2), a few services at a time."""
        made = np.empty((len(services), len(offline), 2), dtype=np.float32)
        for i, service in enumerate(services):
            made[i] = self.rows(np.broadcast_to(service, (len(offline), len(service))), offline)
        return made


@dataclass(frozen=True, eq=False)
class Mean(_Plain):
    """The mean of what was measured, whoever they are."""

    method: ClassVar[str] = "mean"
    value: Floats

    def rows(self, services: Floats, offline: Floats) -> Floats:
        """The same two speeds for every row."""
        return np.broadcast_to(self.value, (len(services), 2))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The two means, for a file."""
        return {"value": self.value}


@dataclass(frozen=True, eq=False)
class Linear:
    """A weighted sum of the features."""

    method: ClassVar[str] = "linear"
    service: Floats
    offline: Floats
    bias: Floats

    def pairs(self, services: Floats, offline: Floats) -> Floats:
        """The sum of a service's part and a job's part, for all pairs at once."""
        return (services @ self.service + self.bias)[:, None, :] + (offline @ self.offline)[None, :, :]

    def rows(self, services: Floats, offline: Floats) -> Floats:
        """The weighted sum of both sides' features, row by row."""
        return services @ self.service + offline @ self.offline + self.bias

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights, for a file."""
        return {"service": self.service, "offline": self.offline, "bias": self.bias}


@dataclass(frozen=True, eq=False)
class Neighbours(_Plain):
    """The mean of the nearest measured pairs, the nearer the more. Its time grows with what was measured."""

    method: ClassVar[str] = "k-nn"
    known: Floats
    value: Floats
    k: NDArray[np.int64]

    def rows(self, services: Floats, offline: Floats) -> Floats:
        """The weighted mean of the nearest known pairs, row by row."""
        made = np.empty((len(services), 2), dtype=np.float32)
        squares = np.einsum("ij,ij->i", self.known, self.known)
        k = min(int(self.k), len(self.known))
        for start in range(0, len(services), _BLOCK):
            x = np.hstack([services[start : start + _BLOCK], offline[start : start + _BLOCK]])
            apart = np.maximum(squares - 2.0 * (x @ self.known.T) + np.einsum("ij,ij->i", x, x)[:, None], 0.0)
            near = np.argpartition(apart, k - 1, axis=1)[:, :k]
            weight = 1.0 / (np.sqrt(np.take_along_axis(apart, near, axis=1)) + 1e-3)
            weight /= weight.sum(axis=1, keepdims=True)
            made[start : start + _BLOCK] = np.einsum("ij,ijk->ik", weight, self.value[near])
        return made

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The known pairs, for a file."""
        return {"known": self.known, "value": self.value, "k": self.k}


@dataclass(frozen=True, eq=False)
class Trees:
    """Boosted regression trees, each a row of complete binary trees: node n has the children 2n + 1 and 2n + 2.

    A leaf is a box, so it holds a service or not and an offline job or not: its part of all pairs is an outer product,
    and the whole forest one matrix product over the leaves.
    """

    method: ClassVar[str] = "trees"
    feature: NDArray[np.int64]
    """Per tree and inner node; services' features first."""
    threshold: Floats
    """To the left is below or equal; +inf where a node does not split."""
    value: Floats
    """Per tree and leaf, two."""
    base: Floats

    def pairs(self, services: Floats, offline: Floats) -> Floats:
        """The sum over all leaves that hold both, as one matrix product."""
        made = np.empty((2, len(services), len(offline)), dtype=np.float32)
        in_service = self._inside(services, 0)
        in_offline = self._inside(offline, services.shape[1])
        value = self.value.reshape(-1, 2)
        for output in range(2):
            made[output] = in_service @ (value[:, output, None] * in_offline.T)
            made[output] += self.base[output]
        return np.moveaxis(made, 0, 2)

    def _inside(self, x: Floats, first: int) -> Floats:
        """Whether each row may be in each leaf, as far as the features from `first` on tell."""
        inner = self.feature.shape[1]
        may = np.ones((len(x), len(self.feature), 2 * inner + 1), dtype=np.bool_)
        mine = (self.feature >= first) & (self.feature < first + x.shape[1])
        for node in range(inner):
            of = np.where(mine[:, node], self.feature[:, node] - first, 0)
            left = x[:, of] <= self.threshold[:, node]
            parent, other = may[:, :, node], ~mine[:, node]
            may[:, :, 2 * node + 1] = parent & (left | other)
            may[:, :, 2 * node + 2] = parent & (~left | other)
        return may[:, :, inner:].reshape(len(x), -1).astype(np.float32)

    def rows(self, services: Floats, offline: Floats) -> Floats:
        """The sum over all trees of the leaf that each row falls into."""
        x = np.hstack([services, offline])
        made = np.broadcast_to(self.base, (len(x), 2)).copy()
        inner = self.feature.shape[1]
        here = np.arange(len(x))
        for feature, threshold, value in zip(self.feature, self.threshold, self.value, strict=True):
            node = np.zeros(len(x), dtype=np.int64)
            while inner and node[0] < inner if len(x) else False:
                node = 2 * node + 1 + (x[here, feature[node]] > threshold[node])
            made += value[node - inner]
        return made

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Splits and leaves of all trees, for a file."""
        return {"feature": self.feature, "threshold": self.threshold, "value": self.value, "base": self.base}


@dataclass(frozen=True, eq=False)
class Mlp:
    """Four layers, three of them hidden and 64 wide, with ReLU; the mean of `members` such networks.

    The first layer is linear in each side, so for all pairs it is worked out once per service and once per job.
    """

    method: ClassVar[str] = "mlp"
    service: Floats
    """members x features x 64, and so on."""
    offline: Floats
    bias1: Floats
    weight2: Floats
    bias2: Floats
    weight3: Floats
    bias3: Floats
    weight4: Floats
    bias4: Floats

    def pairs(self, services: Floats, offline: Floats) -> Floats:
        """The mean of the networks for all pairs, some services at a time."""
        made = np.zeros((len(services), len(offline), 2), dtype=np.float32)
        step = max(1, _BLOCK // max(1, len(offline)))
        for m in range(len(self.service)):
            of_service = services @ self.service[m] + self.bias1[m]
            of_offline = offline @ self.offline[m]
            for start in range(0, len(services), step):
                first = of_service[start : start + step, None, :] + of_offline[None, :, :]
                out = self._rest(m, first.reshape(-1, first.shape[2]))
                made[start : start + step] += out.reshape(*first.shape[:2], 2)
        return made / np.float32(len(self.service))

    def rows(self, services: Floats, offline: Floats) -> Floats:
        """The mean of the networks, row by row."""
        made = np.zeros((len(services), 2), dtype=np.float32)
        for m in range(len(self.service)):
            for start in range(0, len(services), _BLOCK):
                part = slice(start, start + _BLOCK)
                first = services[part] @ self.service[m] + offline[part] @ self.offline[m] + self.bias1[m]
                made[part] += self._rest(m, first)
        return made / np.float32(len(self.service))

    def _rest(self, m: int, h: Floats) -> Floats:
        np.maximum(h, 0.0, out=h)
        for weight, bias in ((self.weight2[m], self.bias2[m]), (self.weight3[m], self.bias3[m])):
            h = h @ weight
            h += bias
            np.maximum(h, 0.0, out=h)
        return np.asarray(h @ self.weight4[m] + self.bias4[m])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Weights and biases of all layers, for a file."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


METHODS: Mapping[str, type[Any]] = {kind.method: kind for kind in (Mean, Linear, Neighbours, Trees, Mlp)}
"""By the name that files and the command line use."""

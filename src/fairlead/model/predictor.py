"""What a service and an offline job leave each other on one GPU, predicted from their solo profiles and the SM share.

A predictor is for one GPU model and comes from a file that `fairlead predictor train` wrote. Which features a profile
has is up to what it was trained on; see `fairlead.measure.pair_table`. A feature that a workload lacks (NaN) counts as
the mean of those it was trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlead.errors import InputError, did_you_mean
from fairlead.model.files import read_text
from fairlead.model.regressors import METHODS, Floats, Regressor

FORMAT = "fairlead-predictor-1"
LEAST_SPEED = 0.05
"""Nobody is predicted to run slower than this beside another: a slowdown of at most 20."""

Columns = Mapping[str, ArrayLike]
"""Features by name, one value per workload."""


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What is left, per service (row) and offline job (column), or per row of pairs."""

    throughput_frac: NDArray[np.float32]
    """Of the offline job, over its throughput alone: 0 to 1."""
    slowdown: NDArray[np.float32]
    """Of the service: its time beside the job over its time alone, at least 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Scaler:
    """Features in a fixed order, standardised; times (`..._s`) by their logarithm."""

    names: tuple[str, ...]
    mean: Floats
    scale: Floats

    def __call__(self, columns: Columns) -> Floats:
        """The features as a matrix, one row per workload."""
        made = []
        for name, mean, scale in zip(self.names, self.mean, self.scale, strict=True):
            if name not in columns:
                raise InputError(f"feature {name} is missing", hint=f"given: {', '.join(sorted(columns)) or 'none'}")
            value = transformed(name, columns[name])
            made.append((np.where(np.isfinite(value), value, mean) - mean) / scale)
        if len({len(column) for column in made}) > 1:
            raise InputError(f"features {', '.join(self.names)}: expected as many values in each")
        return np.stack(made, axis=1).astype(np.float32)


def transformed(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Times span many decades, so their logarithm is the feature."""
    raw = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return np.log(np.where(raw > 0.0, raw, np.nan)) if name.endswith("_s") else raw


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """One method with its features, for one GPU model."""

    gpu_model: str
    service: Scaler
    """Its last feature is `sm_share_frac`, what the offline job may use."""
    offline: Scaler
    regressor: Regressor

    @property
    def method(self) -> str:
        """The name of its method, one of `regressors.METHODS`."""
        return self.regressor.method

    def predict(self, services: Columns, offline: Columns, sm_share_frac: ArrayLike = 1.0) -> Prediction:
        """Every service with every offline job; the share is one for all, or one per service."""
        x = self._services(services, sm_share_frac)
        return _prediction(self.regressor.pairs(x, self.offline(offline)))

    def predict_rows(self, services: Columns, offline: Columns, sm_share_frac: ArrayLike = 1.0) -> Prediction:
        """The first service with the first offline job, and so on."""
        x, y = self._services(services, sm_share_frac), self.offline(offline)
        if len(x) != len(y):
            raise InputError(f"{len(x)} services and {len(y)} offline jobs, expected as many")
        return _prediction(self.regressor.rows(x, y))

    def _services(self, services: Columns, sm_share_frac: ArrayLike) -> Floats:
        count = max((np.size(np.asarray(column)) for column in services.values()), default=0)
        return self.service({**services, "sm_share_frac": np.broadcast_to(np.asarray(sm_share_frac, float), (count,))})

    def to_dict(self) -> dict[str, Any]:
        """The predictor in plain types that JSON keeps."""
        return {
            "format": FORMAT,
            "gpu_model": self.gpu_model,
            "method": self.method,
            **{side: _scaler_dict(scaler) for side, scaler in (("service", self.service), ("offline", self.offline))},
            "arrays": {
                name: {"shape": [*array.shape], "kind": array.dtype.kind, "values": _numbers(array)}
                for name, array in self.regressor.arrays().items()
            },
        }

    @classmethod
    def from_dict(cls, value: object, where: str = "predictor") -> Predictor:
        """From what `to_dict` made; `where` stands in the errors."""
        if not isinstance(value, Mapping) or value.get("format") != FORMAT:
            found = value.get("format") if isinstance(value, Mapping) else type(value).__name__
            raise InputError(f"{where}: format is {found!r}, expected {FORMAT!r}")
        method = str(value.get("method"))
        if method not in METHODS:
            raise InputError(f"{where}: no method {method!r}", hint=did_you_mean(method, METHODS))
        try:
            arrays = {name: _array(one) for name, one in value["arrays"].items()}
            made = cls(
                str(value["gpu_model"]),
                _scaler(value["service"]),
                _scaler(value["offline"]),
                METHODS[method](**arrays),
            )
            services, offline = ({name: [0.5] for name in side.names} for side in (made.service, made.offline))
            if not np.isfinite(made.predict(services, offline).throughput_frac).all():
                raise ValueError("its numbers are not finite")
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise InputError(f"{where}: not a whole predictor: {error}", hint="train it anew") from None
        return made


def load_predictor(path: Path | str) -> Predictor:
    """Read a predictor that was saved as JSON."""
    return parse_predictor(read_text(Path(path)), str(path))


def parse_predictor(text: str, where: str) -> Predictor:
    """A predictor from the text of its file; `where` stands in the errors."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}", hint=f'expected {{"format": "{FORMAT}", ...}}') from None
    return Predictor.from_dict(value, where)


def save_predictor(predictor: Predictor, path: Path | str) -> None:
    """Write a predictor as JSON."""
    try:
        Path(path).write_text(json.dumps(predictor.to_dict()) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _prediction(speeds: Floats) -> Prediction:
    throughput = np.clip(speeds[..., 0], 0.0, 1.0)
    return Prediction(throughput, 1.0 / np.clip(speeds[..., 1], LEAST_SPEED, 1.0))


def _scaler_dict(scaler: Scaler) -> dict[str, Any]:
    return {"features": [*scaler.names], "mean": _numbers(scaler.mean), "scale": _numbers(scaler.scale)}


def _scaler(value: Mapping[str, Any]) -> Scaler:
    names = tuple(str(name) for name in value["features"])
    mean, scale = (np.asarray(value[key], dtype=np.float32) for key in ("mean", "scale"))
    if not len(names) == len(mean) == len(scale) or not (scale > 0.0).all():
        raise ValueError("features, mean and scale do not agree")
    return Scaler(names, mean, scale)


def _numbers(array: NDArray[Any]) -> list[Any]:
    # Nine digits give back the same float32; infinity, where a tree does not split, is no JSON.
    flat = array.ravel()
    if array.dtype.kind != "f":
        return [int(x) for x in flat]
    return [float(f"{x:.9g}") if np.isfinite(x) else None for x in flat]


def _array(value: Mapping[str, Any]) -> NDArray[Any]:
    if value["kind"] == "i":
        return np.asarray(value["values"], dtype=np.int64).reshape(value["shape"])
    numbers = [np.inf if x is None else x for x in value["values"]]
    return np.asarray(numbers, dtype=np.float32).reshape(value["shape"])

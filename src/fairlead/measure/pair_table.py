"""Measured pairs, what the predictor is trained on: a csv or parquet file, or Gavel's throughputs.

One row is one offline job beside one service on one GPU:

    service_name, offline_name                  which workloads; rows of the same two names are one pair
    service_application, offline_application    what they run (default: the name); held out together
    gpu_model                                   default: one model, `any`
    sm_share_frac                               what the offline job may use of the SMs; default 1
    throughput_frac                             of the offline job, over its throughput alone; 0 to 1
    slowdown                                    of the service, over its time alone; at least 1
    service_*, offline_*                        solo profiles: any other column of that name is a feature

The features of a profile are meant to be `utilisation_frac`, `sm_activity_frac`, `occupancy_frac`, `memory_frac` and a
time, `request_s` or `iteration_s`; empty cells are allowed. What ends in `_s` enters by its logarithm.

Gavel measured throughputs only, so its profiles hold what follows from them and from the name of the job type: the
iteration time alone, the speed alone on the three GPU models, the batch size (log2, within its model), and which model
it is (one column per model, 0 or 1). Utilisation, occupancy and memory are not in that data. Any job may be the service
or the offline one there; both roles of one measurement are held out together. The share is 1: it was time slicing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairlead.errors import InputError, did_you_mean
from fairlead.model.files import read_text

GAVEL_MODELS = ("v100", "p100", "k80")
_TEXTS = ("service_name", "offline_name", "service_application", "offline_application", "gpu_model")
_HINT = "see docs: service_name, offline_name, throughput_frac, slowdown and columns service_* and offline_*"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Measured pairs of one or several GPU models, as columns."""

    gpu_model: NDArray[np.str_]
    service_name: NDArray[np.str_]
    offline_name: NDArray[np.str_]
    service_application: NDArray[np.str_]
    offline_application: NDArray[np.str_]
    sm_share_frac: NDArray[np.float64]
    throughput_frac: NDArray[np.float64]
    slowdown: NDArray[np.float64]
    service: Mapping[str, NDArray[np.float64]]
    offline: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.throughput_frac)

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """The GPU models that the pairs were measured on, sorted."""
        return tuple(sorted({str(name) for name in self.gpu_model}))

    def take(self, rows: NDArray[Any]) -> Pairs:
        """Some rows, by number or by mask."""
        plain: dict[str, Any] = {
            name: getattr(self, name)[rows] for name in self.__dataclass_fields__ if name not in ("service", "offline")
        }
        sides: dict[str, Any] = {
            side: {n: c[rows] for n, c in getattr(self, side).items()} for side in ("service", "offline")
        }
        return replace(self, **plain, **sides)

    def of(self, gpu_model: str | None) -> Pairs:
        """Those of one GPU model; None where there is only one."""
        if gpu_model is None:
            if len(self.gpu_models) > 1:
                raise InputError(f"pairs of several GPU models: {', '.join(self.gpu_models)}", hint="give --gpu-model")
            return self
        known = {name.lower(): name for name in self.gpu_models}
        if gpu_model.lower() not in known:
            raise InputError(f"no pairs of GPU model {gpu_model!r}", hint=did_you_mean(gpu_model, self.gpu_models))
        return self.take(self.gpu_model == known[gpu_model.lower()])


def read_pairs(path: Path | str) -> Pairs:
    """A csv or parquet file of pairs, or Gavel's simulation_throughputs.json."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        try:
            value = json.loads(read_text(path))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not JSON: {error}") from None
        return gavel_pairs(value, str(path))
    if not path.is_file():
        raise InputError(f"{path}: {'is a directory, expected a file' if path.is_dir() else 'no such file'}")
    try:
        if path.suffix.lower() == ".parquet":
            frame = pl.read_parquet(path)
        else:
            read_text(path)  # says so where it is no text
            frame = pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}", hint=_HINT) from None
    return pairs_from_frame(frame, str(path))


def pairs_from_frame(frame: pl.DataFrame, where: str = "pairs") -> Pairs:
    """Checked columns of a table; `where` stands in the errors."""
    for name in ("service_name", "offline_name", "throughput_frac", "slowdown"):
        if name not in frame.columns:
            raise InputError(f"{where}: no column {name}", hint=_HINT)
    if not len(frame):
        raise InputError(f"{where}: no rows, expected measured pairs")
    texts = {name: _texts(frame, name) for name in _TEXTS if name in frame.columns}
    for side in ("service", "offline"):
        texts.setdefault(f"{side}_application", texts[f"{side}_name"])
    texts.setdefault("gpu_model", np.full(len(frame), "any"))
    sides: dict[str, dict[str, NDArray[np.float64]]] = {}
    for side in ("service", "offline"):
        names = [n for n in frame.columns if n.startswith(f"{side}_") and n not in _TEXTS]
        sides[side] = {name.removeprefix(f"{side}_"): _numbers(frame, name, where) for name in names}
        if not names:
            raise InputError(f"{where}: no profile of the {side} side: no column {side}_*", hint=_HINT)
    share = np.ones(len(frame))
    if "sm_share_frac" in frame.columns:
        share = _within(_numbers(frame, "sm_share_frac", where), "sm_share_frac", 0.0, 1.0, where)
    throughput = _within(_numbers(frame, "throughput_frac", where), "throughput_frac", 0.0, 1.5, where)
    slowdown = _within(_numbers(frame, "slowdown", where), "slowdown", 0.5, 1e6, where)
    # Somewhat above its speed alone is noise of the measurement.
    return Pairs(
        **texts,
        sm_share_frac=share,
        throughput_frac=np.minimum(throughput, 1.0),
        slowdown=np.maximum(slowdown, 1.0),
        service=sides["service"],
        offline=sides["offline"],
    )


def gavel_pairs(value: object, where: str = "throughputs") -> Pairs:
    """Both roles of every pair of single-GPU jobs that fits in memory, on V100, P100 and K80."""
    if not isinstance(value, Mapping) or not all(isinstance(value.get(model), Mapping) for model in GAVEL_MODELS):
        raise InputError(f"{where}: expected Gavel's throughputs: an object with {', '.join(GAVEL_MODELS)}")
    try:
        types = [key for key in value["v100"] if key.endswith(", 1)")]
        solo = {model: {key: float(value[model][key]["null"]) for key in types} for model in GAVEL_MODELS}
        features = _gavel_features(types, solo)
        rows: list[dict[str, Any]] = []
        for model in GAVEL_MODELS:
            for service in types:
                for offline in types:
                    of_service, of_offline = value[model][service].get(offline, (0.0, 0.0))
                    if of_service > 0.0 and of_offline > 0.0:  # zero means that the two do not fit
                        rows.append(
                            {
                                "gpu_model": model.upper(),
                                "throughput_frac": of_offline / solo[model][offline],
                                "slowdown": solo[model][service] / of_service,
                                **_side("service", service, features, 1.0 / solo[model][service]),
                                **_side("offline", offline, features, 1.0 / solo[model][offline]),
                            }
                        )
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise InputError(f"{where}: not as Gavel's throughputs are: {error!r}") from None
    return pairs_from_frame(pl.DataFrame(rows), where)


def _gavel_features(types: Sequence[str], solo: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    parts = {key: re.match(r"\('(.+?)(?: \(batch size (\d+)\))?', 1\)$", key) for key in types}
    model = {key: str(m[1]) if m else key for key, m in parts.items()}
    batch = {key: float(np.log2(float(m[2] or 1))) if m else 0.0 for key, m in parts.items()}
    models = sorted(set(model.values()))
    made: dict[str, dict[str, Any]] = {}
    for key in types:
        of_model = [batch[other] for other in types if model[other] == model[key]]
        made[key] = {
            "name": f"{model[key]} bs{2 ** batch[key]:g}" if "batch size" in key else model[key],
            "application": model[key],
            "batch_log2": batch[key] - sum(of_model) / len(of_model),
            **{f"on_{gpu}_s": 1.0 / solo[gpu][key] for gpu in GAVEL_MODELS},
            **{f"is_{name.lower()}": float(name == model[key]) for name in models},
        }
    return made


def _side(side: str, key: str, features: Mapping[str, Mapping[str, Any]], solo_s: float) -> dict[str, Any]:
    return {f"{side}_{name}": value for name, value in features[key].items()} | {f"{side}_iteration_s": solo_s}


def _texts(frame: pl.DataFrame, name: str) -> NDArray[np.str_]:
    return np.asarray(frame[name].cast(pl.String).fill_null("").to_list(), dtype=np.str_)


def _numbers(frame: pl.DataFrame, name: str, where: str) -> NDArray[np.float64]:
    """A column as numbers, empty cells as NaN."""
    column = frame[name]
    cells = column.cast(pl.String).str.strip_chars() if column.dtype == pl.String else column
    blank = cells.is_null() if column.dtype != pl.String else cells.is_null() | (cells == "")
    numbers = cells.cast(pl.Float64, strict=False)
    if (bad := (numbers.is_null() & ~blank.fill_null(True)).arg_true()).len():
        row = int(bad[0])
        raise InputError(f"{where}, row {row + 1}, column {name}: found {column[row]!r}, expected a number")
    return numbers.fill_null(float("nan")).to_numpy().astype(np.float64)


def _within(values: NDArray[np.float64], name: str, least: float, most: float, where: str) -> NDArray[np.float64]:
    bad = np.flatnonzero(~((values >= least) & (values <= most)))
    if len(bad):
        found = values[bad[0]]
        raise InputError(f"{where}, row {bad[0] + 1}, column {name}: found {found:g}, expected {least:g} to {most:g}")
    return values

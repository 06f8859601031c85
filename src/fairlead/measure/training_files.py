"""How jobs train, from whatever was measured of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fairlead.errors import InputError
from fairlead.measure.pollux_data import read_training
from fairlead.model.training import Training, read_goodput_tables

_FITTED = "perf_params_t4.json"
_HINT = (
    "a folder in the layout of Pollux's measurements, or a csv with the columns "
    "app, epoch, gpus, goodput_samples_per_s, samples"
)


def load_training(path: str | Path) -> Mapping[str, Training]:
    """By profile, from a folder in the layout of Pollux's measurements or from a csv of goodputs."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"training {path}: no such file or folder", hint=_HINT)
    if not path.is_dir():
        return read_goodput_tables(path)
    if not (path / _FITTED).is_file():
        raise InputError(f"training {path}: the folder has no {_FITTED}", hint=_HINT)
    try:
        return read_training(path)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"training {path}: not as Pollux's measurements are: {error!r}", hint=_HINT) from error

"""Samples kept in a file and read back behind the same interface: how tests and trials run without a GPU.

One JSON object a line: a header with the GPUs, then one line per reading. A recorder that is killed leaves at worst
half a line at the end, which is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fairlead.errors import FairleadError, InputError
from fairlead.node.gpu.meter import (
    GpuInfo,
    GpuSample,
    Meter,
    info_as_json,
    info_from_json,
    sample_as_json,
    sample_from_json,
)

FORMAT = "fairlead-gpu-samples"
VERSION = 1


class RecordingEndedError(FairleadError):
    """Every reading of the recording has been given out."""


class ReplayMeter:
    """The readings of a recording, one after the other, as fast as they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = _objects(path)
        head = next(self._lines, (1, {}))[1]
        if head.get("format") != FORMAT or not isinstance(head.get("gpus"), list):
            raise InputError(f"{path}: no recording of GPU samples", hint=f"its first line should say {FORMAT!r}")
        if head.get("version") != VERSION:
            raise InputError(f"{path}: version {head.get('version')!r} of the format, this reads version {VERSION}")
        try:
            self._gpus = tuple(info_from_json(one) for one in head["gpus"])
        except (TypeError, AttributeError) as error:
            raise InputError(f"{path}, line 1: {error}") from None
        self._is_fake = bool(head.get("is_fake"))

    @property
    def is_fake(self) -> bool:
        """Whether the recorded GPUs were made up."""
        return self._is_fake

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that were recorded."""
        return self._gpus

    def read(self, *, processes: bool = True, brief: bool = False) -> tuple[GpuSample, ...]:
        """The next reading; `RecordingEndedError` after the last."""
        number, found = next(self._lines, (0, None))
        if found is None:
            raise RecordingEndedError(f"{self._path}: the recording has ended")
        try:
            return tuple(sample_from_json(one) for one in found["samples"])
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self._path}, line {number}: no reading ({error})") from None

    def readings(self) -> Iterator[tuple[GpuSample, ...]]:
        """All recorded readings that were not replayed yet."""
        try:
            while True:
                yield self.read()
        except RecordingEndedError:
            return

    def close(self) -> None:
        """Do nothing: no device is held."""


class RecordingMeter:
    """Reads another meter and keeps what it said."""

    def __init__(self, meter: Meter, path: Path) -> None:
        self._meter = meter
        self._file: IO[str] = path.open("w", encoding="utf-8")
        gpus = [info_as_json(info) for info in meter.gpus]
        self._write({"format": FORMAT, "version": VERSION, "is_fake": meter.is_fake, "gpus": gpus})

    @property
    def is_fake(self) -> bool:
        """As the meter that is read."""
        return self._meter.is_fake

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """As the meter that is read."""
        return self._meter.gpus

    def read(self, *, processes: bool = True, brief: bool = False) -> tuple[GpuSample, ...]:
        """Read the real meter, and keep the answer in the recording."""
        samples = self._meter.read(processes=processes, brief=brief)
        self._write({"samples": [sample_as_json(sample) for sample in samples]})
        return samples

    def close(self) -> None:
        """Close the file and the meter."""
        self._file.close()
        self._meter.close()

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value, separators=(",", ":")) + "\n")
        self._file.flush()


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return  # the recorder was killed while it wrote
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise InputError(f"{path}, line {number}: expected an object, found {line.strip()[:40]}")
                yield number, found
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {number}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None

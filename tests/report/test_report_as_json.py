from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fairlead.report import as_json


def test_what_json_has_no_word_for_is_null() -> None:
    text = as_json.dumps({"a": math.nan, "b": [math.inf, -math.inf, 1.5]})
    assert json.loads(text) == {"a": None, "b": [None, None, 1.5]}


def test_numpy_scalars_tuples_and_paths_are_plain() -> None:
    value = {"n": np.int64(3), "x": np.float32("nan"), "t": (1, True), "p": Path("a/b")}
    assert json.loads(as_json.dumps(value)) == {"n": 3, "x": None, "t": [1, True], "p": "a/b"}


def test_other_types_are_refused_rather_than_guessed() -> None:
    with pytest.raises(TypeError, match="object"):
        as_json.dumps({"a": object()})

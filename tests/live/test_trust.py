"""Clusters under faults of every kind, the short form of `bench/trust.py`: nothing is lost, doubled or leaked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.trust.faults import WEIGHTS
from tests.live.trust.story import tell

POLICIES = ("eaco", "muxflow", "las")
KILLS = 6
SURROUNDINGS = sorted(name for name in WEIGHTS if not name.startswith("kill"))


@pytest.mark.parametrize("number", range(len(POLICIES)), ids=POLICIES)
def test_faults_at_random_lose_double_and_leak_nothing(number: int, tmp_path: Path) -> None:
    """Every kind of fault comes once in one of the three, and any may come in each."""
    verdict = tell(POLICIES[number], 7 + number, KILLS, first=SURROUNDINGS[number :: len(POLICIES)], keep=tmp_path)
    assert not verdict.violations, json.dumps(vars(verdict), indent=2)
    assert verdict.kills >= KILLS
    assert verdict.jobs >= 5

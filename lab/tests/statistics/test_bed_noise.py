"""The recorded samples of an unchanged device confirm docs/lab/statistics.md on limits and estimators."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (LAB / "experiments").is_dir(), reason="the folder of experiments is not available")


def test_the_documented_tables_match_the_recorded_samples() -> None:
    file = LAB / "experiments/bed_noise/spread.py"
    found = importlib.util.spec_from_file_location("spread", file)
    assert found is not None
    assert found.loader is not None
    spread = sys.modules["spread"] = importlib.util.module_from_spec(found)
    found.loader.exec_module(spread)
    trials = spread.read()
    assert spread.tables(trials) in (LAB.parent / "docs/lab/statistics.md").read_text()
    within = spread.within_spreads(trials)
    assert within["one trial, repeated while disturbed"] < within["one trial"]
    calm, *others = spread.by_disturbance(trials)
    # A trial up to the limit is more informative than any trial above twice the limit.
    assert all(calm[3] < other[3] and other[2] < 1 for other in others[1:])

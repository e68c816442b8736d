"""The recorded samples of an unchanged device show what docs/lab/statistics.md says of limits and estimators."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

LAB = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (LAB / "experiments").is_dir(), reason="the experiments are not beside the tests")


def test_the_tables_are_those_of_the_recorded_samples() -> None:
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
    # Up to the limit a trial says more than any that is above twice the limit.
    assert all(calm[3] < other[3] and other[2] < 1 for other in others[1:])

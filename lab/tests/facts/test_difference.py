"""Which facts differ between two runs."""

from __future__ import annotations

from ringroad_lab.facts.difference import FactDifference, differences


def test_what_differs_is_told_and_nothing_else() -> None:
    baseline = {"kernel": {"release": "6.1", "parameters": "quiet"}, "memory": {"total": "64 GiB", "available at the start": "60 GiB"}}
    candidate = {"kernel": {"release": "6.6", "parameters": "quiet"}, "memory": {"total": "64 GiB", "available at the start": "9 GiB"}}
    assert differences(baseline, candidate) == (FactDifference("kernel", "release", "6.1", "6.6"),)


def test_what_only_one_knows_differs() -> None:
    assert differences({"a": {"x": "1"}}, {"b": {"y": "2"}}) == (FactDifference("a", "x", "1", None), FactDifference("b", "y", None, "2"))


def test_the_same_does_not_differ() -> None:
    assert differences({"a": {"x": "1"}}, {"a": {"x": "1"}}) == ()

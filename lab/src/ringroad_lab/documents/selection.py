"""Finds figures in the JSON output of a program."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from ringroad_lab.trial import Frozen

_STEP = re.compile(r"(?P<key>[A-Za-z_][\w-]*)(?P<filters>(?:\[[\w-]+=[^\]]*\])*)(?:\.|$)")
_FILTER = re.compile(r"\[([\w-]+)=([^\]]*)\]")
# Above this share of a sample's time without its processor, `ringroad bench` marks the sample.
_LONG_WAIT = 0.03


def _steps(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Split `points[path=pipe].ratios[peer=memif].ratio` into keys, each with its filters."""
    steps, at = [], 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise ValueError(f"cannot be read from {text[at:]!r} on: write KEY, or KEY[NAME=VALUE]..., separated by dots")
        steps.append((step["key"], _FILTER.findall(step["filters"])))
        at = step.end()
    return steps


def _checked(text: str) -> str:
    _steps(text)
    return text


Selection = Annotated[str, AfterValidator(_checked)]
"""A way through JSON: keys separated by dots; behind the key of a list, conditions that its entries must meet."""


class FoundFigure(Frozen):
    """A figure, from one value or the median of several."""

    value: float
    least: float
    most: float
    samples: int
    remarks: tuple[str, ...] = ()
    """What the program says against these values: `lower bound`, `disturbed`, ..."""


class _Value(NamedTuple):
    """A value, and the range and number of the samples that it stands for."""

    value: float
    least: float
    most: float
    samples: int


def find(output: object, at: str, over: str | None = None) -> FoundFigure | None:
    """Return the figure at a place of the output, divided by the one at another place if that is given; None if there is none.

    Two lists of values with one length, such as the repetitions of two devices, are divided pair by pair.
    """
    remarks: list[str] = []
    values = list(_values(output, _steps(at), remarks))
    if over is not None:
        values = _ratios(values, list(_values(output, _steps(over), remarks)))
    if not values:
        return None
    summary = _summary(values)
    return FoundFigure(**summary._asdict(), remarks=tuple(dict.fromkeys(remarks)))


def _ratios(tops: list[_Value], bottoms: list[_Value]) -> list[_Value]:
    if len(tops) != len(bottoms):
        tops, bottoms = ([_summary(values)] if values else [] for values in (tops, bottoms))
    ratios = [top.value / bottom.value for top, bottom in zip(tops, bottoms, strict=False) if bottom.value > 0]
    return [_Value(ratio, ratio, ratio, 1) for ratio in ratios]


def _summary(values: list[_Value]) -> _Value:
    return _Value(
        median(each.value for each in values),
        min(each.least for each in values),
        max(each.most for each in values),
        sum(each.samples for each in values),
    )


def _values(output: object, steps: list[tuple[str, list[tuple[str, str]]]], remarks: list[str]) -> Iterator[_Value]:
    """Yield the numbers at the end of the steps, and note what the objects on the way say against them."""
    if not steps:
        if isinstance(output, Mapping) and "median" in output:
            yield _Value(output["median"], output["min"], output["max"], output["n"])
        elif isinstance(output, int | float) and not isinstance(output, bool):
            yield _Value(output, output, output, 1)
        return
    (key, filters), *rest = steps
    if not isinstance(output, Mapping) or output.get(key) is None:
        return
    remarks += _remarks(output)
    below = output[key]
    for entry in below if isinstance(below, list) else [below]:
        if all(_text_of(entry, name) == wanted for name, wanted in filters):
            yield from _values(entry, rest, remarks)


def _text_of(entry: object, name: str) -> str | None:
    value = entry.get(name) if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) else json.dumps(value)


def _remarks(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a measurement of the laboratory or a sample of a bench says against its figures."""
    status, wait = entry.get("status"), entry.get("cpu_wait")
    if isinstance(status, str) and status != "ok":
        yield status
    if isinstance(wait, float) and wait > _LONG_WAIT:
        yield f"waited for its processor for {wait:.0%} of the time"

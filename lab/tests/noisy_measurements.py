"""Fabricated measurements with the noise of a shared machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringroad_lab.statistics.interleave import turns

# Noise of the logarithm of each measurement: 2.5 % in total, except for drift and where noted.
NOISES = ["steady", "normal", "heavy tails", "dips", "drift"]


def noise(kind: str, count: int, random: np.random.Generator) -> NDArray[np.floating[Any]]:
    """Return the noise of a series of measurements."""
    if kind == "steady":
        return random.normal(0, 0.01, count)
    if kind == "normal":
        return random.normal(0, 0.025, count)
    if kind == "heavy tails":
        # Student's t of 3 degrees of freedom has a variance of 3.
        return 0.025 * random.standard_t(3, count) / math.sqrt(3)
    if kind == "dips":
        # A neighbour takes the processor away in one measurement of ten; 2.5 % and more.
        return random.normal(0, 0.0175, count) - (random.random(count) < 0.1) * random.exponential(0.1, count)
    # The machine becomes 15 % slower over the run.
    return random.normal(0, 0.02, count) + np.linspace(0, -0.15, count)


def measured(
    kind: str, change: float, pairs: int, seed: int, *, scale: float = 1.0, is_interleaved: bool = True
) -> tuple[list[float], list[float]]:
    """Return the samples of a baseline and a candidate, measured in turns or one after the other; `scale` multiplies the noise."""
    order = turns(("baseline", "candidate"), pairs)
    in_a_row = [label for turn in order for label in turn] if is_interleaved else ["baseline"] * pairs + ["candidate"] * pairs
    factors = {"baseline": 1.0, "candidate": 1 + change}
    disturbances = np.exp(scale * noise(kind, 2 * pairs, np.random.default_rng(seed)))
    samples: dict[str, list[float]] = {"baseline": [], "candidate": []}
    for label, disturbance in zip(in_a_row, disturbances, strict=True):
        samples[label].append(1e6 * factors[label] * float(disturbance))
    return samples["baseline"], samples["candidate"]

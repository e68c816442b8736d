"""Spread of measurements of the same device, by estimator, from the samples that `collect.py` recorded.

`python spread.py [FILE]` prints the tables of docs/lab/statistics.md. A spread is the standard deviation of the logarithm
of the ratio of two measurements taken in turns: 0.10 is about 10 %.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np

from ringroad_lab.method.trial_series import MOST_REPEATS
from ringroad_lab.trial import DisturbanceLimits

RECORDED = Path(__file__).with_name("trials.jsonl")
LIMITS = DisturbanceLimits()
# Upper ends of the classes of disturbance.
_CLASSES = (0.05, 0.10, 0.20, 0.40, 0.60, 1.0)
_PAIRS = 6
_DRAWS = 4_000
_SEED = 2544


@dataclass(frozen=True)
class Trial:
    """A trial at a load above the device's capacity, or a search."""

    start: int
    kind: str
    fps: float
    disturbance: float
    """Fraction of the processor's time that others took."""

    @property
    def is_disturbed(self) -> bool:
        """Whether the disturbance is above the limit."""
        return self.disturbance > LIMITS.limit


def read(file: Path = RECORDED) -> list[Trial]:
    """Read the recorded trials; only complete starts, in pairs."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    whole = [row["start"] for row in rows if row["kind"] == "search"]
    kept = whole[: len(whole) // 2 * 2]
    return [
        Trial(row["start"], row["kind"], row["fps"], min(1.0, (row["steal_s"] + row["others_s"]) / row["elapsed_s"]))
        for row in rows
        if row["start"] in kept and row["valid"] and row["fps"]
    ]


def starts(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Return the overload trials of each start."""
    found: dict[int, list[Trial]] = {}
    for trial in trials:
        if trial.kind == "overload":
            found.setdefault(trial.start, []).append(trial)
    return list(found.values())


def least_disturbed(trials: Sequence[Trial]) -> float:
    """Return the figure if disturbed trials are repeated: of the first undisturbed trial, else of the least disturbed one tried."""
    tried = trials[: 1 + MOST_REPEATS]
    return next((trial for trial in tried if not trial.is_disturbed), min(tried, key=lambda trial: trial.disturbance)).fps


def _trimmed(values: Sequence[float]) -> float:
    cut = len(values) // 5
    return mean(sorted(values)[cut : len(values) - cut])


# Estimators of a measurement from the trials of one start.
WITHIN: dict[str, Callable[[Sequence[Trial]], float]] = {
    "one trial": lambda trials: trials[0].fps,
    "one trial, repeated while disturbed": least_disturbed,
    "mean of 12": lambda trials: mean(trial.fps for trial in trials),
    "median of 12": lambda trials: median(trial.fps for trial in trials),
    "mean of 12 without a fifth at each end": lambda trials: _trimmed([trial.fps for trial in trials]),
    "greatest of 4": lambda trials: max(trial.fps for trial in trials[:4]),
    "greatest of 12": lambda trials: max(trial.fps for trial in trials),
}

# Estimators of a comparison from measurements of a baseline and a candidate in turns, as a logarithm of their ratio.
BETWEEN: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "ratio of the means": lambda a, b: float(np.log(b.mean() / a.mean())),
    "ratio of the medians": lambda a, b: float(np.log(np.median(b) / np.median(a))),
    "ratio of the greatest": lambda a, b: float(np.log(b.max() / a.max())),
    "mean of the pairs' ratios": lambda a, b: float(np.log(b / a).mean()),
    "median of the pairs' ratios": lambda a, b: float(np.median(np.log(b / a))),
}


def pair_spread(figures: Sequence[float]) -> float:
    """Return the spread of the ratio of two consecutive starts."""
    return stdev(math.log(later / earlier) for earlier, later in zip(figures[::2], figures[1::2], strict=True)) if figures else 0.0


def within_spreads(trials: Sequence[Trial]) -> dict[str, float]:
    """Return the spread of each estimator of a measurement."""
    return {name: pair_spread([estimate(start) for start in starts(trials)]) for name, estimate in WITHIN.items()}


def between_spreads(figures: Sequence[float]) -> dict[str, float]:
    """Return the spread of each estimator of a comparison of 6 pairs, drawn from the recorded ones, in either order."""
    random = np.random.default_rng(_SEED)
    pairs = np.asarray(figures).reshape(-1, 2)
    found: dict[str, list[float]] = {name: [] for name in BETWEEN}
    for _ in range(_DRAWS):
        drawn = random.permuted(pairs[random.integers(0, len(pairs), _PAIRS)], axis=1)
        for name, estimate in BETWEEN.items():
            found[name].append(estimate(drawn[:, 0], drawn[:, 1]))
    return {name: float(np.std(ratios)) for name, ratios in found.items()}


def by_disturbance(trials: Sequence[Trial]) -> list[tuple[str, int, float, float]]:
    """Return for each class of disturbance the number of trials, their median relative to that of the first class, and their spread."""
    overload = [trial for trial in trials if trial.kind == "overload"]
    rows: list[tuple[str, int, float, float]] = []
    low, calm = 0.0, 0.0
    for high in _CLASSES:
        figures = [trial.fps for trial in overload if (low < trial.disturbance or not low) and trial.disturbance <= high]
        if len(figures) > 1:
            calm = calm or median(figures)
            rows.append((f"{low:.0%} to {high:.0%}", len(figures), median(figures) / calm, stdev(map(math.log, figures))))
        low = high
    return rows


def by_place(trials: Sequence[Trial], places: int = 4) -> list[float]:
    """Return the first trials after a start relative to the median of all trials of the start: the warm-up."""
    return [median(start[place].fps / median(trial.fps for trial in start) for start in starts(trials)) for place in range(places)]


def tables(trials: Sequence[Trial]) -> str:
    """Return all tables as Markdown."""
    searched = [trial.fps for trial in trials if trial.kind == "search"]
    calm = [least_disturbed(start) for start in starts(trials)]
    lines = ["| processor time that others took | trials | median, relative to the first row | spread of a trial |", "|---|---|---|---|"]
    lines += [f"| {name} | {count} | {part:.0%} | {spread:.2f} |" for name, count, part, spread in by_disturbance(trials)]
    lines += ["", "| figure of a measurement | spread of the ratio of two in turns |", "|---|---|"]
    lines += [f"| {name} | {spread:.2f} |" for name, spread in within_spreads(trials).items()]
    lines += [f"| throughput search | {pair_spread(searched):.2f} |"]
    lines += ["", "| comparison of 6 pairs | spread, of throughput searches | of trials repeated while disturbed |", "|---|---|---|"]
    of_searches, of_calm = between_spreads(searched), between_spreads(calm)
    lines += [f"| {name} | {of_searches[name]:.2f} | {of_calm[name]:.2f} |" for name in BETWEEN]
    return "\n".join(lines)


if __name__ == "__main__":
    recorded = read(Path(sys.argv[1])) if len(sys.argv) > 1 else read()
    print(tables(recorded))
    print(f"\n{len(starts(recorded))} starts; first trials after a start: {', '.join(f'{part:.2f}' for part in by_place(recorded))}")

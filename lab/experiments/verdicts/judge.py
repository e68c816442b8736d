"""What comparisons come to, of devices whose difference is known: from a run of `slowed-bridges.toml`.

`python judge.py RECORD.json` prints the table of docs/lab/statistics.md. The difference of two devices is the ratio of all their samples; a
comparison takes a part of them: the default number of pairs, each part once, or, until it is decided, as many as a run would measure.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from ringroad_lab.record import Better, RunRecord
from ringroad_lab.statistics.bootstrap import estimate_paired_ratio
from ringroad_lab.statistics.comparison import DEFAULT_PAIRS, compare
from ringroad_lab.statistics.sequential import GROWTH, look_confidence
from ringroad_lab.statistics.verdict import Verdict

BASELINE = "bridge"
METRIC = "mfr_fps"
COMPARISONS = 20
LOOKS = 4
Samples = dict[str, list[float]]


def read(file: Path) -> Samples:
    """Read the figures of each device in the order of the repetitions; those of repetitions that have one of all."""
    record = RunRecord.model_validate(json.loads(file.read_text()))
    labels = [dut.label for dut in record.duts]
    found: dict[int, dict[str, float]] = {}
    for each in record.measurements:
        if (metric := each.outcome.metrics.get(METRIC)) is not None:
            found.setdefault(each.repetition, {})[each.dut] = metric.value
    whole = [values for _, values in sorted(found.items()) if len(values) == len(labels)]
    return {label: [values[label] for values in whole] for label in labels}


def verdict(samples: Samples, device: str, first: int, pairs: int, look: int) -> Verdict:
    """Compare a device with the baseline by a part of the samples; look 0: it is the only look."""
    part = slice(first, first + pairs)
    baseline, candidate = samples[BASELINE][part], samples[device][part]
    return compare(baseline, candidate, better=Better.HIGHER, is_paired=True, confidence=look_confidence(look)).verdict


def at_default_effort(samples: Samples, device: str) -> Iterator[tuple[Verdict, int]]:
    """Compare by the default number of pairs; no sample is in two comparisons."""
    for first in range(0, len(samples[device]) - DEFAULT_PAIRS + 1, DEFAULT_PAIRS):
        yield verdict(samples, device, first, DEFAULT_PAIRS, 0), DEFAULT_PAIRS


def until_decided(samples: Samples, device: str) -> Iterator[tuple[Verdict, int]]:
    """Compare until it is decided. Comparisons begin at even distances, so that long ones share samples."""
    most = DEFAULT_PAIRS * GROWTH ** (LOOKS - 1)
    for first in np.linspace(0, len(samples[device]) - most, COMPARISONS).astype(int):
        found, pairs = Verdict.INCONCLUSIVE, DEFAULT_PAIRS
        for look in range(1, LOOKS + 1):
            pairs = DEFAULT_PAIRS * GROWTH ** (look - 1)
            found = verdict(samples, device, int(first), pairs, look)
            if found is not Verdict.INCONCLUSIVE:
                break
        yield found, pairs


def row(title: str, difference: str, comparisons: Sequence[tuple[Verdict, int]]) -> str:
    """Return a row of the table."""
    counts = Counter(found for found, _ in comparisons)
    told = [str(counts[each]) for each in (Verdict.REGRESSION, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.IMPROVEMENT)]
    return f"| {title} | {difference} | {len(comparisons)} | {' | '.join(told)} | {mean(pairs for _, pairs in comparisons):.0f} |"


def main() -> int:
    """Print the table."""
    samples = read(Path(sys.argv[1]))
    baseline = np.log(samples[BASELINE])
    print(f"{len(baseline)} repetitions")
    print("| effort | change | comparisons | regression | no difference | inconclusive | improvement | mean pairs |")
    print("|---|---|---|---|---|---|---|---|")
    for device in samples:
        if device == BASELINE:
            continue
        whole = estimate_paired_ratio(samples[BASELINE], samples[device], 0.95)
        low, high = (100 * (end - 1) for end in whole.interval)
        difference = f"{100 * (whole.ratio - 1):+.1f} % ({low:+.1f} to {high:+.1f})"
        spread = stdev(np.log(samples[device]) - baseline)
        print(row(f"{DEFAULT_PAIRS} pairs", difference, list(at_default_effort(samples, device))))
        print(row("until decided", f"spread of a pair {spread:.3f}", list(until_decided(samples, device))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

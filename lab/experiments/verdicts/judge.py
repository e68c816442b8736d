"""Verdicts of comparisons between devices whose difference is known: from a run of `slowed-bridges.toml`.

`python judge.py [RECORD.json | SAMPLES.csv]` prints the tables of docs/lab/statistics.md, by default from `samples.csv`.
`python judge.py RECORD.json --samples` prints the samples as CSV. The known difference of two devices is the ratio of all their samples. A
comparison uses a part of the samples: the default number of pairs, and each part once; or, until it is decided, as many pairs as a run
would measure.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from ringroad_lab.record import Better, RunRecord
from ringroad_lab.statistics.bootstrap import estimate_paired_ratio
from ringroad_lab.statistics.sequential import GROWTH, look_confidence
from ringroad_lab.statistics.two_samples import DEFAULT_PAIRS, compare
from ringroad_lab.statistics.verdict import Verdict

RECORDED = Path(__file__).with_name("samples.csv")
BASELINE = "bridge"
METRIC = "mfr_fps"
COMPARISONS = 20
LOOKS = 4
Samples = dict[str, list[float]]


def read(file: Path) -> Samples:
    """Return the samples of each device, in the order of the repetitions."""
    if file.suffix == ".csv":
        with file.open(newline="") as lines:
            rows = [{label: float(value) for label, value in row.items()} for row in csv.DictReader(lines)]
        return {label: [row[label] for row in rows] for label in rows[0]}
    record = RunRecord.model_validate(json.loads(file.read_text()))
    labels = [dut.label for dut in record.duts]
    found: dict[int, dict[str, float]] = {}
    for each in record.measurements:
        if (metric := each.outcome.metrics.get(METRIC)) is not None:
            found.setdefault(each.repetition, {})[each.dut] = metric.value
    whole = [values for _, values in sorted(found.items()) if len(values) == len(labels)]
    return {label: [values[label] for values in whole] for label in labels}


def verdict(samples: Samples, device: str, first: int, pairs: int, look: int) -> Verdict:
    """Compare a device with the baseline by a part of the samples; look 0 is a single comparison."""
    part = slice(first, first + pairs)
    baseline, candidate = samples[BASELINE][part], samples[device][part]
    return compare(baseline, candidate, better=Better.HIGHER, is_paired=True, confidence=look_confidence(look)).verdict


def at_default_effort(samples: Samples, device: str) -> Iterator[tuple[Verdict, int]]:
    """Compare with the default number of pairs; no sample is in two comparisons."""
    for first in range(0, len(samples[device]) - DEFAULT_PAIRS + 1, DEFAULT_PAIRS):
        yield verdict(samples, device, first, DEFAULT_PAIRS, 0), DEFAULT_PAIRS


def until_decided(samples: Samples, device: str) -> Iterator[tuple[Verdict, int]]:
    """Compare until decided. Comparisons begin at even distances, so long ones share samples."""
    most = DEFAULT_PAIRS * GROWTH ** (LOOKS - 1)
    for first in np.linspace(0, len(samples[device]) - most, COMPARISONS).astype(int):
        found, pairs = Verdict.INCONCLUSIVE, DEFAULT_PAIRS
        for look in range(1, LOOKS + 1):
            pairs = DEFAULT_PAIRS * GROWTH ** (look - 1)
            found = verdict(samples, device, int(first), pairs, look)
            if found is not Verdict.INCONCLUSIVE:
                break
        yield found, pairs


def row(device: str, effort: str, comparisons: Sequence[tuple[Verdict, int]]) -> str:
    """Return a row of the table."""
    counts = Counter(found for found, _ in comparisons)
    cells = [str(counts[each]) for each in (Verdict.REGRESSION, Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.IMPROVEMENT)]
    return f"| {device} | {effort} | {len(comparisons)} | {' | '.join(cells)} | {mean(pairs for _, pairs in comparisons):.0f} |"


def tables(samples: Samples) -> str:
    """Return the tables as Markdown."""
    baseline = np.log(samples[BASELINE])
    candidates = [device for device in samples if device != BASELINE]
    lines = [f"{len(baseline)} repetitions", "", "| device | ratio to the baseline, and its interval | spread of a pair |", "|---|---|---|"]
    for device in candidates:
        whole = estimate_paired_ratio(samples[BASELINE], samples[device], 0.95)
        change, low, high = (100 * (ratio - 1) for ratio in (whole.ratio, *whole.interval))
        lines += [f"| {device} | {change:+.1f} % ({low:+.1f} to {high:+.1f}) | {stdev(np.log(samples[device]) - baseline):.3f} |"]
    lines += ["", "| device | effort | comparisons | regression | no difference | inconclusive | improvement | mean pairs |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for device in candidates:
        lines += [row(device, f"{DEFAULT_PAIRS} pairs", list(at_default_effort(samples, device)))]
        lines += [row(device, "until decided", list(until_decided(samples, device)))]
    return "\n".join(lines)


def main() -> int:
    """Print the tables, or the samples."""
    samples = read(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDED)
    if sys.argv[2:] == ["--samples"]:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(samples)
        writer.writerows([round(value) for value in values] for values in zip(*samples.values(), strict=True))
    else:
        print(tables(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())

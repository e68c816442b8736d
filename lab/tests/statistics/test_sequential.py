"""Comparisons that continue until they are decided: their error rates, by simulation."""

from __future__ import annotations

import pytest

from noisy_measurements import NOISES, measured
from ringroad_lab.record import Better
from ringroad_lab.statistics.sequential import GROWTH, look_confidence
from ringroad_lab.statistics.two_samples import DEFAULT_PAIRS, compare
from ringroad_lab.statistics.verdict import Verdict

LOOKS = 4
COMPARISONS = 100


def decided(kind: str, change: float, seed: int, scale: float) -> tuple[Verdict, int]:
    """Return the verdict of a comparison that continues, and the number of pairs at its end."""
    most = DEFAULT_PAIRS * GROWTH ** (LOOKS - 1)
    samples = measured(kind, change, most, seed, scale=scale)
    verdict, pairs = Verdict.INCONCLUSIVE, DEFAULT_PAIRS
    for look in range(1, LOOKS + 1):
        pairs = DEFAULT_PAIRS * GROWTH ** (look - 1)
        baseline, candidate = (side[:pairs] for side in samples)
        verdict = compare(baseline, candidate, better=Better.HIGHER, is_paired=True, confidence=look_confidence(look)).verdict
        if verdict is not Verdict.INCONCLUSIVE:
            break
    return verdict, pairs


def test_all_looks_together_have_at_most_the_error_probability_of_one_comparison() -> None:
    assert look_confidence(0, 0.95) == pytest.approx(0.95)
    spent = [1 - look_confidence(look, 0.95) for look in range(1, 30)]
    assert spent[0] == pytest.approx(0.025)
    assert sum(spent) <= 0.05


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("scale", [1.0, 4.0, 12.0])
def test_at_any_noise_false_alarms_are_rare_and_no_difference_is_never_wrong(kind: str, scale: float) -> None:
    same = [decided(kind, 0.0, seed, scale)[0] for seed in range(COMPARISONS)]
    slower = [decided(kind, -0.05, seed, scale)[0] for seed in range(COMPARISONS)]
    assert sum(verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT) for verdict in same) <= 0.05 * COMPARISONS
    assert slower.count(Verdict.NO_DIFFERENCE) == 0
    assert slower.count(Verdict.IMPROVEMENT) <= 0.03 * COMPARISONS


@pytest.mark.parametrize("kind", NOISES)
def test_more_pairs_decide_undecided_comparisons(kind: str) -> None:
    for change, verdict in ((0.0, Verdict.NO_DIFFERENCE), (-0.05, Verdict.REGRESSION)):
        ends = [decided(kind, change, seed, 1.0) for seed in range(COMPARISONS)]
        assert sum(end[0] is verdict for end in ends) >= 0.8 * COMPARISONS, change

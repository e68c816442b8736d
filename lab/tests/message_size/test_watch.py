"""Disturbances of a sweep's parts: a real witness, and files in place of the kernel's counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ringroad_lab.facts.witness import View, Witness
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.interface import DisturbedRepeats
from ringroad_lab.trial import DisturbanceLimits

TICKS_PER_S = 100


class Steal:
    """A part that takes a second, and loses some of it to the hypervisor."""

    def __init__(self, folder: Path, lost_s: Sequence[float]) -> None:
        self.now_s, self.stolen_s = 0.0, 0.0
        self.view = View(folder, 1)
        # The machine's first namespace, which hides nothing.
        (folder / "2").mkdir(parents=True)
        (folder / "2/stat").write_text(f"2 (kthreadd) S 0 {'0 ' * 50}")
        self._lost_s = iter(lost_s)
        self._write()

    def run(self) -> float:
        lost_s = next(self._lost_s)
        self.now_s += 1.0
        self.stolen_s += lost_s
        self._write()
        return lost_s

    def _write(self) -> None:
        (self.view.proc / "stat").write_text(f"cpu0 0 0 0 0 0 0 0 {round(self.stolen_s * TICKS_PER_S)} 0 0\n")


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[SweepWatch, Steal]]:
    def make(*lost_s: float, extra_trials: int = 6, extra_s: float = 15.0) -> tuple[SweepWatch, Steal]:
        steal = Steal(tmp_path, lost_s)
        monkeypatch.setattr("time.monotonic", lambda: steal.now_s)
        limits = DisturbanceLimits(extra_trials=extra_trials, extra_s=extra_s)
        return SweepWatch(Witness({0}, limits.limit, view=steal.view), DisturbedRepeats(limits)), steal

    return make


Made = Callable[..., tuple[SweepWatch, Steal]]


@pytest.mark.parametrize(
    ("lost_s", "options", "kept_s", "marks"),
    [
        pytest.param((0.04,), {}, 0.04, [(False, False)], id="calm"),
        pytest.param((0.5, 0.0), {}, 0.0, [(True, True), (False, False)], id="repeated"),
        pytest.param((0.5, 0.6, 0.3, 0.4), {}, 0.3, [(True, True), (True, True), (True, True), (True, False)], id="the-calmest-counts"),
        pytest.param((0.5, 0.3), {"extra_trials": 1}, 0.3, [(True, True), (True, False)], id="no-trials-left"),
        pytest.param((0.5,), {"extra_s": 0.5}, 0.5, [(True, False)], id="too-long-to-repeat"),
    ],
)
def test_a_disturbed_part_is_repeated_within_the_budget(
    watched: Made, lost_s: Sequence[float], options: dict[str, float], kept_s: float, marks: list[tuple[bool, bool]]
) -> None:
    watch, steal = watched(*lost_s, **options)
    assert watch.over("sockperf-udp, 14 bytes", steal.run) == kept_s
    assert [(part.is_disturbed, part.is_repeated) for part in watch.parts] == marks
    assert {part.name for part in watch.parts} == {"sockperf-udp, 14 bytes"}
    assert watch.parts[-1].disturbance.steal_s == pytest.approx(kept_s)


def test_the_parts_of_a_sweep_share_its_budget(watched: Made) -> None:
    watch, steal = watched(0.5, 0.0, 0.5, extra_trials=1)
    assert watch.over("one", steal.run) == 0.0
    assert watch.over("two", steal.run) == 0.5
    assert [part.name for part in watch.parts] == ["one", "one", "two"]

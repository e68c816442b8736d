"""The generator's own ceiling: the search on a simulated generator, and real loops."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.errors import GeneratorError, MissingProgramError
from ringroad_lab.frame_size import IMIX, FrameMix
from ringroad_lab.generator import self_test
from ringroad_lab.generator.interface import Generator, GeneratorSettings
from ringroad_lab.generator.otg_client import OtgClient
from ringroad_lab.generator.ringroad import RingroadGenerator
from ringroad_lab.generator.self_test import OVERLOAD_FPS, STEP_UP, measure_ceiling, search_ceiling
from ringroad_lab.host.local import LocalHost
from ringroad_lab.trial import DirectionCounts, Load, TrialRequest, TrialResult, TrialVerdict

FRAME = FrameMix(name="64", parts=((64, 1),))
LOAD = Load(frame=FRAME, rate_fps=1)


class SimulatedLoop(Generator):
    """Carries `capacity_fps`, and of an overload only a part of that."""

    def __init__(self, capacity_fps: float, overload_part: float) -> None:
        """Take the capacity."""
        self.capacity_fps = capacity_fps
        self.overload_part = overload_part

    def version(self) -> str:
        """Return a name."""
        return "simulated"

    def trial(self, request: TrialRequest) -> TrialResult:
        """Send as much as the loop carries."""
        rate_fps = request.load.rate_fps
        is_carried = rate_fps <= self.capacity_fps
        sent = round((rate_fps if is_carried else self.capacity_fps * self.overload_part) * request.duration_s)
        way = DirectionCounts(
            sender="1",
            receiver="2",
            intended_frames=round(rate_fps * request.duration_s),
            sent_frames=sent,
            received_frames=sent,
            transmit_s=request.duration_s,
        )
        verdict = TrialVerdict.VALID if is_carried else TrialVerdict.INVALID
        reasons = () if is_carried else ("too slow",)
        return TrialResult(request=request, started_at=time.time(), verdict=verdict, reasons=reasons, directions=(way,), clock_error=1e-6)


@given(capacity_fps=st.floats(1e4, OVERLOAD_FPS / 2), overload_part=st.floats(0.4, 1.0))
def test_the_ceiling_is_carried_and_near_the_capacity(capacity_fps: float, overload_part: float) -> None:
    ceiling = search_ceiling(SimulatedLoop(capacity_fps, overload_part), CableKind.MEMIF, LOAD, trial_s=1.0)
    assert ceiling.ceiling_fps <= capacity_fps
    assert ceiling.ceiling_fps >= capacity_fps / STEP_UP - 1
    assert (ceiling.transport, ceiling.frame, ceiling.clock_error) == ("memif", FRAME, 1e-6)


def test_a_loop_that_carries_nothing_is_an_error() -> None:
    with pytest.raises(GeneratorError, match="does not carry 64 frames over memif to itself: too slow"):
        search_ceiling(SimulatedLoop(0.0, 1.0), CableKind.MEMIF, LOAD, trial_s=1.0)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


@pytest.fixture
def generator(host: LocalHost) -> Iterator[RingroadGenerator]:
    made = RingroadGenerator(GeneratorSettings(), host, frozenset({min(os.sched_getaffinity(0))}))
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("kind", [CableKind.MEMIF, CableKind.VHOST_USER])
def test_real_loops_of_shared_memory_have_a_ceiling(host: LocalHost, generator: RingroadGenerator, kind: CableKind) -> None:
    ceiling = measure_ceiling(generator.client, host, kind, LOAD.model_copy(update={"frame": IMIX}), trial_s=0.05)
    assert 0 < ceiling.ceiling_fps < OVERLOAD_FPS
    generator.check()
    assert not [name for name in os.listdir(host.folder) if name.endswith(".sock")]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_real_loop_of_interfaces_has_a_ceiling(host: LocalHost, generator: RingroadGenerator) -> None:
    ceiling = measure_ceiling(generator.client, host, CableKind.VETH, LOAD.model_copy(update={"bidirectional": False}), trial_s=0.05)
    assert 0 < ceiling.ceiling_fps < OVERLOAD_FPS


def test_the_cable_is_removed_even_if_the_generator_does_not_respond(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[CableKind] = []
    monkeypatch.setattr(self_test, "remove_cable", lambda cable, _host: removed.append(cable.kind))
    with pytest.raises(GeneratorError, match="does not answer /config"):
        measure_ceiling(OtgClient("http://127.0.0.1:1", timeout_s=5), host, CableKind.MEMIF, LOAD)
    assert removed == [CableKind.MEMIF]


def test_network_cards_cannot_be_looped(host: LocalHost, generator: RingroadGenerator) -> None:
    with pytest.raises(GeneratorError, match="cannot be looped by nic"):
        measure_ceiling(generator.client, host, CableKind.NIC, LOAD)


def test_a_generator_that_has_ended_is_reported_with_its_output(host: LocalHost, generator: RingroadGenerator) -> None:
    generator.processes()[0].stop()
    with pytest.raises(GeneratorError, match=r'the generator ended with status -?\d+: \{"ready":true'):
        generator.check()


def test_a_missing_generator_is_named(host: LocalHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RINGROAD_BIN_DIR", str(tmp_path))
    with pytest.raises(MissingProgramError, match="ringroad is not installed"):
        RingroadGenerator(GeneratorSettings(), host, frozenset()).start()

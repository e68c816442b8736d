"""A generator that books losses: counters are read before and after each trial; counters that cannot be read are unknown."""

from __future__ import annotations

from ringroad_lab.errors import DutError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.generator.booked import BookedGenerator
from ringroad_lab.loss import EndCounts, HopCounters, paths
from ringroad_lab.trial import Load, TrialRequest, TrialResult
from simulated_generator import SimulatedDut, SimulatedGenerator

REQUEST = TrialRequest(load=Load(frame=parse_frame_mix("64"), rate_fps=2000.0, bidirectional=False), duration_s=1.0)
WAYS = paths(("a", "b"), (1, 2), has_interfaces=True)


class Counting(SimulatedGenerator):
    """A simulated generator that reports the counters of its ports."""

    def trial(self, request: TrialRequest) -> TrialResult:
        result = super().trial(request)
        ways = [
            way.model_copy(update={"port_sent_frames": way.sent_frames, "port_received_frames": way.received_frames})
            for way in result.directions
        ]
        return result.model_copy(update={"directions": tuple(ways)})


def counters(came: int, went: int, dropped: int) -> HopCounters:
    return HopCounters({1: EndCounts(came, 0), 2: EndCounts(0, went)}, {"b": EndCounts(went, 0)}, {"device: 2.tx_dropped": dropped})


def test_each_trial_has_its_own_losses_and_drops() -> None:
    # The device forwards 1000 of 2000 frames a second.
    read = iter([counters(0, 0, 7), counters(2000, 1000, 1007), counters(2000, 1000, 1007), counters(4000, 2000, 2007)])
    generator = BookedGenerator(Counting(SimulatedDut(capacity_fps=1000.0)), WAYS, lambda: next(read))
    for _ in range(2):
        result = generator.trial(REQUEST)
        (way,) = result.directions
        assert way.loss is not None
        assert (way.loss.in_device, way.loss.frames, way.lost_frames) == (1000, 1000, 1000)
        assert result.drop_counters == {"device: 2.tx_dropped": 1000}


def test_counters_that_cannot_be_read_are_unknown() -> None:
    def count() -> HopCounters:
        raise DutError("it does not answer")

    (way,) = BookedGenerator(Counting(SimulatedDut(capacity_fps=1000.0)), WAYS, count).trial(REQUEST).directions
    assert way.loss is not None
    assert (way.loss.in_device, way.loss.at_receiver, way.loss.unexplained) == (None, None, 1000)

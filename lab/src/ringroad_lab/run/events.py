"""Messages between the inner and the outer process of a run: one JSON value per line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, Measurement, Series
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.trial import Frozen, TrialVerdict


class Assignment(Frozen):
    """Work of the inner process: the first line of its input."""

    scenarios: Annotated[tuple[Scenario, ...], Field(min_length=1)]
    measured: tuple[int, ...] = ()
    """Numbers of the measurements that exist already."""
    asks: bool = False
    """Whether the inner process asks before each trial, and waits for the answer."""


STOP_LINE = "stop\n"
"""No more trials."""
GO_LINE = "go\n"
"""The answer to `TrialAsked`."""


class StepNamed(Frozen):
    """The current step while a test setup is built."""

    kind: Literal["step-named"] = "step-named"
    text: str


class HugePagesNeeded(Frozen):
    """A device is about to start, and too few huge pages are free: the outer process adds pages, and the inner process waits for them."""

    kind: Literal["huge-pages-needed"] = "huge-pages-needed"
    mib: int


class SetupReady(Frozen):
    """A device and its generator were started."""

    kind: Literal["bed-ready"] = "bed-ready"
    dut: DutRecord
    repetition: int
    generator_version: str = ""


class CeilingFound(Frozen):
    """A self-test of the generator found its ceiling."""

    kind: Literal["ceiling-found"] = "ceiling-found"
    ceiling: GeneratorCeiling


class SelfTestFailed(Frozen):
    """A self-test of the generator failed: it carried no traffic."""

    kind: Literal["self-test-failed"] = "self-test-failed"
    text: str


class TrialAsked(Frozen):
    """A trial is waiting for `GO_LINE`."""

    kind: Literal["trial-asked"] = "trial-asked"


class StopRequested(Frozen):
    """The inner process has read `STOP_LINE`: the current trial is the last one.

    The outer process tells the user only now: its signal handler, which can interrupt any output, must not write.
    """

    kind: Literal["stop-requested"] = "stop-requested"


class MeasurementBegan(Frozen):
    """A measurement starts."""

    kind: Literal["step-began"] = "step-began"
    number: int
    dut: str
    method: str
    frame: str
    repetition: int
    expected_s: float


class TrialDone(Frozen):
    """A trial ended; for the progress only, the measurement contains the trial too."""

    kind: Literal["trial-done"] = "trial-done"
    number: int
    purpose: str
    rate_fps: float
    verdict: TrialVerdict
    loss_ratio: float
    is_disturbed: bool = False


class RemainingKnown(Frozen):
    """The remaining time of the current measurement, s."""

    kind: Literal["remaining-known"] = "remaining-known"
    number: int
    remaining_s: float


class MeasurementDone(Frozen):
    """A measurement ended; the outer process stores it."""

    kind: Literal["measurement-done"] = "measurement-done"
    measurement: Measurement


class SetupEnded(Frozen):
    """A device was stopped: its samples, and the output of its programs."""

    kind: Literal["bed-ended"] = "bed-ended"
    series: tuple[Series, ...] = ()
    logs: tuple[LogExcerpt, ...] = ()


class Warned(Frozen):
    """A warning for the user; the run continues."""

    kind: Literal["warned"] = "warned"
    text: str


class DeviceGivenUp(Frozen):
    """A device failed to start in the same way again and again: its other measurements are not tried."""

    kind: Literal["device-given-up"] = "device-given-up"
    dut: str
    reason: str


class Ended(Frozen):
    """The last event."""

    kind: Literal["ended"] = "ended"
    is_stopped: bool = False
    failure: str = ""
    exit_status: int = 0


Event = Annotated[
    StepNamed
    | HugePagesNeeded
    | SetupReady
    | CeilingFound
    | SelfTestFailed
    | TrialAsked
    | StopRequested
    | MeasurementBegan
    | TrialDone
    | RemainingKnown
    | MeasurementDone
    | SetupEnded
    | Warned
    | DeviceGivenUp
    | Ended,
    Field(discriminator="kind"),
]
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)

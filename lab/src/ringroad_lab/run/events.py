"""Messages between the inner and the outer process of a run: one JSON value per line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, Measurement, Series
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.trial import Frozen, TrialVerdict


class Job(Frozen):
    """What the inner process is to do: the first line that it gets."""

    scenarios: Annotated[tuple[Scenario, ...], Field(min_length=1)]
    measured: tuple[int, ...] = ()
    """Numbers of the measurements that are there already."""
    asks: bool = False
    """Whether it asks before each trial, and waits for the answer."""


STOP_LINE = "stop\n"
"""No more trials."""
GO_LINE = "go\n"
"""The answer to `TrialAsked`."""


class StepNamed(Frozen):
    """What is being done while a bed is made."""

    kind: Literal["step-named"] = "step-named"
    text: str


class HugePagesNeeded(Frozen):
    """A device is about to start, and too few huge pages are free: the outer process has them raised. The inner one waits for them."""

    kind: Literal["huge-pages-needed"] = "huge-pages-needed"
    mib: int


class BedReady(Frozen):
    """A device was started, and the generator beside it."""

    kind: Literal["bed-ready"] = "bed-ready"
    dut: DutRecord
    repetition: int
    generator_version: str = ""


class CeilingFound(Frozen):
    """The generator tested itself."""

    kind: Literal["ceiling-found"] = "ceiling-found"
    ceiling: GeneratorCeiling


class SelfTestFailed(Frozen):
    """The generator tested itself, and carries nothing."""

    kind: Literal["self-test-failed"] = "self-test-failed"
    text: str


class TrialAsked(Frozen):
    """A trial is to begin as soon as it is answered by `GO_LINE`."""

    kind: Literal["trial-asked"] = "trial-asked"


class StepBegan(Frozen):
    """A measurement begins."""

    kind: Literal["step-began"] = "step-began"
    number: int
    dut: str
    method: str
    frame: str
    repetition: int
    expected_s: float


class TrialDone(Frozen):
    """A trial is over; for the progress only, it comes again in its measurement."""

    kind: Literal["trial-done"] = "trial-done"
    number: int
    purpose: str
    rate_fps: float
    verdict: TrialVerdict
    loss_ratio: float
    is_disturbed: bool = False


class RemainingKnown(Frozen):
    """The measurement under way will take so much longer, s."""

    kind: Literal["remaining-known"] = "remaining-known"
    number: int
    remaining_s: float


class MeasurementDone(Frozen):
    """A measurement is there, and is kept from now on."""

    kind: Literal["measurement-done"] = "measurement-done"
    measurement: Measurement


class BedEnded(Frozen):
    """A device was stopped: what was watched beside it, and what its programs said."""

    kind: Literal["bed-ended"] = "bed-ended"
    series: tuple[Series, ...] = ()
    logs: tuple[LogExcerpt, ...] = ()


class Warned(Frozen):
    """Something that the user should know, and that ends nothing."""

    kind: Literal["warned"] = "warned"
    text: str


class Ended(Frozen):
    """The last event."""

    kind: Literal["ended"] = "ended"
    is_stopped: bool = False
    failure: str = ""
    exit_status: int = 0


Event = Annotated[
    StepNamed
    | HugePagesNeeded
    | BedReady
    | CeilingFound
    | SelfTestFailed
    | TrialAsked
    | StepBegan
    | TrialDone
    | RemainingKnown
    | MeasurementDone
    | BedEnded
    | Warned
    | Ended,
    Field(discriminator="kind"),
]
EVENTS: TypeAdapter[Event] = TypeAdapter(Event)

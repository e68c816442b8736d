"""Interfaces of test setups and stations to the schedule runner, so that tests can simulate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ringroad_lab.cost import CostMeter
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.method.interface import MethodSettings
from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, Outcome, Series, StepRecord
from ringroad_lab.scenario.model import DutChoice, Scenario, StepChoice
from ringroad_lab.trial import FlowSet


class Samples(Protocol):
    """Samples of a device and its peers, and their logs."""

    def series(self) -> Sequence[Series]:
        """Return the samples since the start of all parts: processor time, memory, steal time."""

    def warnings(self) -> Sequence[str]:
        """Return reasons to doubt the measurements: processor time used by other programs, ..."""

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the end of the programs' output."""


class Setup(Protocol):
    """A test setup: a device under test with its guests, connected to a generator."""

    @property
    def generator(self) -> Generator:
        """The generator of the load."""

    @property
    def costs(self) -> CostMeter:
        """Measures the processor time of the device."""

    def generator_version(self) -> str:
        """Return the generator's name and version."""

    def record(self) -> DutRecord:
        """Return the record of the device."""

    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return the generator's ceiling for such frames; None if the ceiling cannot be measured."""

    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        """Run a test step with additional environment variables, and check its result."""

    def check(self) -> None:
        """Check that the device and its guests are alive.

        Raises:
            DutError, GuestError: one of them ended; the message has the end of its log.
        """

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Put the entries of a flow set into the device's flow table, or its default entries if None; return how long that took, s.

        Raises:
            DutError: the device has no flow table, or rejected the entries.
        """

    def collect(self) -> dict[str, int]:
        """Return the device's counters.

        Raises:
            DutError: the device does not report them.
        """


class Stations(Protocol):
    """Two stations joined by a device, for methods that measure between stations. Every method raises LabError if it fails."""

    def record(self) -> DutRecord:
        """Return the record of the device."""

    def measure(self) -> Outcome:
        """Measure between the stations."""

    def collect(self) -> dict[str, int]:
        """Return the device's counters."""


class SetupFactory(Protocol):
    """Makes test setups and stations, which are sampled while they are up. Both raise LabError if something could not be built."""

    def make(self, scenario: Scenario, choice: DutChoice) -> AbstractContextManager[tuple[Setup, Samples]]:
        """Build a test setup, and take it down at the end of the block."""

    def make_stations(
        self, scenario: Scenario, choice: DutChoice, settings: MethodSettings
    ) -> AbstractContextManager[tuple[Stations, Samples]]:
        """Join two stations by a device, for a method with these settings, and take everything down at the end of the block."""

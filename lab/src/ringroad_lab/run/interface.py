"""What the schedule runner needs of test setups and stations, so that tests can simulate them."""

from __future__ import annotations

from abc import ABC, abstractmethod
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


class SampledDut(ABC):
    """A device under test with its peers, all of them sampled."""

    @abstractmethod
    def record(self) -> DutRecord:
        """Return the record of the device."""

    @abstractmethod
    def collect(self) -> dict[str, int]:
        """Return the device's counters.

        Raises:
            DutError: the device does not report them.
        """

    @abstractmethod
    def samples(self) -> Sequence[Series]:
        """Return the samples since the start of all parts: processor time, memory, steal time."""

    @abstractmethod
    def warnings(self) -> Sequence[str]:
        """Return reasons to doubt the measurements: processor time used by other programs, ..."""

    @abstractmethod
    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of the programs."""


class SampledSetup(SampledDut):
    """A test setup: a device under test with its guests, connected to a generator."""

    @property
    @abstractmethod
    def generator(self) -> Generator:
        """The generator of the load."""

    @abstractmethod
    def generator_version(self) -> str:
        """Return the generator's name and version."""

    @abstractmethod
    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return the generator's ceiling for such frames; None if the ceiling cannot be measured."""

    @abstractmethod
    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        """Run a test step with additional environment variables, and check its result."""

    @abstractmethod
    def check(self) -> None:
        """Check that the device and its guests are alive.

        Raises:
            DutError, GuestError: one of them ended; the message has the end of its log.
        """

    @property
    @abstractmethod
    def costs(self) -> CostMeter:
        """Measures the processor time of the device."""

    @abstractmethod
    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Put the entries of a flow set into the device's flow table, or its default entries if None; return how long that took, s.

        Raises:
            DutError: the device has no flow table, or rejected the entries.
        """


class Stations(SampledDut):
    """Two stations joined by a device, for methods that measure between stations."""

    @abstractmethod
    def measure(self) -> Outcome:
        """Measure between the stations.

        Raises:
            LabError: the measurement failed.
        """


class SetupFactory(Protocol):
    """Makes test setups and stations."""

    def make(self, scenario: Scenario, choice: DutChoice) -> AbstractContextManager[SampledSetup]:
        """Build a test setup, and take it down at the end of the block.

        Raises:
            LabError: something could not be built.
        """

    def make_stations(self, scenario: Scenario, choice: DutChoice, settings: MethodSettings) -> AbstractContextManager[Stations]:
        """Join two stations by a device, for a method with these settings, and take everything down at the end of the block.

        Raises:
            LabError: something could not be built.
        """

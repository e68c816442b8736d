"""The methods' interface to a generator."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ringroad_lab.trial import TrialRequest, TrialResult


class Generator(ABC):
    """Offers loads to the device under test, one trial after the other, and counts what it forwards."""

    @abstractmethod
    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, wait for the last frames, count.

        Raises:
            GeneratorError: it could not be done at all. A load that could not be carried gives an invalid result instead.
        """

    @abstractmethod
    def version(self) -> str:
        """Return name and version, for the facts of a run."""

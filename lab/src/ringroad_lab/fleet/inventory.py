"""Beds of a fleet, from `[bed.NAME]` in `fleet.toml`: machines that are cabled to each other, and what can run on them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import Field, model_validator

from ringroad_lab.request.model import ANY_BED
from ringroad_lab.scenario.toml_text import toml_text
from ringroad_lab.text_types import Name, Setting, Word
from ringroad_lab.trial import Frozen

GENERATOR = "generator"
"""The role of the machine on which `ringroad-lab` runs."""


class BedSettings(Frozen):
    """A bed: it measures one run at a time."""

    bed_class: Annotated[Name, Field(alias="class")] = ANY_BED
    """Requests for this class or for `any` can use the bed."""
    machines: Annotated[Mapping[Name, Word], Field(min_length=1, max_length=16)]
    """Machine names in the engine, by role (`generator`, `dut`). A generator is required."""
    scenarios: Annotated[tuple[Word, ...], Field(min_length=1, max_length=100)] = ("*",)
    """Globs of the names of the scenarios that the bed's cards and cables fit."""
    layers: Annotated[tuple[Word, ...], Field(max_length=20)] = ()
    settings: Annotated[tuple[Setting, ...], Field(max_length=50)] = ()
    """Settings of the bed's runs in addition to those of the request: its cards, its processors."""
    calibration_limit: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Allowed drop of the load that the generator carries alone, as a fraction; a larger drop puts the bed into quarantine."""
    calibration_minimum_fps: Mapping[Word, Annotated[float, Field(gt=0)]] = {}
    """Minimum load of the generator alone, by the name of the frame size, frames/s each way."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if GENERATOR not in self.machines:
            raise ValueError(f"has no machine of the role '{GENERATOR}', which runs the laboratory")
        return self

    def fits(self, bed_class: str, scenario: str) -> bool:
        """Return whether a request for a bed class and a scenario can use the bed."""
        return self.fits_class(bed_class) and any(fnmatchcase(scenario, glob) for glob in self.scenarios)

    def fits_class(self, bed_class: str) -> bool:
        """Return whether a request for a bed class can use the bed, regardless of its scenario."""
        return bed_class in (ANY_BED, self.bed_class)

    def is_of_machine(self, machine: str) -> bool:
        """Return whether the laboratory of this bed runs on the machine of this name."""
        named = self.machines[GENERATOR]
        return named == "localhost" or named.partition(".")[0] == machine.partition(".")[0]


def fitting(beds: Mapping[str, BedSettings], bed_class: str, scenario: str) -> frozenset[str]:
    """Return the names of the beds that a request for a bed class and a scenario can use."""
    return frozenset(name for name, bed in beds.items() if bed.fits(bed_class, scenario))


def fleet_file(beds: Mapping[str, BedSettings]) -> str:
    """Return a `fleet.toml` with these beds; a job brings this file to its machines."""
    return toml_text({"bed": {name: bed.model_dump(mode="json", by_alias=True, exclude_defaults=True) for name, bed in beds.items()}})

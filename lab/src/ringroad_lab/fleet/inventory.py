"""Beds of a fleet, as `fleet.toml` has them: `[bed.NAME]`, the machines that are cabled to each other and what may run on them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import Field, model_validator

from ringroad_lab.fleet.request import ANY_BED, Name, Setting, Word
from ringroad_lab.scenario.toml_text import toml_text
from ringroad_lab.trial import Frozen

GENERATOR = "generator"
"""The role of the machine on which `ringroad-lab` runs."""


class Bed(Frozen):
    """A bed: it measures one run at a time."""

    bed_class: Annotated[Name, Field(alias="class")] = ANY_BED
    """Requests that ask for this class, or for any, may have it."""
    machines: Annotated[Mapping[Name, Word], Field(min_length=1, max_length=16)]
    """By their roles, as `generator` and `dut`; by the names that the engine has for them. There is a generator always."""
    scenarios: Annotated[tuple[Word, ...], Field(min_length=1, max_length=100)] = ("*",)
    """Globs of the names of the scenarios that its cards and cables fit."""
    layers: Annotated[tuple[Word, ...], Field(max_length=20)] = ()
    settings: Annotated[tuple[Setting, ...], Field(max_length=50)] = ()
    """What its runs have besides those of the request: its cards, its processors."""
    calibration_limit: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """By how much less than before its generator may carry by itself, as a part, before it goes into quarantine."""
    calibration_minimum_fps: Mapping[Word, Annotated[float, Field(gt=0)]] = {}
    """The least that it has to carry, by the name of the frame size, frames/s each way."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if GENERATOR not in self.machines:
            raise ValueError(f"has no machine of the role '{GENERATOR}', on which the laboratory runs")
        return self

    def fits(self, bed_class: str, scenario: str) -> bool:
        """Whether a request for a class of bed and a scenario may have it."""
        return self.fits_class(bed_class) and any(fnmatchcase(scenario, glob) for glob in self.scenarios)

    def fits_class(self, bed_class: str) -> bool:
        """Whether a request for a class of bed may have it, whatever its scenario."""
        return bed_class in (ANY_BED, self.bed_class)

    def is_of_machine(self, machine: str) -> bool:
        """Whether the machine of this name is the one on which the laboratory runs."""
        named = self.machines[GENERATOR]
        return named == "localhost" or named.partition(".")[0] == machine.partition(".")[0]


def fitting(beds: Mapping[str, Bed], bed_class: str, scenario: str) -> frozenset[str]:
    """Return the names of the beds that a request for a class of bed and a scenario may have."""
    return frozenset(name for name, bed in beds.items() if bed.fits(bed_class, scenario))


def fleet_file(beds: Mapping[str, Bed]) -> str:
    """Return a `fleet.toml` that has these beds: a job brings its own to its machines."""
    return toml_text({"bed": {name: bed.model_dump(mode="json", by_alias=True, exclude_defaults=True) for name, bed in beds.items()}})

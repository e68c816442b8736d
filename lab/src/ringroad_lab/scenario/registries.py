"""All drivers, guests, methods and generators that a scenario can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringroad_lab.dut.interface import DUTS, Dut
from ringroad_lab.generator.interface import GENERATORS, GeneratorDriver
from ringroad_lab.guest.interface import GUESTS, Guest
from ringroad_lab.method.interface import METHODS, Method


@dataclass(frozen=True)
class Registries:
    """Classes by the names that scenarios use; by default the installed ones."""

    duts: Mapping[str, type[Dut]] = DUTS
    guests: Mapping[str, type[Guest]] = GUESTS
    methods: Mapping[str, type[Method]] = METHODS
    generators: Mapping[str, type[GeneratorDriver]] = GENERATORS

"""All drivers, guests and methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringroad_lab.dut.interface import Dut
from ringroad_lab.guest.interface import Guest
from ringroad_lab.method.interface import Method


@dataclass(frozen=True)
class Registries:
    """Classes by the names that scenarios use."""

    duts: Mapping[str, type[Dut]]
    guests: Mapping[str, type[Guest]]
    methods: Mapping[str, type[Method]]

    @classmethod
    def load(cls) -> Registries:
        """Take those of the package. They are imported here, because they bring all that the drivers stand on."""
        from ringroad_lab.dut.registry import DUTS
        from ringroad_lab.guest.registry import GUESTS
        from ringroad_lab.method.registry import METHODS

        return cls(DUTS, GUESTS, METHODS)

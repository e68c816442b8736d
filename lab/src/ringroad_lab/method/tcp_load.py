"""The throughput of TCP between two stations, by iperf3: connections that send as fast as congestion control lets them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.method.message_size import BOOT_S, StationMethod, StationSettings


class TcpLoadSettings(StationSettings):
    """Settings of a load."""

    streams: Annotated[int, Field(ge=1, le=128)] = 1
    """Connections of each direction, side by side."""
    both_directions: bool = False
    """Whether the second station sends at the same time."""
    duration_s: Annotated[int, Field(ge=1, le=86_400)] = 10
    omit_s: Annotated[int, Field(ge=0, le=60)] = 1
    """Time before the measurement, in which TCP finds its rate (slow start)."""


class TcpLoadMethod(StationMethod):
    """Loads the device with TCP."""

    title: ClassVar[str] = "Throughput of TCP (iperf3)"
    settings_type: ClassVar[type[StationSettings]] = TcpLoadSettings
    settings: TcpLoadSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of a load, s."""
        boot_s = BOOT_S if self.settings.stations == "guests" else 0.0
        return boot_s + self.settings.omit_s + self.settings.duration_s + trial_overhead_s

    def deviations(self) -> tuple[str, ...]:
        """Return the conditions of the measurement."""
        return (
            f"TCP load: {self.settings.conditions()}.",
            "TCP load: TCP answers loss with a lower rate, so the figure depends on the kernel's congestion control (RFC 6349).",
        )

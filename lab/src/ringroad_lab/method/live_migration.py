"""Live migration of a guest between two switches: how long it is silent, and which frames are lost."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ringroad_lab.method.message_size import BOOT_S, PLACEMENTS, StationMethod, StationSettings

# Time of filling the guest's memory, of the migration itself, and of the checks afterwards, s.
_MIGRATION_S = 8.0


class LiveMigrationSettings(StationSettings):
    """Settings of a migration. Downtime and bandwidth have QEMU's defaults."""

    stations: Literal["guests"] = "guests"
    """The guest is a virtual machine. The other station is a network namespace."""
    messages_per_s: Annotated[int, Field(ge=1, le=1000)] = 500
    """Messages that the other station sends to the guest; the guest answers each with one of the same length."""
    message_bytes: Annotated[int, Field(ge=16, le=1472)] = 1000
    """Length of a message, without the headers of IPv4 and ICMP."""
    steady_s: Annotated[float, Field(gt=0, le=3600)] = 3.0
    """Time of traffic before the migration, and after it, s."""
    memory_mib: Annotated[int, Field(ge=1, le=96)] = 32
    """Random data in the guest's memory. They must be the same after the migration."""
    downtime_limit_ms: Annotated[int, Field(ge=1, le=2_000_000)] = 300
    """QEMU stops the guest when the rest of its memory can be moved in this time (`downtime-limit`)."""
    bandwidth_mib_s: Annotated[int, Field(ge=1, le=100_000)] = 128
    """Greatest rate at which QEMU moves memory, MiB/s (`max-bandwidth`)."""
    timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """Timeout of the migration."""


class LiveMigrationMethod(StationMethod):
    """Migrates a guest under load."""

    title: ClassVar[str] = "Live migration of a guest between two switches (QEMU, ping)"
    settings_type: ClassVar[type[StationSettings]] = LiveMigrationSettings
    settings: LiveMigrationSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of a migration, s."""
        return BOOT_S + 2 * self.settings.steady_s + _MIGRATION_S + trial_overhead_s

    def deviations(self) -> tuple[str, ...]:
        """Return the conditions of the measurement."""
        settings = self.settings
        return (
            f"Live migration: a network namespace on the source's switch sends {settings.messages_per_s} ICMP echo requests of"
            f" {settings.message_bytes} bytes a second to a QEMU guest, whose memory moves at {settings.bandwidth_mib_s} MiB/s at most.",
            "Live migration: both switches, joined by a veth pair, and both QEMUs are on one machine;"
            f" {PLACEMENTS[settings.placement]}. The guest is the first station, at both ends.",
        )

"""How far a run isolates its processors."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """What a run can change on this machine until its end, to reduce disturbances."""

    OFF = "off"
    """Nothing."""
    SETTINGS = "settings"
    """Settings of the run's processors and of the kernel: frequency, idle states, interrupts, kernel work that other processors can do."""
    FULL = "full"
    """The same, and other programs are kept off the run's processors."""

"""Levels of isolating a run's processors."""

from __future__ import annotations

from enum import StrEnum


class IsolationLevel(StrEnum):
    """Changes of this machine that a run can make until its end, to reduce disturbances."""

    OFF = "off"
    """No change."""
    SETTINGS = "settings"
    """Settings of the run's processors and of the kernel: frequency, idle states, interrupts, kernel work that other processors can do."""
    FULL = "full"
    """The same, and other programs are kept off the run's processors."""

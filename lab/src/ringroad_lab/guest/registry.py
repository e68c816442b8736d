"""The guests that there are, by their kinds."""

from __future__ import annotations

from ringroad_lab.guest.interface import Guest

GUESTS: dict[str, type[Guest]] = {}

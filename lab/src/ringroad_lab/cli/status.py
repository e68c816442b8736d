"""Exit statuses of results; each error class has its own."""

from __future__ import annotations

INVALID = 4
"""A measurement is invalid."""
REGRESSION = 5
"""The comparison shows a regression."""

MEANINGS = {
    0: "All went well.",
    1: "Something failed; the message tells what.",
    2: "A scenario or an argument is wrong.",
    3: "A program is missing; the message names its package.",
    INVALID: "A measurement is invalid.",
    REGRESSION: "The comparison shows a regression.",
    130: "The user stopped it.",
}

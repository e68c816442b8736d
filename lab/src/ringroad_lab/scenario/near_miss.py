"""Suggests names for a mistyped name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(word: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean 'ovs-dpdk'?` if an allowed name is close to the word, else the allowed names if they are few."""
    names = sorted(set(allowed))
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{by_lower[close[0]]}'?"
    if 0 < len(names) <= 24:
        return f"; there are {', '.join(names)}"
    return ""

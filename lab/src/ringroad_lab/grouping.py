"""Items by what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their keys, both in the order in which they first appear."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found

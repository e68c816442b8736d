"""Text from anywhere, safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text without what could steer a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)

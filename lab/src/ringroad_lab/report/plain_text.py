"""Text from anywhere, safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text without what could steer a terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def printable_lines(text: str) -> str:
    """Return the same of a text of any number of lines, which it keeps."""
    return "\n".join(map(printable, text.split("\n")))

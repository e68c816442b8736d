"""Text from anywhere, safe to show."""

from __future__ import annotations

# Figures have it between thousands and before units; Python does not count it as printable.
_NARROW_SPACE = "\u202f"


def printable(text: str) -> str:
    """Return a text without what could steer a terminal."""
    return "".join(character if character.isprintable() or character == _NARROW_SPACE else "\ufffd" for character in text)


def printable_lines(text: str) -> str:
    """Return the same of a text of any number of lines, which it keeps."""
    return "\n".join(map(printable, text.split("\n")))

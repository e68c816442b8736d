"""Makes untrusted text safe to print."""

from __future__ import annotations

# Figures use it between thousands and before units; Python does not treat it as printable.
_NARROW_SPACE = "\u202f"


def printable(text: str) -> str:
    """Return a text without characters that could control a terminal."""
    return "".join(character if character.isprintable() or character == _NARROW_SPACE else "\ufffd" for character in text)


def printable_lines(text: str) -> str:
    """Return the same for a text of several lines; line breaks stay."""
    return "\n".join(map(printable, text.split("\n")))

"""Texts that users and messages give, with their limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed")
    return text


Word = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Name of a source or a bed class."""
Setting = Annotated[str, Field(min_length=3, max_length=1000), AfterValidator(_printable)]

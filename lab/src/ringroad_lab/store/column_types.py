"""Columns whose values are more than texts: a row has the value, the database its text."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import Dialect, String, Text, TypeDecorator
from sqlalchemy.types import TypeEngine

V = TypeVar("V")
E = TypeVar("E", bound=StrEnum)
M = TypeVar("M", bound=BaseModel)


class ValueText(TypeDecorator[V]):
    """A value as a text."""

    impl = Text
    cache_ok = True

    def __init__(self, write: Callable[[V], str], read: Callable[[str], V], length: int | None = None) -> None:
        """Take the functions from a value to its text and back, and the length of a limited column."""
        super().__init__()
        self.write = write
        self.read = read
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column's own type."""
        return dialect.type_descriptor(String(self.length) if self.length else Text())

    def process_bind_param(self, value: V | None, dialect: Dialect) -> str | None:
        """Return the text of a value."""
        return None if value is None else self.write(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> V | None:
        """Return the value of a text."""
        return None if value is None else self.read(value)


def enum_text(kind: type[E], length: int) -> ValueText[E]:
    """Return the type of a column with values of an enumeration."""
    return ValueText(str, kind, length)


def model_text(kind: type[M]) -> ValueText[M]:
    """Return the type of a column with models, as JSON."""
    return ValueText(lambda value: value.model_dump_json(), kind.model_validate_json)


def words_text() -> ValueText[tuple[str, ...]]:
    """Return the type of a column with words, separated by spaces."""
    return ValueText(" ".join, lambda text: tuple(text.split()))

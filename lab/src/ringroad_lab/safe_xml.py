"""Parses untrusted XML. It rejects document type declarations, so that there are no expanding or external entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree


class _Builder(ElementTree.TreeBuilder):
    """Builds a tree, and collects the elements with one tag as they end."""

    def __init__(self, noted: str = "") -> None:
        super().__init__()
        self._noted = noted
        self._root: ElementTree.Element | None = None
        self.ended: list[ElementTree.Element] = []

    def start(self, tag: str, attrs: dict[str, str]) -> ElementTree.Element:
        element = super().start(tag, attrs)
        if self._root is None:
            self._root = element
        return element

    def end(self, tag: str) -> ElementTree.Element:
        element = super().end(tag)
        if tag == self._noted:
            self.ended.append(element)
        return element

    def forget_ended(self) -> None:
        """Drop the ended elements, which the root would keep."""
        self.ended.clear()
        if self._root is not None:
            self._root.clear()

    def doctype(self, *_: object) -> None:
        raise ValueError("it declares a document type, which is not allowed")


def parse_xml(text: bytes) -> ElementTree.Element:
    """Parse a document.

    Raises:
        ValueError: the XML is invalid, or declares a document type.
    """
    parser = ElementTree.XMLParser(target=_Builder())
    try:
        parser.feed(text)
        root: ElementTree.Element = parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(f"invalid XML: {error}") from error
    return root


def parse_fragment(text: str) -> list[ElementTree.Element]:
    """Parse a sequence of elements without a common root.

    Raises:
        ValueError: the XML is invalid, or there is text between the elements.
    """
    whole = parse_xml(f"<fragment>{text}</fragment>".encode())
    if any((part or "").strip() for part in (whole.text, *(each.tail for each in whole))):
        raise ValueError("there is text between the elements")
    return list(whole)


def elements(pieces: Iterable[bytes], tag: str) -> Iterator[ElementTree.Element]:
    """Iterate over the elements with one tag in a long document; elements are dropped after use.

    Raises:
        ValueError: the XML is invalid, or declares a document type.
    """
    builder = _Builder(tag)
    parser = ElementTree.XMLParser(target=builder)
    try:
        for piece in pieces:
            parser.feed(piece)
            yield from builder.ended
            builder.forget_ended()
        parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(f"invalid XML: {error}") from error

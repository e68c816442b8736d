"""XML that others wrote: read only where it declares no document type, so that it has no entities that grow or lead elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree


class _Builder(ElementTree.TreeBuilder):
    """Builds a tree, and notes the elements of a kind as they end."""

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
        """Drop what ended: the root would keep an element for each."""
        self.ended.clear()
        if self._root is not None:
            self._root.clear()

    def doctype(self, *_: object) -> None:
        raise ValueError("it declares a document type, which is not read")


def check_xml(text: bytes) -> None:
    """Check that a document can be read safely.

    Raises:
        ValueError: it is no XML, or declares a document type.
    """
    parse_xml(text)


def parse_xml(text: bytes) -> ElementTree.Element:
    """Read a document.

    Raises:
        ValueError: it is no XML, or declares a document type.
    """
    parser = ElementTree.XMLParser(target=_Builder())
    try:
        parser.feed(text)
        root: ElementTree.Element = parser.close()
    except ElementTree.ParseError as error:
        raise ValueError(f"it is no XML: {error}") from error
    return root


def parse_fragment(text: str) -> list[ElementTree.Element]:
    """Read elements that stand beside each other.

    Raises:
        ValueError: they are no XML, or there is text between them.
    """
    whole = parse_xml(f"<fragment>{text}</fragment>".encode())
    if any((part or "").strip() for part in (whole.text, *(each.tail for each in whole))):
        raise ValueError("there is text beside the elements")
    return list(whole)


def elements(pieces: Iterable[bytes], tag: str) -> Iterator[ElementTree.Element]:
    """Go through the elements of a kind of a long document; each is forgotten when the next one is asked for.

    Raises:
        ValueError: it is no XML, or declares a document type.
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
        raise ValueError(f"it is no XML: {error}") from error

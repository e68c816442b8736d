"""XML that others wrote: read only where it declares no document type, so that it has no entities that grow or lead elsewhere."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.parsers import expat


def check_xml(text: bytes) -> None:
    """Check that a document can be read safely.

    Raises:
        ValueError: it is no XML, or declares a document type.
    """
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is no XML: {error}") from error


def parse_xml(text: bytes) -> ElementTree.Element:
    """Read a document.

    Raises:
        ValueError: it is no XML, or declares a document type.
    """
    check_xml(text)
    return ElementTree.fromstring(text)


def parse_fragment(text: str) -> list[ElementTree.Element]:
    """Read elements that stand beside each other.

    Raises:
        ValueError: they are no XML, or there is text between them.
    """
    whole = parse_xml(f"<fragment>{text}</fragment>".encode())
    if any((part or "").strip() for part in (whole.text, *(each.tail for each in whole))):
        raise ValueError("there is text beside the elements")
    return list(whole)


def _refuse(*_: object) -> None:
    raise ValueError("it declares a document type, which is not read")

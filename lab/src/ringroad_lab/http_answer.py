"""Reads the response of an HTTP server as a stream, with limits: it aborts if a server sends without end, or byte by byte.

The answer must be a stream: `requests.get(..., stream=True)`. Its bytes are not decoded: to get an uncompressed answer, request `IDENTITY`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

IDENTITY = {"Accept-Encoding": "identity"}
_PIECE_BYTES = 1 << 16


class AnswerTooLongError(Exception):
    """An answer is longer than its limit."""

    def __init__(self, most_bytes: int) -> None:
        """Set the limit."""
        super().__init__(f"its answer is longer than {most_bytes} bytes")


def pieces(answer: requests.Response, *, within_s: float, most_bytes: int | None = None) -> Iterator[bytes]:
    """Iterate over the body of an answer, which must end within `within_s` from now.

    Raises:
        AnswerTooLongError: the body is longer than `most_bytes`.
        requests.exceptions.Timeout: the body did not end in time.
        requests.exceptions.ConnectionError: the connection broke.
    """
    ends, size = time.monotonic() + within_s, 0
    try:
        while piece := answer.raw.read1(_PIECE_BYTES, decode_content=False):
            size += len(piece)
            if most_bytes is not None and size > most_bytes:
                raise AnswerTooLongError(most_bytes)
            if time.monotonic() > ends:
                raise requests.exceptions.Timeout(f"it did not end within {within_s:g} s")
            yield piece
    except ReadTimeoutError as error:
        raise requests.exceptions.Timeout(str(error)) from error
    except HTTPError as error:
        raise requests.exceptions.ConnectionError(str(error)) from error


def read_answer(answer: requests.Response, *, within_s: float, most_bytes: int) -> bytes:
    """Return the body of an answer; raises the errors of `pieces`."""
    return b"".join(pieces(answer, within_s=within_s, most_bytes=most_bytes))

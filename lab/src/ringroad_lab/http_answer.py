"""Reads what an HTTP server answers, as it comes and within limits: a server that sends without end, or byte by byte, is given up.

The answer has to be a stream: `requests.get(..., stream=True)`. Its bytes are as they were sent; who wants none packed asks for `IDENTITY`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

IDENTITY = {"Accept-Encoding": "identity"}
_PIECE_BYTES = 1 << 16


class AnswerTooLongError(Exception):
    """An answer has more bytes than it may have."""

    def __init__(self, most_bytes: int) -> None:
        """Name the limit."""
        super().__init__(f"its answer is longer than {most_bytes} bytes")


def pieces(answer: requests.Response, *, within_s: float, most_bytes: int | None = None) -> Iterator[bytes]:
    """Go through the body of an answer; it has to end within a time from now.

    Raises:
        AnswerTooLongError: it is longer.
        requests.exceptions.Timeout: it did not end in time.
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
    """Return the body of an answer; errors are those of `pieces`."""
    return b"".join(pieces(answer, within_s=within_s, most_bytes=most_bytes))

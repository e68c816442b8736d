"""Downloads a file over HTTP, within limits of size and time."""

from __future__ import annotations

import time
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import requests

from ringroad_lab.errors import HostError
from ringroad_lab.http_answer import IDENTITY, AnswerTooLongError, pieces

MAX_BYTES = 4 << 30
WITHIN_S = 900.0
_SILENCE_S = 30.0
_TRIES = 3
_PAUSE_S = 2.0


class _AgainError(Exception):
    """A retry can succeed."""


def download(url: str, folder: Path, *, max_bytes: int = MAX_BYTES, within_s: float = WITHIN_S, pause_s: float = _PAUSE_S) -> Path:
    """Download a file into a folder; return its path.

    Raises:
        HostError: the file is not available, is too long, or takes too long.
    """
    path = folder / (PurePosixPath(unquote(urlsplit(url).path)).name or "package")
    ends = time.monotonic() + within_s
    for tries_left in reversed(range(_TRIES)):
        try:
            _fetch(url, path, max_bytes, ends)
            break
        except _AgainError as error:
            if not tries_left or time.monotonic() + pause_s > ends:
                raise HostError(f"{url}: {error}") from error
            time.sleep(pause_s)
    return path


def _fetch(url: str, path: Path, max_bytes: int, ends: float) -> None:
    try:
        with requests.get(url, headers=IDENTITY, stream=True, timeout=_SILENCE_S) as answer, path.open("wb") as file:
            if answer.status_code >= 500 or answer.status_code == 429:
                raise _AgainError(f"the server answers with status {answer.status_code}")
            if answer.status_code != 200:
                raise HostError(f"{url}: the server answers with status {answer.status_code}")
            for piece in pieces(answer, within_s=ends - time.monotonic(), most_bytes=max_bytes):
                file.write(piece)
    except AnswerTooLongError as error:
        raise HostError(f"{url}: {error}") from error
    except requests.exceptions.RequestException as error:
        raise _AgainError(str(error)) from error
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error

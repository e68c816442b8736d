"""The state of a rendezvous on disk: written atomically and synced before members get it."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from pathlib import Path

from pydantic import ValidationError

from ringroad_lab.errors import LabError, value_problems
from ringroad_lab.rendezvous.meeting import Meeting
from ringroad_lab.trial import Frozen

_MAX_BYTES = 1 << 20


class _Kept(Frozen):
    secret: str
    """A hash that identifies the secret without revealing it."""
    meeting: Meeting


class StateFile:
    """Reads and writes the state file of one rendezvous, which its secret identifies."""

    def __init__(self, path: Path, secret: bytes) -> None:
        """Take the file's path, and the secret."""
        self._path = path
        self._secret = hmac.new(secret, b"state of a rendezvous", sha256).hexdigest()

    def load(self) -> Meeting | None:
        """Return the saved state; None if there is none.

        Raises:
            LabError: the file cannot be read, or belongs to another rendezvous.
        """
        try:
            with self._path.open("rb") as file:
                kept = _Kept.model_validate_json(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LabError(f"{self._path}: {error.strerror}") from error
        except ValidationError as error:
            raise LabError(f"{self._path} is not the state of a rendezvous: {value_problems(error)[0]}; use another file") from error
        if kept.secret != self._secret:
            raise LabError(f"{self._path} is the state of a rendezvous with another secret: use another file, or remove this one")
        return kept.meeting

    def save(self, meeting: Meeting) -> None:
        """Save the state. After an error, the previous state remains.

        Raises:
            OSError: the state cannot be written, for example to a full disk.
        """
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_Kept(secret=self._secret, meeting=meeting).model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Why a notice was not sent; the texts hold no secret."""

from __future__ import annotations


class UnsentError(Exception):
    """It was not, and will not be."""


class TemporaryError(UnsentError):
    """It was not; a later try may succeed."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        """Take the reason, and how long the server asks to wait."""
        super().__init__(reason)
        self.wait_s = wait_s

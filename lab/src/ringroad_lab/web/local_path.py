"""Distinguishes paths of this site from addresses of others."""

from __future__ import annotations

from urllib.parse import urlsplit


def local_path(target: str, otherwise: str = "/runs") -> str:
    """Return the target if it is a path of this site, else another path: a login link must not redirect to another site."""
    # Browsers read a backslash as a slash, skip control characters, and read two slashes as the start of a host name.
    if not target.startswith("/") or target.startswith("//") or "\\" in target or not target.isprintable():
        return otherwise
    try:
        parts = urlsplit(target)
    except ValueError:
        return otherwise
    return target if not parts.scheme and not parts.netloc else otherwise

"""Distinguishes paths of this site from addresses of others."""

from __future__ import annotations

from urllib.parse import urlsplit


def local_path(target: str, otherwise: str = "/runs") -> str:
    """Return the target where it is a path of this site, else another path: nobody is sent elsewhere by a link to the login page."""
    # Browsers read a backslash as a slash, skip control characters, and take two slashes for the beginning of a host's name.
    if not target.startswith("/") or target.startswith("//") or "\\" in target or not target.isprintable():
        return otherwise
    try:
        parts = urlsplit(target)
    except ValueError:
        return otherwise
    return target if not parts.scheme and not parts.netloc else otherwise

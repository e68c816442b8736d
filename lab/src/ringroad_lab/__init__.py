"""Ringroad's laboratory: measures a named scenario, and compares and explains the results."""

__version__ = "0.2.0"

"""Cables between parts of a test setup."""

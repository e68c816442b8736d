"""Cables between parts of a test bed."""

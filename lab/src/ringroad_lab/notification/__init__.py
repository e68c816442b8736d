"""Telling others how a run ended."""

"""Telling others how far a request has come, or how a run ended."""

"""Notifications about the state of a request or the result of a run."""

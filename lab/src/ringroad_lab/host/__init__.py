"""Machines on which parts of a test bed run: this one, and others by SSH."""

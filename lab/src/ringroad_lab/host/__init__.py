"""Machines on which parts of a test setup run: this machine, and others by SSH."""

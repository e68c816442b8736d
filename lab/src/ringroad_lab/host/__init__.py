"""Machines on which parts of a test bed run: this machine, and others by SSH."""

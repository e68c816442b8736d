"""Devices under test: a driver for each, each in its own file."""

"""Devices under test: a driver for each, in a file of its own."""

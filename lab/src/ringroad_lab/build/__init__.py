"""Builds: programs of a device or guest that are not the machine's own."""

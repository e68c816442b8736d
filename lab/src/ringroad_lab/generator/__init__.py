"""Generators: they offer load and count the frames that come back."""

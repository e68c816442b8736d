"""A guest that migrates between two switches while a station sends to it."""
